// Package jobs has the commands that put, take, end and look at jobs.
package jobs

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a verbs) cancelCommand() *cobra.Command {
	request := &belfryv1.CancelRequest{}
	c := &cobra.Command{
		Use:   "cancel QUEUE ID",
		Short: "Remove a job that is not done",
		Long: `
Cancel removes a job that is delayed, ready or dead; with --force also one that a consumer holds.`,
		Example:           "  belfry cancel orders order-42",
		Args:              cli.Arguments(2, 2, "QUEUE", "ID"),
		ValidArgsFunction: a.CompleteQueue,
	}
	c.Flags().BoolVar(&request.Force, flag.Force, false,
		"also if it is reserved; its holder's lease is stale from then on")
	cli.RequestIDFlag(c, &request.RequestId)
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		request.Queue, request.Id = args[0], args[1]
		a.Ensure(&request.RequestId)
		response, err := conn.Queues.Cancel(ctx, request)
		if err != nil {
			return cli.WithRequest(request.RequestId, err)
		}
		return a.Show(response, func(w io.Writer) {
			fmt.Fprintf(w, "cancelled %s of %s; it was %s\n", request.Id, request.Queue, render.Word(response.State))
		})
	})
	return a.ClientFlags(c)
}

func (a verbs) rescheduleCommand() *cobra.Command {
	var delay cli.OptionalDuration
	var at cli.MomentValue
	request := &belfryv1.RescheduleRequest{}
	c := &cobra.Command{
		Use:               "reschedule QUEUE ID (--delay DURATION | --at TIME)",
		Short:             "Give a delayed or ready job another due time",
		Example:           "  belfry reschedule orders order-42 --delay 2h",
		Args:              cli.Arguments(2, 2, "QUEUE", "ID"),
		ValidArgsFunction: a.CompleteQueue,
	}
	c.Flags().VarP(&delay, flag.Delay, "d", "when it is due, from now")
	c.Flags().Var(&at, flag.At, "when it is due, as a time (RFC 3339)")
	cli.RequestIDFlag(c, &request.RequestId)
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		request.Queue, request.Id = args[0], args[1]
		switch {
		case delay.Proto != nil && at.Proto != nil:
			return errWhenTwice()
		case delay.Proto != nil:
			request.When = &belfryv1.RescheduleRequest_Delay{Delay: delay.Proto}
		case at.Proto != nil:
			request.When = &belfryv1.RescheduleRequest_DueAt{DueAt: at.Proto}
		default:
			return cli.Usagef("missing --delay or --at")
		}
		a.Ensure(&request.RequestId)
		response, err := conn.Queues.Reschedule(ctx, request)
		if err != nil {
			return cli.WithRequest(request.RequestId, err)
		}
		return a.Show(response, func(w io.Writer) { renderReturned(w, response.State, response.DueAt, a.Now()) })
	})
	return a.ClientFlags(c)
}

func errWhenTwice() error { return cli.Usagef("--delay and --at exclude each other") }

func (a verbs) getCommand() *cobra.Command {
	var bodyOnly bool
	c := &cobra.Command{
		Use:   "get QUEUE ID",
		Short: "Show a job with its body, or what became of it",
		Long: `
Get shows a job with its body. Of a job that has ended it shows how and when, for the queue's dedup
window, if the producer chose the id.`,
		Example:           "  belfry get orders order-42",
		Args:              cli.Arguments(2, 2, "QUEUE", "ID"),
		ValidArgsFunction: a.CompleteQueue,
	}
	c.Flags().BoolVar(&bodyOnly, flag.Body, false, "print only the body, byte for byte")
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		response, err := conn.Queues.Get(ctx, &belfryv1.GetRequest{Queue: args[0], Id: args[1], Ended: !bodyOnly})
		if err != nil {
			return err
		}
		if bodyOnly {
			return a.showBodies([]*belfryv1.Job{response.Job})
		}
		return a.Show(response, func(w io.Writer) { renderJob(w, response.Job, a.Now()) })
	})
	return a.ClientFlags(c)
}

