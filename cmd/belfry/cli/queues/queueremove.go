package queues

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a verbs) queuePurgeCommand() *cobra.Command {
	var states []string
	var yes bool
	request := &belfryv1.PurgeQueueRequest{}
	c := &cobra.Command{
		Use:   "purge QUEUE",
		Short: "Remove jobs of a queue",
		Long: `
Purge removes the delayed, ready and dead jobs of a queue, or those in the states named. It shows
how many there are and asks; without a terminal it needs --yes.`,
		Example:           "  belfry queue purge orders\n  belfry queue purge orders --state dead --yes",
		Args:              cli.Arguments(1, 1, "QUEUE"),
		ValidArgsFunction: a.CompleteQueue,
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringSliceVarP(&states, flag.State, "s", []string{"delayed", "ready", "dead"},
		"which jobs: delayed, ready, reserved, dead")
	flags.Uint32VarP(&request.Max, flag.Max, "n", 0, "how many jobs at most; 0 for all")
	flags.BoolVarP(&yes, flag.Yes, "y", false, "do not ask")
	cli.RequestIDFlag(c, &request.RequestId)
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if request.States, err = purgedStates(states); err != nil {
			return err
		}
		request.Queue = args[0]
		a.Ensure(&request.RequestId)
		return a.remove(c.Context(), request.Queue, yes, removal{
			what: func(counts *belfryv1.JobCounts) string {
				found := countIn(counts, request.States)
				if request.Max > 0 {
					found = min(found, request.Max)
				}
				return fmt.Sprintf("Purging %s removes %s (%s).", request.Queue, render.Count(found, "job"),
					strings.Join(states, ", "))
			},
			do: func(ctx context.Context, conn *cli.Connection) error {
				response, err := conn.Admin.PurgeQueue(ctx, request)
				if err != nil {
					err = cli.WithNearestQueue(ctx, conn, request.Queue, err)
					return cli.WithRequest(request.RequestId, err)
				}
				return a.Show(response, func(w io.Writer) { fmt.Fprintf(w, "%s purged\n", render.Count(response.Purged, "job")) })
			},
		})
	}
	return a.ClientFlags(c)
}

// purgedStates reads --state of a purge. An empty list is refused: the server takes it for the states of
// the default, and a variable that is not set may be the cause.
func purgedStates(states []string) (list []belfryv1.JobState, err error) {
	if len(states) == 0 {
		states = []string{""}
	}
	for _, state := range states {
		known := cli.StateOf(state)
		if known == belfryv1.JobState_JOB_STATE_UNSPECIFIED || known > belfryv1.JobState_JOB_STATE_DEAD {
			return nil, cli.Usagef("--state: have %q, want one of delayed, ready, reserved, dead", state)
		}
		list = append(list, known)
	}
	return list, nil
}

func (a verbs) queueDeleteCommand() *cobra.Command {
	var yes bool
	request := &belfryv1.DeleteQueueRequest{}
	c := &cobra.Command{
		Use:   "delete QUEUE",
		Short: "Remove a queue with its jobs, schedules, settings and remembered ids",
		Long: `
Delete removes a queue with all its jobs, also reserved ones, its schedules, settings and remembered
ids. It shows how many jobs there are and asks; without a terminal it needs --yes.`,
		Example:           "  belfry queue delete orders",
		Args:              cli.Arguments(1, 1, "QUEUE"),
		ValidArgsFunction: a.CompleteQueue,
	}
	c.Flags().BoolVarP(&yes, flag.Yes, "y", false, "do not ask")
	cli.RequestIDFlag(c, &request.RequestId)
	c.RunE = func(c *cobra.Command, args []string) error {
		request.Queue = args[0]
		a.Ensure(&request.RequestId)
		return a.remove(c.Context(), request.Queue, yes, removal{
			what: func(counts *belfryv1.JobCounts) string {
				all := counts.GetDelayed() + counts.GetReady() + counts.GetReserved() + counts.GetDead()
				return fmt.Sprintf("Deleting %s removes %s and all its schedules.", request.Queue, render.Count(all, "job"))
			},
			do: func(ctx context.Context, conn *cli.Connection) error {
				response, err := conn.Admin.DeleteQueue(ctx, request)
				if err != nil {
					err = cli.WithNearestQueue(ctx, conn, request.Queue, err)
					return cli.WithRequest(request.RequestId, err)
				}
				return a.Show(response, func(w io.Writer) {
					fmt.Fprintf(w, "deleted %s with %s\n", request.Queue, render.Count(response.Purged, "job"))
				})
			},
		})
	}
	return a.ClientFlags(c)
}

// removal is what a command that removes jobs says first and does then.
type removal struct {
	// what says what will be gone.
	what func(counts *belfryv1.JobCounts) string
	// do removes it.
	do func(context.Context, *cli.Connection) error
}

// remove reads a queue, shows what will be removed, asks, and removes it. It also continues if the
// queue cannot be found, because the queue may be half deleted, and a repeat of the call completes
// that. Each of the two calls has the whole --timeout, because a person may think in between.
func (a verbs) remove(ctx context.Context, queue string, yes bool, r removal) error {
	conn, err := a.Connect()
	if err != nil {
		return err
	}
	err = a.Within(ctx, func(ctx context.Context) error {
		response, err := conn.Admin.GetQueue(ctx, &belfryv1.GetQueueRequest{Queue: queue})
		switch {
		case cli.WireCode(err) == cli.CodeNotFound && yes:
			return nil // the call itself says so
		case cli.WireCode(err) == cli.CodeNotFound:
			fmt.Fprintf(a.Err, "There is no queue %q%s. Go on only to repeat a call that was cut off.\n", queue,
				strings.TrimSuffix(cli.NearestQueue(ctx, conn, queue), "?"))
			return nil
		case err != nil:
			return err
		}
		fmt.Fprintln(a.Err, r.what(response.Queue.Counts))
		return nil
	})
	if err != nil {
		return err
	}
	if !yes {
		if err := a.Confirm("nothing was removed"); err != nil {
			return err
		}
	}
	return a.Within(ctx, func(ctx context.Context) error { return r.do(ctx, conn) })
}

// countIn adds up the jobs in some states.
func countIn(counts *belfryv1.JobCounts, states []belfryv1.JobState) uint32 {
	var sum uint32
	for _, state := range states {
		switch state {
		case belfryv1.JobState_JOB_STATE_DELAYED:
			sum += counts.GetDelayed()
		case belfryv1.JobState_JOB_STATE_READY:
			sum += counts.GetReady()
		case belfryv1.JobState_JOB_STATE_RESERVED:
			sum += counts.GetReserved()
		case belfryv1.JobState_JOB_STATE_DEAD:
			sum += counts.GetDead()
		default:
		}
	}
	return sum
}
