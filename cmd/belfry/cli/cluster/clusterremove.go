package cluster

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a verbs) clusterRemoveCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "remove NODE",
		Short: "Forget a node that does not answer any more",
		Long: `
Remove forgets a node for good. What it held is replaced from the other replicas. If it is started
again on its old data it is told so and ends; with an empty data directory it joins as a new node. A
node that still answers is refused: drain it and stop it first. It says what the node holds and
asks; without a terminal it needs --yes.

NODE is a name, or NAME.INCARNATION if several nodes have the name.`,
		Example:           "  belfry cluster remove n3",
		Args:              cli.Arguments(1, 1, "NODE"),
		ValidArgsFunction: a.completeNode,
	}
	c.Flags().BoolVarP(&yes, flag.Yes, "y", false, "do not ask")
	c.RunE = func(c *cobra.Command, args []string) error {
		conn, err := a.Connect()
		if err != nil {
			return err
		}
		request := &belfryv1.RemoveNodeRequest{}
		request.Name, request.Incarnation, _ = strings.Cut(args[0], ".")
		var cluster *belfryv1.GetClusterResponse
		err = a.Within(c.Context(), func(ctx context.Context) (err error) {
			cluster, err = conn.Admin.GetCluster(ctx, &belfryv1.GetClusterRequest{})
			return err
		})
		if err != nil {
			return err
		}
		// else the server says what is wrong with the name
		if node := findNode(cluster, request.Name, request.Incarnation); node != nil {
			if err := checkRemoval(cluster, node); err != nil {
				return err
			}
			request.Incarnation = node.Incarnation
			renderRemoval(a.Err, cluster, node)
			if !yes {
				if err := a.Confirm("nothing was removed"); err != nil {
					return err
				}
			}
		}
		return a.Within(c.Context(), func(ctx context.Context) error {
			response, err := conn.Admin.RemoveNode(ctx, request)
			if err != nil {
				return err
			}
			return a.Show(response, func(w io.Writer) {
				if response.Node == nil {
					fmt.Fprintf(w, "%s is no node of the cluster\n", args[0])
					return
				}
				fmt.Fprintf(w, "removed %s\n", response.Node.Name)
			})
		})
	}
	return a.ClientFlags(c)
}

// checkRemoval says why the server would refuse to remove a node, before anybody is asked whether
// to do it. The server decides.
func checkRemoval(cluster *belfryv1.GetClusterResponse, node *belfryv1.Node) error {
	if node.State != belfryv1.NodeState_NODE_STATE_SILENT {
		return cli.ExitWith(cli.CodeUsage, node.Name+" still answers; drain it, stop it, and remove it then")
	}
	for _, s := range cluster.Shards {
		member := slices.ContainsFunc(s.Replicas, func(r *belfryv1.Replica) bool {
			return r.Node == node.Name && (r.Incarnation == node.Incarnation || r.Incarnation == "")
		})
		if s.Leader == "" && (member || len(s.Replicas) == 0) {
			return cli.ExitWith(cli.CodeUsage,
				fmt.Sprintf("shard %d has no leader; what only %s has would be lost, so start it again instead", s.Shard,
					node.Name))
		}
	}
	return nil
}
