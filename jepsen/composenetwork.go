package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/belfrydb/belfry/jepsen/lab"
	"github.com/belfrydb/belfry/jepsen/nemesis"
	"github.com/belfrydb/belfry/jepsen/network"
)

// The methods of lab.Network: nodes know each other by the names of docker-compose.yml, clients
// come in at the published ports.

func (c *compose) Host(node string) string       { return node }
func (c *compose) Advertised(node string) string { return node }

func (c *compose) ClientURL(_, node string) (string, error) {
	port, ok := c.ports[node]
	if !ok {
		return "", fmt.Errorf("docker-compose.yml has no node %s", node)
	}
	return "http://" + c.address + ":" + port, nil
}

func (c *compose) Wrap(_ string, command *exec.Cmd) error {
	command.SysProcAttr.Setpgid = true // see apart
	return nil
}

func (c *compose) Add(_ context.Context, node string) error {
	return fmt.Errorf("there is no room for %s: docker-compose.yml has %d nodes", node, composeNodes)
}

// composable returns an error if a run cannot be made with --compose, or only with it: before
// anything starts, and with every reason.
func (s *settings) composable(ctx context.Context, faults []nemesis.Fault) error {
	var problems []error
	if s.compose && s.nodes != composeNodes {
		problems = append(problems, fmt.Errorf("--nodes: have %d, but docker-compose.yml has %d", s.nodes, composeNodes))
	}
	if s.compose && s.network != network.Auto {
		problems = append(problems, errors.New("--network: the network of --compose is docker's"))
	}
	only := nemesis.Names(nemesis.ContainerFaults())
	for _, f := range faults {
		for name := range strings.SplitSeq(f.Name, "+") {
			switch why := unfitForContainers(ctx, name); {
			case s.compose && why != "":
				problems = append(problems, fmt.Errorf("--compose: the nemesis %s cannot be injected into containers: %s",
					name, why))
			case !s.compose && slices.Contains(only, name):
				problems = append(problems, fmt.Errorf("the nemesis %s needs --compose", name))
			}
		}
	}
	return errors.Join(problems...)
}

// unfitForContainers says why a fault cannot be injected into containers; "" if it can.
func unfitForContainers(ctx context.Context, fault string) string {
	switch fault {
	case "replace-node", "shard-move":
		return fmt.Sprintf("it adds a node, and docker-compose.yml has %d", composeNodes)
	case "no-files":
		if os.Geteuid() != 0 {
			return "it sets a limit for a process of another user, which needs root"
		}
		if _, err := exec.LookPath("prlimit"); err != nil {
			return "it needs prlimit, which is not installed; on Debian: apt-get install -y util-linux"
		}
		return ""
	case "compose-disconnect":
		return ""
	case "compose-isolate", "compose-isolate-leader":
		if err := lab.Cuttable(ctx); err != nil {
			return err.Error()
		}
		return ""
	case "kill-one", "kill-majority", "kill-all", "kill-leader", "kill-catalog-leader", "pause-leader", "pause-one",
		"pause-all", "restart", "restart-rolling", "starve", "crash-loop",
		"clock-forward", "clock-back", "clock-strobe", "clock-drift", "suspend", "clock-skew-transfer", "transfer",
		"lag-install":
		return ""
	}
	return "it needs nodes whose disks and connections pass through the harness, as those of processes do"
}
