package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"syscall"
)

// Cutting containers off each other takes packet filters of this machine, in the chain that docker
// leaves to others.
const (
	cutChain = "DOCKER-USER"
	// bridgeFilter says whether packets between containers of one network pass the filters.
	bridgeFilter = "/proc/sys/net/bridge/bridge-nf-call-iptables"
)

// Cuttable returns an error that says why this machine cannot cut containers off each other.
func Cuttable(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("packet filters need root")
	}
	if on, err := os.ReadFile(bridgeFilter); err != nil || !bytes.HasPrefix(on, []byte("1")) {
		return fmt.Errorf("packets between containers do not pass the filters: %s is not 1; modprobe br_netfilter",
			bridgeFilter)
	}
	return filter(ctx, "-n", "-L", cutChain)
}

// Cut has nothing pass between a node and others; clients still reach all. What it returns takes
// that back.
func (c *Containers) Cut(ctx context.Context, node string,
	others []string) (restore func(context.Context) error, err error) {
	before, err := c.addresses(ctx, append([]string{node}, others...))
	if err != nil {
		return nil, err
	}
	var rules [][]string
	// what a harness that was killed leaves behind says whose it was
	drop := []string{"-m", "comment", "--comment", c.Network, "-j", "DROP"}
	for _, other := range others {
		rules = append(rules,
			append([]string{cutChain, "-s", before[node], "-d", before[other]}, drop...),
			append([]string{cutChain, "-s", before[other], "-d", before[node]}, drop...))
	}
	undo := func(ctx context.Context) error {
		// remaining rules would cut the next containers with these addresses
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), containerAskMax)
		defer cancel()
		var problems []error
		for _, r := range rules {
			problems = append(problems, filter(ctx, append([]string{"-D"}, r...)...))
		}
		return errors.Join(problems...)
	}
	for i, r := range rules {
		if err := filter(ctx, append([]string{"-I"}, r...)...); err != nil {
			rules = rules[:i]
			return nil, errors.Join(err, undo(ctx))
		}
	}
	return func(ctx context.Context) error {
		if err := undo(ctx); err != nil {
			return err
		}
		after, err := c.addresses(ctx, append([]string{node}, others...))
		if err == nil && !maps.Equal(before, after) {
			err = fmt.Errorf("addresses changed while %s was cut off, so that it was not: %v became %v", node, before, after)
		}
		return err
	}, nil
}

// filter runs iptables.
func filter(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, "iptables", append([]string{"--wait"}, args...)...)
	// an interrupt of the harness at a terminal must not interrupt its cleanup
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("iptables %v: %w: %s", args, err, bytes.TrimSpace(out))
	}
	return nil
}

// addresses returns the addresses of nodes, which are up.
func (c *Containers) addresses(ctx context.Context, nodes []string) (map[string]string, error) {
	addresses := map[string]string{}
	for _, node := range nodes {
		var container struct {
			NetworkSettings struct {
				Networks map[string]struct{ IPAddress string }
			}
		}
		if err := c.ask(ctx, http.MethodGet, "/containers/"+url.PathEscape(c.Name(node))+"/json",
			nil, &container); err != nil {
			return nil, err
		}
		addresses[node] = container.NetworkSettings.Networks[c.Network].IPAddress
		if addresses[node] == "" {
			return nil, fmt.Errorf("the container of %s has no address", node)
		}
	}
	return addresses, nil
}
