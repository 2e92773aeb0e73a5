// Package cluster has the commands of a cluster and its nodes.
package cluster

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// verbs are the commands of a cluster and its nodes.
type verbs struct{ *cli.App }

// Commands returns `cluster` and `audit`.
func Commands(a *cli.App) []*cobra.Command {
	v := verbs{a}
	return []*cobra.Command{v.clusterCommand(), v.auditCommand()}
}

// ServerCommands returns `plan` and `health`. The help lists them with the commands of a server.
func ServerCommands(a *cli.App) []*cobra.Command {
	v := verbs{a}
	return []*cobra.Command{v.planCommand(), v.healthCommand()}
}

func (a verbs) clusterCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "cluster",
		Short: "Show nodes and shards; drain and remove nodes; move leaderships; change settings; put time right",
	}, a.clusterStatusCommand(), a.clusterDrainCommand(), a.clusterRemoveCommand(), a.clusterTransferCommand(),
		a.clusterSettingsCommand(), a.clusterResetClockCommand())
}

func (a verbs) clusterStatusCommand() *cobra.Command {
	wait := &clusterWait{}
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the nodes and the shards, and what is not as it should be",
		Long: `
Status asks the server for all nodes and shards. It exits with 0 if every node answers and every
shard has a leader and as many voters as the replication factor says, and with 12 if something is
not as it should be; the output says what, and so does "problems" in JSON. A cluster of one node has
no copies and is healthy without them. Below it says since when nodes are silent, and which shard
moves where and why.

With --wait it asks again until --nodes nodes answer and nothing is wrong or under way, for a minute
unless --timeout says otherwise, also while there is no server yet. If that does not come about it
exits with 13 and says what is missing.

Of nodes, FORMAT is the latest format of logs and snapshots that the node reads, REPLICAS the shards
of which it is a member and LEADS those that it leads; INCARNATION tells two nodes of one name
apart. Of shards, OTHERS are members that do not vote yet, APPLIED is the position up to which the
log has taken effect, DIGEST a checksum of what is in the shard then, the same on all replicas, and
JOBS what it holds. A member with a question mark does not answer.`,
		Example: `  belfry cluster status
  belfry cluster status --wait --nodes 3 --timeout 2m  # until a cluster of three has formed or is whole again`,
		Args: cli.Arguments(0, 0),
	}
	c.Flags().BoolVar(&wait.wait, flag.Wait, false, "wait until the cluster is whole and healthy")
	c.Flags().IntVar(&wait.nodes, flag.Nodes, 1, "with --wait, how many nodes must answer")
	show := a.Command(nil, func(ctx context.Context, conn *cli.Connection, _ []string) error {
		response, err := conn.Admin.GetCluster(ctx, &belfryv1.GetClusterRequest{})
		if err != nil {
			return err
		}
		if err := a.Show(response, func(w io.Writer) { renderCluster(w, response) }); err != nil {
			return err
		}
		if len(response.Problems) > 0 {
			return cli.ExitWith(cli.CodeUnhealthy, "")
		}
		return nil
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case !wait.wait && c.Flags().Changed(flag.Nodes):
			return cli.Usagef("--nodes: it says what --wait waits for, which is missing")
		case wait.nodes < 1:
			return cli.Usagef("--nodes: have %d, want 1 or more", wait.nodes)
		case wait.wait:
			return a.waitForCluster(c, wait)
		default:
			return show(c, args)
		}
	}
	return a.ClientFlags(c)
}

func (a verbs) clusterTransferCommand() *cobra.Command {
	request := &belfryv1.TransferLeaderRequest{}
	c := &cobra.Command{
		Use:   "transfer SHARD",
		Short: "Have the leader of a shard hand over to another voter",
		Long: `
Transfer moves the leadership of a shard. The cluster keeps leaderships even: it moves one from a
node that leads two shards more than another, so that an uneven transfer does not last. To keep a
node free of leaderships, drain it.`,
		Example: "  belfry cluster transfer 3",
		Args:    cli.Arguments(1, 1, "SHARD"),
	}
	c.Flags().StringVar(&request.To, flag.To, "", "the NODE that is to lead; the voter that leads fewest shards if empty")
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		shard, err := strconv.ParseUint(args[0], 10, 32)
		if err != nil {
			return cli.Usagef("SHARD: have %q, want the number of a shard, such as 0", args[0])
		}
		request.Shard = uint32(shard)
		response, err := conn.Admin.TransferLeader(ctx, request)
		if err != nil {
			return err
		}
		return a.Show(response, func(w io.Writer) {
			if response.Leader == response.Previous {
				fmt.Fprintf(w, "%s leads shard %d already\n", response.Leader, request.Shard)
				return
			}
			fmt.Fprintf(w, "shard %d: %s handed over to %s\n", request.Shard, response.Previous, response.Leader)
		})
	})
	return a.ClientFlags(c)
}

// findNode returns the node of a name, and of an incarnation if one is given; nil if there is none,
// or more than one.
func findNode(cluster *belfryv1.GetClusterResponse, name, incarnation string) (found *belfryv1.Node) {
	for _, node := range cluster.Nodes {
		if node.Name != name || incarnation != "" && node.Incarnation != incarnation {
			continue
		}
		if found != nil {
			return nil
		}
		found = node
	}
	return found
}

// completeNode offers the names of the nodes to the shell.
func (a verbs) completeNode(c *cobra.Command, args []string,
	prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.Complete(c, args, func(ctx context.Context, conn *cli.Connection) (names []cobra.Completion, err error) {
		response, err := conn.Admin.GetCluster(ctx, &belfryv1.GetClusterRequest{})
		if err != nil {
			return nil, err
		}
		for _, node := range response.Nodes {
			if strings.HasPrefix(node.Name, prefix) {
				names = append(names, node.Name)
			}
		}
		return names, nil
	})
}
