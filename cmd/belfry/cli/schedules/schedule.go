// Package schedules has the commands of schedules.
package schedules

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// verbs are the commands of schedules.
type verbs struct{ *cli.App }

// Commands returns `schedule`.
func Commands(a *cli.App) []*cobra.Command {
	v := verbs{a}
	return []*cobra.Command{cli.Parent(&cobra.Command{
		Use:     "schedule",
		Aliases: []string{"schedules"},
		Short:   "Put, list, pause, trigger, delete and apply schedules",
		Long: `
A schedule puts a job into its queue at each of its nominal times. The job has the id
cron:NAME@TIME and the headers belfry-schedule and belfry-nominal.`,
	}, v.putCommand(), v.listCommand(), v.showCommand(), v.pauseCommand(), v.resumeCommand(), v.triggerCommand(),
		v.backfillCommand(), v.previewCommand(), v.deleteCommand(), v.applyCommand(), v.exportCommand())}
}

func (a verbs) putCommand() *cobra.Command {
	request := &belfryv1.PutScheduleRequest{}
	spec, policy, job := &specFlags{}, &policyFlags{}, &jobFlags{}
	c := &cobra.Command{
		Use:   "put QUEUE NAME [BODY | -]",
		Short: "Create a schedule, or give it another content",
		Long: `
Put creates the schedule NAME of a queue, or gives it another content: what is not given has its
default. The content that it has already changes nothing. The argument BODY, or standard input for
"-", is the body of each job. It shows the next times at which the schedule fires.`,
		Example: `  belfry schedule put reports nightly 'all shops' --cron '30 2 * * *' --time-zone Europe/Berlin
  belfry schedule put sync shop-7 --every 15m --jitter 1m --overlap skip`,
		Args:              cli.Arguments(2, 3, "QUEUE", "NAME"),
		ValidArgsFunction: a.CompleteQueue,
	}
	flags := c.Flags()
	flags.SortFlags = false
	spec.add(flags)
	policy.add(flags)
	job.add(flags)
	flags.Var(cli.Count(&request.IfVersion, 1, 0), flag.IfVersion, "only if the schedule has this version")
	cli.RequestIDFlag(c, &request.RequestId)
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		request.Queue, request.Name, request.Policy = args[0], args[1], policy.build()
		if request.Spec, err = spec.build(flags); err != nil {
			return err
		}
		if request.Job, err = job.build(flags); err != nil {
			return err
		}
		body := []byte{}
		if len(args) == 3 { // before the call: a person who types it may take longer than an answer
			if body, err = a.Body(c.Context(), args[2]); err != nil {
				return err
			}
		}
		request.Job.Body = &belfryv1.PutRequest_Data{Data: body}
		a.Ensure(&request.RequestId)
		return a.Command(nil, func(ctx context.Context, conn *cli.Connection, _ []string) error {
			response, err := conn.Schedules.PutSchedule(ctx, request)
			if err != nil {
				return cli.WithRequest(request.RequestId, err)
			}
			a.warn(response.Warnings)
			return a.Show(response, func(w io.Writer) { renderPut(w, request, response, a.Now()) })
		})(c, args)
	}
	return a.ClientFlags(c)
}

func (a verbs) previewCommand() *cobra.Command {
	request := &belfryv1.PreviewScheduleRequest{}
	spec := &specFlags{}
	var after cli.MomentValue
	c := &cobra.Command{
		Use:   "preview [NAME]",
		Short: "Show when a schedule would fire; nothing is changed",
		Long: `
Preview shows when a schedule would fire. It changes nothing, and needs no schedule. The place of a
firing within --jitter depends on NAME.`,
		Example: "  belfry schedule preview --cron '30 2 * * *' --time-zone Europe/Berlin --after 2027-03-27T00:00:00Z",
		Args:    cli.Arguments(0, 1),
	}
	flags := c.Flags()
	flags.SortFlags = false
	spec.add(flags)
	flags.Var(&after, flag.After, "only times after this one (RFC 3339); not given, the present")
	flags.VarP(cli.Count(&request.Count, 1, 10), flag.Max, "n", "how many times, 1 to 100")
	cli.SetsField(flags, flag.Max, "count")
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) (err error) {
		if request.Spec, err = spec.build(flags); err != nil {
			return err
		}
		if request.After = after.Proto; len(args) == 1 {
			request.Name = args[0]
		}
		response, err := conn.Schedules.PreviewSchedule(ctx, request)
		if err != nil {
			return err
		}
		a.warn(response.Warnings)
		return a.Show(response, func(w io.Writer) { renderPreview(w, response, a.Now()) })
	})
	return a.ClientFlags(c)
}

// warn says what a rule may mean that was not intended.
func (a verbs) warn(warnings []string) {
	for _, warning := range warnings {
		fmt.Fprintf(a.Err, "belfry: warning: %s\n", warning)
	}
}
