package schedules

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a verbs) pauseCommand() *cobra.Command {
	return a.onMany(&cobra.Command{
		Use:   "pause QUEUE [NAME...]",
		Short: "Keep schedules from firing until they are resumed",
		Long: `
Pause keeps schedules from firing until they are resumed. If some of the NAMEs do not exist, it pauses
the others, names those, and ends with exit code 3.`,
		Example: `  belfry schedule pause reports nightly --note 'the warehouse moves'
  belfry schedule pause sync --prefix shop-`,
	}, "paused", func(ctx context.Context, conn *cli.Connection, f *manyFlags) (changed, error) {
		return conn.Schedules.PauseSchedules(ctx, &belfryv1.PauseSchedulesRequest{
			Queue: f.queue, Names: f.names, Prefix: f.prefix, All: f.all, Note: f.note, RequestId: f.requestID,
		})
	})
}

func (a verbs) resumeCommand() *cobra.Command {
	return a.onMany(&cobra.Command{
		Use:   "resume QUEUE [NAME...]",
		Short: "End the pause of schedules",
		Long: `
Resume ends the pause of schedules. What was due meanwhile is caught up with as the policy of each
says. If some of the NAMEs do not exist, it resumes the others, names those, and ends with exit code 3.`,
		Example: "  belfry schedule resume reports nightly",
	}, "resumed", func(ctx context.Context, conn *cli.Connection, f *manyFlags) (changed, error) {
		return conn.Schedules.ResumeSchedules(ctx, &belfryv1.ResumeSchedulesRequest{
			Queue: f.queue, Names: f.names, Prefix: f.prefix, All: f.all, Note: f.note, RequestId: f.requestID,
		})
	})
}

// manyFlags select schedules of a queue.
type manyFlags struct {
	queue, prefix, note, requestID string
	names                          []string
	all                            bool
}

// changed is an answer that says how many schedules changed, and which are not there.
type changed interface {
	proto.Message
	GetChanged() uint32
	GetMissing() []string
}

// onMany completes a command that acts on several schedules; done says what they are then.
func (a verbs) onMany(c *cobra.Command, done string,
	call func(context.Context, *cli.Connection, *manyFlags) (changed, error)) *cobra.Command {
	f := &manyFlags{}
	c.Args, c.ValidArgsFunction = cli.Arguments(1, cli.Unlimited, "QUEUE"), a.CompleteQueue
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.prefix, flag.Prefix, "", "all whose names begin with this")
	flags.BoolVar(&f.all, flag.All, false, "all schedules of the queue")
	flags.StringVar(&f.note, flag.Note, "", "why, for people")
	cli.RequestIDFlag(c, &f.requestID)
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		f.queue, f.names = args[0], args[1:]
		given := 0
		for _, one := range []bool{len(f.names) > 0, f.prefix != "", f.all} {
			if one {
				given++
			}
		}
		if given != 1 {
			return cli.Usagef("which schedules: want one of NAME, --prefix and --all")
		}
		a.Ensure(&f.requestID)
		response, err := call(ctx, conn, f)
		if err != nil {
			return cli.WithRequest(f.requestID, cli.WithNearestQueue(ctx, conn, f.queue, err))
		}
		if err := a.Show(response, func(w io.Writer) {
			fmt.Fprintf(w, "%s %s\n", render.Count(response.GetChanged(), "schedule"), done)
		}); err != nil {
			return err
		}
		if names := response.GetMissing(); len(names) > 0 {
			return cli.ExitWith(cli.CodeNotFound,
				fmt.Sprintf("%s has no schedule of these names: %s", f.queue, strings.Join(names, ", ")))
		}
		return nil
	})
	return a.ClientFlags(c)
}

func (a verbs) triggerCommand() *cobra.Command {
	var at cli.MomentValue
	c := &cobra.Command{
		Use:   "trigger QUEUE NAME",
		Short: "Put one job of a schedule at once, also if it is paused",
		Long: `
Trigger puts one job of a schedule at once, whatever its policy says, and also if it is paused. A job
of the same time that is there, or ended within the dedup window, is not put again. So a repeat is
safe with --at only: without it the time is the present of the server.`,
		Example:           "  belfry schedule trigger reports nightly",
		Args:              cli.Arguments(2, 2, "QUEUE", "NAME"),
		ValidArgsFunction: a.CompleteQueue,
	}
	c.Flags().Var(&at, flag.At,
		"the nominal time of the job, at most a minute from now (RFC 3339); not given, the present of the server")
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		request := &belfryv1.TriggerScheduleRequest{Queue: args[0], Name: args[1], At: at.Proto}
		if request.At == nil { // the present of the server, which is another one in a repeat
			ctx = cli.Once(ctx)
		}
		response, err := conn.Schedules.TriggerSchedule(ctx, request)
		if err != nil {
			return cli.WithNearestQueue(ctx, conn, request.Queue, err)
		}
		return a.Show(response, func(w io.Writer) {
			if response.Created {
				fmt.Fprintf(w, "put %s in %s\n", response.Id, request.Queue)
			} else {
				fmt.Fprintf(w, "was put before: %s in %s\n", response.Id, request.Queue)
			}
		})
	})
	return a.ClientFlags(c)
}

