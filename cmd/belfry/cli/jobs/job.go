// Package jobs has the commands that put, take, end and look at jobs.
package jobs

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a verbs) cancelCommand() *cobra.Command {
	var m matching
	request := &belfryv1.CancelRequest{}
	c := &cobra.Command{
		Use:   "cancel QUEUE (ID | FILTER | --all)",
		Short: "Remove jobs that are not done",
		Long: `
Cancel removes a job that is delayed, ready or dead; with --force also one that a consumer holds.
` + matchingText + `
Only jobs in the state that --state names are removed.`,
		Example: "  belfry cancel orders order-42\n" +
			"  belfry cancel orders --state dead --id-prefix test- --dry-run",
		Args:              cli.Arguments(1, 2, "QUEUE", "ID"),
		ValidArgsFunction: a.CompleteQueue,
	}
	c.Flags().BoolVar(&request.Force, flag.Force, false,
		"also if it is reserved; its holder's lease is stale from then on")
	keyFlag(c, &request.Key)
	cli.RequestIDFlag(c, &request.RequestId)
	m.addState(c.Flags(), "delayed", "ready", "reserved", "dead")
	m.add(c, "all jobs in the state")
	one := func(ctx context.Context, conn *cli.Connection, args []string) error {
		request.Queue, request.Id = args[0], args[1]
		a.Ensure(&request.RequestId)
		response, err := conn.Queues.Cancel(ctx, request)
		if err != nil {
			return cli.WithRequest(request.RequestId, err)
		}
		return a.Show(response, func(w io.Writer) {
			fmt.Fprintf(w, "cancelled %s of %s; it was %s\n", request.Id, request.Queue, render.Word(response.State))
		})
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		switch selected, err := m.selected(c, args[1:]); {
		case err != nil:
			return err
		case !selected:
			return m.one(a, c, args, one)
		case m.state == "reserved" && !request.Force:
			return cli.Usagef("--state reserved needs --force: the holders' leases are stale from then on")
		}
		task := m.task(args[0], belfryv1.TaskAct_TASK_ACT_CANCEL)
		task.Force = request.Force
		return a.actOnMatches(c.Context(), &m, bulkAct{request: task, will: "This cancels %s."})
	}
	return a.ClientFlags(c)
}

// keyFlag adds the flag with the key of the job that an argument names.
func keyFlag(c *cobra.Command, key *string) {
	c.Flags().StringVar(key, flag.Key, "",
		"the job's key, if it has one; in a queue with several partitions it is found faster with it")
}

