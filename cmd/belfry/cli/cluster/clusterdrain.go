package cluster

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// drainPeriod is the time between two questions how far a drain is.
const drainPeriod = 200 * time.Millisecond

func (a verbs) clusterDrainCommand() *cobra.Command {
	var undo, noWait bool
	request := &belfryv1.DrainNodeRequest{}
	c := &cobra.Command{
		Use:   "drain NODE",
		Short: "Move everything off a node",
		Long: `
Drain moves leaderships and then replicas off a node, as far as other nodes can take them, and waits
until nothing is left on it. The node goes on serving meanwhile, and forwards calls afterwards.
Interrupting the command does not stop the drain; --undo does. Without a spare node every shard
would have fewer voters afterwards: such a drain is refused unless --force says that it is meant,
and the shards are under-replicated until there is another node.

NODE is a name, or NAME.INCARNATION if several nodes have the name.`,
		Example:           "  belfry cluster drain n3\n  belfry cluster drain n3 --undo",
		Args:              cli.Arguments(1, 1, "NODE"),
		ValidArgsFunction: a.completeNode,
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.BoolVar(&noWait, flag.NoWait, false, "do not wait until nothing is left")
	flags.BoolVar(&request.Force, flag.Force, false, "drain it although the shards then have fewer voters")
	flags.BoolVar(&undo, flag.Undo, false, "let the node take replicas again")
	c.MarkFlagsMutuallyExclusive(flag.NoWait, flag.Undo)
	c.MarkFlagsMutuallyExclusive(flag.Force, flag.Undo)
	c.RunE = func(c *cobra.Command, args []string) error {
		conn, err := a.Connect()
		if err != nil {
			return err
		}
		draining := !undo
		request.Draining = &draining
		request.Name, request.Incarnation, _ = strings.Cut(args[0], ".")
		var response *belfryv1.DrainNodeResponse
		err = a.Within(c.Context(), func(ctx context.Context) error {
			response, err = conn.Admin.DrainNode(ctx, request)
			return err
		})
		if err != nil {
			return err
		}
		if !undo && !noWait {
			if response.Node, err = a.watchDrain(c.Context(), conn, response.Node); err != nil {
				return err
			}
		}
		return a.Show(response, func(w io.Writer) { renderDrain(w, response.Node) })
	}
	return a.ClientFlags(c)
}

// watchDrain shows how far a drain is until nothing is left on the node, and returns the node as it
// is then. Each question has the whole --timeout; how long the drain takes depends on what there is
// to copy.
func (a verbs) watchDrain(ctx context.Context, conn *cli.Connection, node *belfryv1.Node) (*belfryv1.Node, error) {
	progress := cli.NewProgress(a.System, 0)
	defer progress.End()
	most, shown := held(node), ""
	for held(node) > 0 {
		most = max(most, held(node))
		// On a terminal a bar, elsewhere a line for each change.
		if text := drainLine(node, most, a.ErrTerminal); text != shown {
			progress.Write(text)
			shown = text
		}
		select {
		case <-ctx.Done():
			progress.End()
			fmt.Fprintf(a.Err, "the drain of %s goes on; 'belfry cluster status' shows how far it is, and 'belfry cluster "+
				"drain %s --undo' stops it\n", node.Name, node.Name)
			return nil, context.Cause(ctx)
		case <-time.After(drainPeriod):
		}
		err := a.Within(ctx, func(ctx context.Context) error {
			response, err := conn.Admin.GetCluster(ctx, &belfryv1.GetClusterRequest{})
			if err != nil {
				return err
			}
			now := findNode(response, node.Name, node.Incarnation)
			switch {
			case now == nil:
				return cli.ExitWith(cli.CodeNotFound, node.Name+" was removed meanwhile")
			case !now.Draining:
				return cli.ExitWith(cli.CodeError, "somebody stopped the drain of "+node.Name)
			}
			node = now
			return nil
		})
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
	return node, nil
}

// held counts what is left on a node.
func held(node *belfryv1.Node) uint32 { return node.Replicas + node.Leads }

// drainLine says how far a drain is: most is what there was.
func drainLine(node *belfryv1.Node, most uint32, withBar bool) string {
	text := fmt.Sprintf("%s: %s left, leads %s", node.Name, render.Count(node.Replicas, "replica"),
		render.Count(node.Leads, "shard"))
	if withBar {
		return render.Bar(1-float64(held(node))/float64(most)) + " " + text
	}
	return text
}