func (a verbs) backfillCommand() *cobra.Command {
	var from, to cli.MomentValue
	request := &belfryv1.BackfillScheduleRequest{}
	c := &cobra.Command{
		Use:   "backfill QUEUE NAME --from TIME --to TIME",
		Short: "Put the jobs of the nominal times in a span of the past",
		Long: `
Backfill puts the jobs of the nominal times from --from until before --to, whatever the policy of the
schedule says, and also if it is paused. They are due at once. A job that is there, or ended within
the dedup window, is not put again, so a repeat is safe.`,
		Example:           "  belfry schedule backfill reports nightly --from 2027-03-01T00:00:00Z --to 2027-03-08T00:00:00Z",
		Args:              cli.Arguments(2, 2, "QUEUE", "NAME"),
		ValidArgsFunction: a.CompleteQueue,
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.Var(&from, flag.From, "the first nominal time is at this time or later (RFC 3339)")
	flags.Var(&to, flag.To, "the last nominal time is before this one (RFC 3339)")
	flags.VarP(cli.Count(&request.Max, 1, 1000), flag.Max, "n", "how many nominal times at most, 1 to 10000")
	cli.RequestIDFlag(c, &request.RequestId)
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		if from.Proto == nil || to.Proto == nil {
			return cli.Usagef("--from and --to are required")
		}
		request.Queue, request.Name, request.From, request.To = args[0], args[1], from.Proto, to.Proto
		a.Ensure(&request.RequestId)
		response, err := conn.Schedules.BackfillSchedule(ctx, request)
		if err != nil {
			return cli.WithRequest(request.RequestId, cli.WithNearestQueue(ctx, conn, request.Queue, err))
		}
		return a.Show(response, func(w io.Writer) { renderBackfill(w, request.Queue, response) })
	})
	return a.ClientFlags(c)
}

func (a verbs) deleteCommand() *cobra.Command {
	var yes bool
	request := &belfryv1.DeleteScheduleRequest{}
	c := &cobra.Command{
		Use:   "delete QUEUE NAME",
		Short: "Remove a schedule",
		Long: `
Delete removes a schedule. Jobs that it has put stay; with --cancel-waiting its last jobs, at most 8,
are cancelled if they are delayed or ready. It asks; without a terminal it needs --yes.`,
		Example:           "  belfry schedule delete reports nightly",
		Args:              cli.Arguments(2, 2, "QUEUE", "NAME"),
		ValidArgsFunction: a.CompleteQueue,
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.BoolVar(&request.CancelWaiting, flag.CancelWaiting, false, "also cancel its last jobs that wait, at most 8")
	flags.Var(cli.Count(&request.IfVersion, 1, 0), flag.IfVersion, "only if the schedule has this version")
	flags.BoolVarP(&yes, flag.Yes, "y", false, "do not ask")
	cli.RequestIDFlag(c, &request.RequestId)
	c.RunE = func(c *cobra.Command, args []string) error {
		request.Queue, request.Name = args[0], args[1]
		a.Ensure(&request.RequestId)
		conn, err := a.Connect()
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Err, "This removes the schedule %s of %s.\n", request.Name, request.Queue)
		if !yes {
			if err := a.Confirm("nothing was removed"); err != nil {
				return err
			}
		}
		return a.Within(c.Context(), func(ctx context.Context) error {
			response, err := conn.Schedules.DeleteSchedule(ctx, request)
			if err != nil {
				return cli.WithRequest(request.RequestId, cli.WithNearestQueue(ctx, conn, request.Queue, err))
			}
			return a.Show(response, func(w io.Writer) {
				fmt.Fprintf(w, "deleted %s of %s", request.Name, request.Queue)
				if request.CancelWaiting {
					fmt.Fprintf(w, ", %s cancelled", render.Count(response.Cancelled, "job"))
				}
				fmt.Fprintln(w)
			})
		})
	}
	return a.ClientFlags(c)
}