func (a verbs) rescheduleCommand() *cobra.Command {
	var delay cli.OptionalDuration
	var at cli.MomentValue
	var m matching
	request := &belfryv1.RescheduleRequest{}
	c := &cobra.Command{
		Use:   "reschedule QUEUE (ID | FILTER | --all) (--delay DURATION | --at TIME)",
		Short: "Give delayed or ready jobs another due time",
		Long: `
Reschedule gives a delayed or ready job another due time.
` + matchingText + `
Only jobs in the state that --state names get the due time. A delay counts from the start of the
task.`,
		Example: "  belfry reschedule orders order-42 --delay 2h\n" +
			"  belfry reschedule orders --due-before 2030-02-01T00:00:00Z --at 2030-02-01T09:00:00Z",
		Args:              cli.Arguments(1, 2, "QUEUE", "ID"),
		ValidArgsFunction: a.CompleteQueue,
	}
	c.Flags().VarP(&delay, flag.Delay, "d", "when it is due, from now")
	c.Flags().Var(&at, flag.At, "when it is due, as a time (RFC 3339)")
	keyFlag(c, &request.Key)
	cli.RequestIDFlag(c, &request.RequestId)
	m.addState(c.Flags(), "delayed", "ready")
	m.add(c, "all jobs in the state")
	one := func(ctx context.Context, conn *cli.Connection, args []string) error {
		request.Queue, request.Id = args[0], args[1]
		a.Ensure(&request.RequestId)
		response, err := conn.Queues.Reschedule(ctx, request)
		if err != nil {
			return cli.WithRequest(request.RequestId, err)
		}
		return a.Show(response, func(w io.Writer) { renderReturned(w, response.State, response.DueAt, a.Now()) })
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		selected, err := m.selected(c, args[1:])
		task := m.task(args[0], belfryv1.TaskAct_TASK_ACT_RESCHEDULE)
		switch {
		case err != nil:
			return err
		case delay.Proto != nil && at.Proto != nil:
			return errWhenTwice()
		case delay.Proto != nil:
			request.When = &belfryv1.RescheduleRequest_Delay{Delay: delay.Proto}
			task.When = &belfryv1.StartTaskRequest_Delay{Delay: delay.Proto}
		case at.Proto != nil:
			request.When = &belfryv1.RescheduleRequest_DueAt{DueAt: at.Proto}
			task.When = &belfryv1.StartTaskRequest_DueAt{DueAt: at.Proto}
		default:
			return cli.Usagef("missing --delay or --at")
		}
		if !selected {
			return m.one(a, c, args, one)
		}
		return a.actOnMatches(c.Context(), &m, bulkAct{request: task, will: "This gives " + dueText(task) + " to %s."})
	}
	return a.ClientFlags(c)
}

// dueText says which due time a task gives to jobs.
func dueText(task *belfryv1.StartTaskRequest) string {
	if task.GetDueAt() != nil {
		return "the due time " + task.GetDueAt().AsTime().Format(time.RFC3339Nano)
	}
	return "a due time " + render.Duration(task.GetDelay()) + " from now"
}

func errWhenTwice() error { return cli.Usagef("--delay and --at exclude each other") }

func (a verbs) getCommand() *cobra.Command {
	var bodyOnly bool
	var key string
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
	keyFlag(c, &key)
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		response, err := conn.Queues.Get(ctx, &belfryv1.GetRequest{
			Queue: args[0], Id: args[1], Ended: !bodyOnly, Key: key,
		})
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

func (a verbs) redriveCommand() *cobra.Command {
	m := matching{filter: filter{state: "dead"}}
	request := &belfryv1.RedriveRequest{}
	c := &cobra.Command{
		Use:   "redrive QUEUE (ID... | --max N | FILTER | --all)",
		Short: "Make dead jobs ready again",
		Long: `
Redrive makes dead jobs ready again: those named, or up to --max, those with the earliest due times
first. Their attempts start anew. If some of the named jobs are not dead or do not exist, it makes
the others ready and exits with code 3.
` + matchingText + `
With --max it is so many of them at most, in the order of a list.`,
		Example: "  belfry redrive orders order-42\n  belfry redrive orders --max 1000\n" +
			"  belfry redrive orders --match timeout --rate 500",
		Args:              cli.Arguments(1, cli.Unlimited, "QUEUE"),
		ValidArgsFunction: a.CompleteQueue,
	}
	c.Flags().Uint32VarP(&request.Max, flag.Max, "n", 0, "how many: without a filter or --all, 1 to 100000")
	cli.RequestIDFlag(c, &request.RequestId)
	m.add(c, "all dead jobs")
	named := a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
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
	c.RunE = func(c *cobra.Command, args []string) error {
		switch selected, err := m.selected(c, args[1:]); {
		case err != nil:
			return err
		case !selected:
			return named(c, args)
		case c.Flags().Changed(flag.Max) && request.Max == 0:
			return cli.Usagef("--max must be at least 1")
		}
		task := m.task(args[0], belfryv1.TaskAct_TASK_ACT_REDRIVE)
		task.Max = uint64(request.Max)
		return a.actOnMatches(c.Context(), &m, bulkAct{request: task, will: "This makes %s ready, with all their attempts."})
	}
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
