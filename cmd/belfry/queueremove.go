package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a *app) queuePurgeCommand() *cobra.Command {
	var states []string
	var yes bool
	request := &belfryv1.PurgeQueueRequest{}
	c := &cobra.Command{
		Use:   "purge QUEUE",
		Short: "Remove jobs of a queue",
		Long: "Purge removes the delayed, ready and dead jobs of a queue, or those in the states named. It shows how many there are\n" +
			"and asks; without a terminal it needs --yes.",
		Args:              arguments(1, 1, "QUEUE"),
		ValidArgsFunction: a.completeQueue,
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringSliceVarP(&states, "state", "s", []string{"delayed", "ready", "dead"}, "which jobs: delayed, ready, reserved, dead")
	flags.Uint32VarP(&request.Max, "max", "n", 0, "how many jobs at most; 0 for all")
	flags.BoolVarP(&yes, "yes", "y", false, "do not ask")
	requestIDFlag(c, &request.RequestId)
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, args []string) error {
		for _, state := range states {
			known := stateOf(state)
			if known == belfryv1.JobState_JOB_STATE_UNSPECIFIED || known > belfryv1.JobState_JOB_STATE_DEAD {
				return usagef("--state: %q is not one of delayed, ready, reserved, dead", state)
			}
			request.States = append(request.States, known)
		}
		request.Queue = args[0]
		queue, err := conn.admin.GetQueue(ctx, &belfryv1.GetQueueRequest{Queue: request.Queue})
		if err != nil {
			return err
		}
		found := countIn(queue.Queue.Counts, request.States)
		if request.Max > 0 {
			found = min(found, request.Max)
		}
		what := fmt.Sprintf("Purging %s removes %s (%s).", request.Queue, count(found, "job"), strings.Join(states, ", "))
		if err := a.confirm(what, yes); err != nil {
			return err
		}
		ctx, cancel := a.limited(c.Context(), 0) // anew: a person may have thought for a while
		defer cancel()
		a.ensure(&request.RequestId)
		response, err := conn.admin.PurgeQueue(ctx, request)
		if err != nil {
			return withRequest(request.RequestId, err)
		}
		return a.show(response, func(w io.Writer) { fmt.Fprintf(w, "%s purged\n", count(response.Purged, "job")) })
	})
	return c
}

func (a *app) queueDeleteCommand() *cobra.Command {
	var yes bool
	request := &belfryv1.DeleteQueueRequest{}
	c := &cobra.Command{
		Use:   "delete QUEUE",
		Short: "Remove a queue with its jobs, settings and remembered ids",
		Long: "Delete removes a queue with all its jobs, also reserved ones, its settings and remembered ids. It shows how many jobs\n" +
			"there are and asks; without a terminal it needs --yes.",
		Args:              arguments(1, 1, "QUEUE"),
		ValidArgsFunction: a.completeQueue,
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	requestIDFlag(c, &request.RequestId)
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, args []string) error {
		request.Queue = args[0]
		queue, err := conn.admin.GetQueue(ctx, &belfryv1.GetQueueRequest{Queue: request.Queue})
		if err != nil {
			return err
		}
		counts := queue.Queue.Counts
		all := counts.GetDelayed() + counts.GetReady() + counts.GetReserved() + counts.GetDead()
		if err := a.confirm(fmt.Sprintf("Deleting %s removes %s.", request.Queue, count(all, "job")), yes); err != nil {
			return err
		}
		ctx, cancel := a.limited(c.Context(), 0) // anew: a person may have thought for a while
		defer cancel()
		a.ensure(&request.RequestId)
		response, err := conn.admin.DeleteQueue(ctx, request)
		if err != nil {
			return withRequest(request.RequestId, err)
		}
		return a.show(response, func(w io.Writer) {
			fmt.Fprintf(w, "deleted %s with %s\n", request.Queue, count(response.Purged, "job"))
		})
	})
	return c
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

// confirm says what is about to happen and asks for a yes, unless it was given on the command line. Where nobody can
// answer it refuses.
func (a *app) confirm(what string, yes bool) error {
	fmt.Fprintln(a.err, what)
	if yes {
		return nil
	}
	if !a.inTerminal {
		return usagef("nothing was removed: this is not a terminal, so say --yes if it is meant")
	}
	fmt.Fprint(a.err, "Go on? Type yes: ")
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if strings.TrimSpace(answer) != "yes" {
		return &codedError{codeError, "nothing was removed"}
	}
	return nil
}
