package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// waitDefault is how long 'cluster status --wait' waits without --timeout: a cluster forms within
	// seconds, and is healthy again within a minute.
	waitDefault = time.Minute
	// waitPause is the time between two looks, waitLook bounds one.
	waitPause = 250 * time.Millisecond
	waitLook  = 5 * time.Second
)

// clusterWait is what 'cluster status' was told to wait for.
type clusterWait struct {
	wait  bool
	nodes int
}

// missing says what a cluster lacks; empty if it is whole. Draining nodes answer, and do not count.
func (w *clusterWait) missing(c *belfryv1.GetClusterResponse) string {
	there := 0
	for _, n := range c.Nodes {
		if n.State == belfryv1.NodeState_NODE_STATE_LIVE {
			there++
		}
	}
	missing := c.Problems
	if there < w.nodes {
		missing = append([]string{fmt.Sprintf("%d of %d nodes are there", there, w.nodes)}, missing...)
	}
	for _, m := range c.Moves {
		missing = append(missing, fmt.Sprintf("shard %d: %s", m.Shard, m.Text))
	}
	return strings.Join(missing, "\n  ")
}

// waitForCluster asks again and again until the cluster is whole, and shows it. If it is not when
// the time is over, the error says what is missing.
func (a verbs) waitForCluster(c *cobra.Command, w *clusterWait) error {
	conn, err := a.Connect()
	if err != nil {
		return err
	}
	limit := a.Timeout
	if !c.Flags().Changed(flag.Timeout) {
		limit = waitDefault
	}
	ctx, cancel := context.WithTimeoutCause(c.Context(), limit, cli.NoAnswer(limit))
	defer cancel()
	tick := time.NewTicker(waitPause)
	defer tick.Stop()
	for {
		// one that has begun is not cut off: it says what is missing
		cluster, missing := a.lookAtCluster(c.Context(), conn, w)
		if missing == "" {
			return a.Show(cluster, func(out io.Writer) { renderCluster(out, cluster) })
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		if _, late := errors.AsType[*cli.TimeoutError](context.Cause(ctx)); !late {
			return context.Cause(ctx)
		}
		return cli.ExitWith(cli.CodeWaited, fmt.Sprintf("after %v the cluster is not whole:\n  %s", limit, missing))
	}
}

// lookAtCluster asks once. missing is what the cluster lacks, or why nothing was heard of it.
func (a verbs) lookAtCluster(ctx context.Context, conn *cli.Connection,
	w *clusterWait) (cluster *belfryv1.GetClusterResponse, missing string) {
	ctx, cancel := context.WithTimeout(ctx, waitLook)
	defer cancel()
	cluster, err := conn.Admin.GetCluster(ctx, &belfryv1.GetClusterRequest{})
	if err != nil {
		return nil, a.Describe(ctx, err).Error()
	}
	return cluster, w.missing(cluster)
}
