package cluster

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a verbs) clusterResetClockCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "reset-clock",
		Short: "Move the time of shards that run ahead back to the nodes' clocks",
		Long: `
Reset-clock is the way back after a shard was led by a clock that was wrong: a first start in the
wrong year, say. Put the clocks of the nodes right first; then 'belfry cluster status' says
CLOCK_AHEAD for such shards, and reset-clock moves their time back to the median of the clocks. It
asks; without a terminal it needs --yes. Shards that are not ahead are not touched.

A lease ends no later than its whole length after the reset, and never earlier than it was granted
for. A due time that was counted on the wrong clock moves back with it; one that the caller named
stays, and a job that was ready too early waits again.`,
		Example: "  belfry cluster status; belfry cluster reset-clock --yes",
		Args:    cli.Arguments(0, 0),
	}
	c.Flags().BoolVarP(&yes, flag.Yes, "y", false, "do not ask")
	c.RunE = func(c *cobra.Command, _ []string) error {
		conn, err := a.Connect()
		if err != nil {
			return err
		}
		if !yes {
			if err := a.Confirm("nothing was changed"); err != nil {
				return err
			}
		}
		return a.Within(c.Context(), func(ctx context.Context) error {
			response, err := conn.Admin.ResetClock(ctx, &belfryv1.ResetClockRequest{})
			if err != nil {
				return err
			}
			return a.Show(response, func(w io.Writer) { renderResets(w, response.Shards) })
		})
	}
	return a.ClientFlags(c)
}

// renderResets says which shards' time was moved back, and by how much.
func renderResets(w io.Writer, shards []*belfryv1.ShardClock) {
	moved := 0
	for _, s := range shards {
		from, to := s.From.AsTime(), s.To.AsTime()
		if from.Equal(to) {
			continue
		}
		moved++
		fmt.Fprintf(w, "shard %d: from %s back to %s\n", s.Shard, from.Format(time.RFC3339Nano), to.Format(time.RFC3339Nano))
	}
	if moved == 0 {
		fmt.Fprintln(w, "no shard's time is ahead; nothing was changed")
	}
}
