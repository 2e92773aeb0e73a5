package schedules

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a verbs) listCommand() *cobra.Command {
	var most int
	request := &belfryv1.ListSchedulesRequest{}
	c := &cobra.Command{
		Use:               "list QUEUE [PREFIX]",
		Aliases:           []string{"ls"},
		Short:             "List the schedules of a queue",
		Example:           "  belfry schedule list reports",
		Args:              cli.Arguments(1, 2, "QUEUE"),
		ValidArgsFunction: a.CompleteQueue,
	}
	c.Flags().VarP(cli.Count(&most, 0, 100), flag.Max, "n", "how many schedules at most; 0 for all")
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		request.Queue = args[0]
		if len(args) == 2 {
			request.Prefix = args[1]
		}
		response, err := list(ctx, conn, request, most)
		if err == nil && len(response.Schedules) == 0 {
			err = queueThere(ctx, conn, request.Queue)
		}
		if err != nil {
			return err
		}
		return a.Show(response, func(w io.Writer) { renderList(w, response, a.Now()) })
	})
	return a.ClientFlags(c)
}

// queueThere returns an error if there is no queue of a name. It returns none if it cannot be found out.
func queueThere(ctx context.Context, conn *cli.Connection, queue string) error {
	_, err := conn.Admin.GetQueue(ctx, &belfryv1.GetQueueRequest{Queue: queue})
	if cli.WireCode(err) != cli.CodeNotFound {
		return nil
	}
	return cli.WithNearestQueue(ctx, conn, queue, err)
}

// atOnce is how many schedules a page has.
const atOnce = 1000

// list reads pages until it has so many schedules, 0 for all, and joins them.
func list(ctx context.Context, conn *cli.Connection, request *belfryv1.ListSchedulesRequest,
	most int) (*belfryv1.ListSchedulesResponse, error) {
	all := &belfryv1.ListSchedulesResponse{}
	for {
		request.PageSize = atOnce
		if most > 0 {
			request.PageSize = int32(min(atOnce, most-len(all.Schedules))) //nolint:gosec // at most atOnce
		}
		page, err := conn.Schedules.ListSchedules(ctx, request)
		if err != nil {
			return nil, err
		}
		page.Schedules = append(all.Schedules, page.Schedules...)
		all = page
		if request.PageToken = page.NextPageToken; request.PageToken == "" || most > 0 && len(all.Schedules) >= most {
			return all, nil
		}
	}
}

func (a verbs) showCommand() *cobra.Command {
	c := &cobra.Command{
		Use:               "show QUEUE NAME",
		Short:             "Show a schedule: rule, policy, job, counts, last firings",
		Example:           "  belfry schedule show reports nightly",
		Args:              cli.Arguments(2, 2, "QUEUE", "NAME"),
		ValidArgsFunction: a.CompleteQueue,
	}
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		response, err := conn.Schedules.GetSchedule(ctx, &belfryv1.GetScheduleRequest{Queue: args[0], Name: args[1]})
		if err != nil {
			return cli.WithNearestQueue(ctx, conn, args[0], err)
		}
		return a.Show(response, func(w io.Writer) { renderSchedule(w, response.Schedule, a.Now()) })
	})
	return a.ClientFlags(c)
}
