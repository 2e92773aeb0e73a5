package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a *app) cancelCommand() *cobra.Command {
	request := &belfryv1.CancelRequest{}
	c := &cobra.Command{
		Use:               "cancel QUEUE ID",
		Short:             "Remove a job that is not done",
		Long:              "Cancel removes a job that is delayed, ready or dead; with --force also one that a consumer holds.",
		Example:           "  belfry cancel orders order-42",
		Args:              arguments(2, 2, "QUEUE", "ID"),
		ValidArgsFunction: a.completeQueue,
	}
	c.Flags().BoolVar(&request.Force, "force", false, "also if it is reserved; its holder's lease is stale from then on")
	requestIDFlag(c, &request.RequestId)
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, args []string) error {
		request.Queue, request.Id = args[0], args[1]
		a.ensure(&request.RequestId)
		response, err := conn.queues.Cancel(ctx, request)
		if err != nil {
			return withRequest(request.RequestId, err)
		}
		return a.show(response, func(w io.Writer) {
			fmt.Fprintf(w, "cancelled %s of %s; it was %s\n", request.Id, request.Queue, word(response.State))
		})
	})
	return c
}

func (a *app) rescheduleCommand() *cobra.Command {
	var delay optionalDuration
	var at moment
	request := &belfryv1.RescheduleRequest{}
	c := &cobra.Command{
		Use:               "reschedule QUEUE ID (--delay DURATION | --at TIME)",
		Short:             "Give a delayed or ready job another due time",
		Example:           "  belfry reschedule orders order-42 --delay 2h",
		Args:              arguments(2, 2, "QUEUE", "ID"),
		ValidArgsFunction: a.completeQueue,
	}
	c.Flags().VarP(&delay, "delay", "d", "when it is due, from now")
	c.Flags().Var(&at, "at", "when it is due, as a time (RFC 3339)")
	requestIDFlag(c, &request.RequestId)
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, args []string) error {
		request.Queue, request.Id = args[0], args[1]
		switch {
		case delay.proto != nil && at.proto != nil:
			return errWhenTwice()
		case delay.proto != nil:
			request.When = &belfryv1.RescheduleRequest_Delay{Delay: delay.proto}
		case at.proto != nil:
			request.When = &belfryv1.RescheduleRequest_DueAt{DueAt: at.proto}
		default:
			return usagef("missing --delay or --at")
		}
		a.ensure(&request.RequestId)
		response, err := conn.queues.Reschedule(ctx, request)
		if err != nil {
			return withRequest(request.RequestId, err)
		}
		return a.show(response, func(w io.Writer) { renderReturned(w, response.State, response.DueAt, a.now()) })
	})
	return c
}

func errWhenTwice() error { return usagef("--delay and --at exclude each other") }

func (a *app) getCommand() *cobra.Command {
	var bodyOnly bool
	c := &cobra.Command{
		Use:               "get QUEUE ID",
		Short:             "Show a job with its body, or what became of it",
		Long:              "Get shows a job with its body. Of a job that has ended it shows how and when, for the queue's dedup window, if the producer chose the id.",
		Example:           "  belfry get orders order-42",
		Args:              arguments(2, 2, "QUEUE", "ID"),
		ValidArgsFunction: a.completeQueue,
	}
	c.Flags().BoolVar(&bodyOnly, "body", false, "print only the body, byte for byte")
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, args []string) error {
		response, err := conn.queues.Get(ctx, &belfryv1.GetRequest{Queue: args[0], Id: args[1], Ended: !bodyOnly})
		if err != nil {
			return err
		}
		if bodyOnly {
			return a.showBodies([]*belfryv1.Job{response.Job})
		}
		return a.show(response, func(w io.Writer) { renderJob(w, response.Job, a.now()) })
	})
	return c
}

func (a *app) listCommand() *cobra.Command {
	var state string
	var after, before moment
	var most int
	c := &cobra.Command{
		Use:               "list QUEUE",
		Short:             "List jobs of a queue in due order",
		Long:              "List shows jobs of one state in due order, without their bodies.",
		Example:           "  belfry list orders --state dead --max 20",
		Args:              arguments(1, 1, "QUEUE"),
		ValidArgsFunction: a.completeQueue,
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.VarP(newChoice(&state, "delayed", "ready", "reserved", "dead"), "state", "s", "delayed, ready, reserved or dead")
	flags.Var(&after, "due-after", "only jobs due at or after this time (RFC 3339)")
	flags.Var(&before, "due-before", "only jobs due before this time (RFC 3339)")
	flags.IntVarP(&most, "max", "n", 100, "how many jobs at most; 0 for all")
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, args []string) error {
		request := &belfryv1.ListRequest{Queue: args[0], State: stateOf(state), DueAfter: after.proto, DueBefore: before.proto}
		response, err := listJobs(ctx, conn, request, most)
		if err == nil && len(response.Jobs) == 0 {
			err = mustExist(ctx, conn, args[0])
		}
		if err != nil {
			return err
		}
		return a.show(response, func(w io.Writer) {
			if len(response.Jobs) == 0 {
				fmt.Fprintf(w, "no %s jobs; --state lists the others\n", state)
				return
			}
			renderJobs(w, response, a.now())
		})
	})
	return c
}

// listJobs reads pages until there are enough jobs. The answer is as of one page: the last page's token, all pages' jobs.
func listJobs(ctx context.Context, conn *connection, request *belfryv1.ListRequest, most int) (*belfryv1.ListResponse, error) {
	const pageMax = 1000
	all := &belfryv1.ListResponse{}
	for {
		request.PageSize = pageMax
		if most > 0 {
			request.PageSize = int32(min(pageMax, most-len(all.Jobs))) //nolint:gosec // at most 1,000
		}
		page, err := conn.queues.List(ctx, request)
		if err != nil {
			return nil, err
		}
		all.Jobs = append(all.Jobs, page.Jobs...)
		all.NextPageToken, all.Witnesses = page.NextPageToken, page.Witnesses
		if page.NextPageToken == "" || most > 0 && len(all.Jobs) >= most {
			return all, nil
		}
		request.PageToken = page.NextPageToken
	}
}

// stateOf returns the state that a word names.
func stateOf(word string) belfryv1.JobState {
	return belfryv1.JobState(belfryv1.JobState_value["JOB_STATE_"+strings.ToUpper(word)])
}

func (a *app) redriveCommand() *cobra.Command {
	request := &belfryv1.RedriveRequest{}
	c := &cobra.Command{
		Use:               "redrive QUEUE (ID... | --max N)",
		Short:             "Make dead jobs ready again",
		Long:              "Redrive makes dead jobs ready again: those named, or up to --max, those with the earliest due times first. Their attempts start anew.",
		Example:           "  belfry redrive orders order-42\n  belfry redrive orders --max 1000",
		Args:              arguments(1, unlimited, "QUEUE"),
		ValidArgsFunction: a.completeQueue,
	}
	c.Flags().Uint32VarP(&request.Max, "max", "n", 0, "how many, 1 to 100000")
	requestIDFlag(c, &request.RequestId)
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, args []string) error {
		request.Queue, request.Ids = args[0], args[1:]
		if (len(request.Ids) > 0) == (request.Max > 0) {
			return usagef("name the jobs or give --max, one of the two")
		}
		a.ensure(&request.RequestId)
		response, err := conn.queues.Redrive(ctx, request)
		if err != nil {
			return withRequest(request.RequestId, err)
		}
		return a.show(response, func(w io.Writer) { fmt.Fprintf(w, "%s made ready\n", count(response.Moved, "job")) })
	})
	return c
}