func (a verbs) listCommand() *cobra.Command {
	var state string
	var after, before cli.MomentValue
	var most int
	c := &cobra.Command{
		Use:               "list QUEUE",
		Short:             "List jobs of a queue in due order",
		Long:              "List shows jobs of one state in due order, without their bodies.",
		Example:           "  belfry list orders --state dead --max 20",
		Args:              cli.Arguments(1, 1, "QUEUE"),
		ValidArgsFunction: a.CompleteQueue,
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.VarP(cli.Choice(&state, "delayed", "ready", "reserved", "dead"), flag.State, "s",
		"delayed, ready, reserved or dead")
	flags.Var(&after, flag.DueAfter, "only jobs due at or after this time (RFC 3339)")
	flags.Var(&before, flag.DueBefore, "only jobs due before this time (RFC 3339)")
	flags.IntVarP(&most, flag.Max, "n", 100, "how many jobs at most; 0 for all")
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		request := &belfryv1.ListRequest{
			Queue: args[0], State: cli.StateOf(state), DueAfter: after.Proto, DueBefore: before.Proto,
		}
		response, err := listJobs(ctx, conn, request, most)
		if err == nil && len(response.Jobs) == 0 {
			err = cli.CheckQueue(ctx, conn, args[0])
		}
		if err != nil {
			return err
		}
		return a.Show(response, func(w io.Writer) {
			if len(response.Jobs) == 0 {
				fmt.Fprintf(w, "no %s jobs; --state lists the others\n", state)
				return
			}
			renderJobs(w, response, a.Now())
		})
	})
	return a.ClientFlags(c)
}

// listJobs reads pages until there are enough jobs. The answer is as of one page: the last page's
// token, all pages' jobs.
func listJobs(ctx context.Context, conn *cli.Connection, request *belfryv1.ListRequest,
	most int) (*belfryv1.ListResponse, error) {
	const pageMax = 1000
	all := &belfryv1.ListResponse{}
	for {
		request.PageSize = pageMax
		if most > 0 {
			request.PageSize = int32(min(pageMax, most-len(all.Jobs))) //nolint:gosec // at most 1,000
		}
		page, err := conn.Queues.List(ctx, request)
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

func (a verbs) redriveCommand() *cobra.Command {
	request := &belfryv1.RedriveRequest{}
	c := &cobra.Command{
		Use:   "redrive QUEUE (ID... | --max N)",
		Short: "Make dead jobs ready again",
		Long: `
Redrive makes dead jobs ready again: those named, or up to --max, those with the earliest due times
first. Their attempts start anew. If some of the named jobs are not dead or do not exist, it makes
the others ready and exits with code 3.`,
		Example:           "  belfry redrive orders order-42\n  belfry redrive orders --max 1000",
		Args:              cli.Arguments(1, cli.Unlimited, "QUEUE"),
		ValidArgsFunction: a.CompleteQueue,
	}
	c.Flags().Uint32VarP(&request.Max, flag.Max, "n", 0, "how many, 1 to 100000")
	cli.RequestIDFlag(c, &request.RequestId)
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		request.Queue, request.Ids = args[0], args[1:]
		switch limited := c.Flags().Changed(flag.Max); {
		case limited == (len(request.Ids) > 0):
			return cli.Usagef("name the jobs or give --max, one of the two")
		case limited && request.Max == 0:
			return cli.Usagef("--max must be 1 to 100000")
		}
		a.Ensure(&request.RequestId)
		response, err := conn.Queues.Redrive(ctx, request)
		if err != nil {
			return cli.WithRequest(request.RequestId, err)
		}
		err = a.Show(response, func(w io.Writer) { fmt.Fprintf(w, "%s made ready\n", render.Count(response.Moved, "job")) })
		if err != nil {
			return err
		}
		return notDead(request.Ids, response.Moved)
	})
	return a.ClientFlags(c)
}

// notDead returns an error if a redrive of jobs by their ids made fewer ready than were named.
func notDead(ids []string, moved uint32) error {
	named := slices.Clone(ids)
	slices.Sort(named)
	total := len(slices.Compact(named))
	if left := total - int(moved); left > 0 {
		return cli.ExitWith(cli.CodeNotFound,
			fmt.Sprintf("%d of %d named jobs are not dead, or do not exist", left, total))
	}
	return nil
}
