package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a *app) queueCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "queue",
		Aliases: []string{"queues"},
		Short:   "List, show, configure, pause, purge and delete queues",
		Args:    subcommandOnly,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.clients(a.queueListCommand(), a.queueShowCommand(), a.queueCreateCommand(), a.queueSetCommand(),
		a.queuePauseCommand(), a.queueResumeCommand(), a.queuePurgeCommand(), a.queueDeleteCommand())...)
	return c
}

func (a *app) queueListCommand() *cobra.Command {
	request := &belfryv1.ListQueuesRequest{}
	due := false
	c := &cobra.Command{
		Use:     "list [PREFIX]",
		Aliases: []string{"ls"},
		Short:   "List the queues",
		Example: "  belfry queue list shop/",
		Args:    arguments(0, 1),
	}
	c.Flags().BoolVar(&due, "due", false, "draw when the jobs of all of them fall due")
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, args []string) error {
		if len(args) == 1 {
			request.Prefix = args[0]
		}
		response, err := listQueues(ctx, conn, request)
		if err != nil {
			return err
		}
		if len(args) == 1 && len(response.Queues) == 0 {
			fmt.Fprintf(a.err, "belfry: warning: no queue begins with %q%s\n", args[0], nearestQueue(ctx, conn, args[0]))
		}
		return a.show(response, func(w io.Writer) {
			renderQueues(w, response.Queues)
			if due {
				fmt.Fprintln(w)
				fields(w, "due", dueSums(response.Due))
				renderDue(w, response.Due, a.canvas(), a.now().Location())
			}
		})
	})
	return c
}

// listQueues reads all pages.
func listQueues(ctx context.Context, conn *connection, request *belfryv1.ListQueuesRequest) (*belfryv1.ListQueuesResponse, error) {
	return readQueues(ctx, conn, request, math.MaxInt)
}

// readQueues reads so many pages at most. If there are more, the answer has the token of the next.
func readQueues(ctx context.Context, conn *connection, request *belfryv1.ListQueuesRequest, pages int) (*belfryv1.ListQueuesResponse, error) {
	all := &belfryv1.ListQueuesResponse{Due: &belfryv1.DueHistogram{}}
	request.PageSize = 1000
	for range pages {
		page, err := conn.admin.ListQueues(ctx, request)
		if err != nil {
			return nil, err
		}
		all.Queues = append(all.Queues, page.Queues...)
		if page.Due != nil {
			addDue(all.Due, page.Due)
		}
		if all.NextPageToken = page.NextPageToken; all.NextPageToken == "" {
			break
		}
		request.PageToken = all.NextPageToken
	}
	return all, nil
}

func (a *app) queueShowCommand() *cobra.Command {
	c := &cobra.Command{
		Use:               "show QUEUE",
		Short:             "Show a queue: counts, lateness, when its jobs fall due, settings",
		Example:           "  belfry queue show orders",
		Args:              arguments(1, 1, "QUEUE"),
		ValidArgsFunction: a.completeQueue,
	}
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, args []string) error {
		response, err := conn.admin.GetQueue(ctx, &belfryv1.GetQueueRequest{Queue: args[0]})
		if err != nil {
			return withNearestQueue(ctx, conn, args[0], err)
		}
		return a.show(response, func(w io.Writer) { renderQueue(w, response.Queue, a.canvas(), a.now()) })
	})
	return c
}

func (a *app) queueCreateCommand() *cobra.Command {
	request := &belfryv1.CreateQueueRequest{}
	settings := &settingsFlags{}
	c := &cobra.Command{
		Use:     "create QUEUE",
		Short:   "Make a queue ahead of its first put, also with several partitions",
		Example: "  belfry queue create orders --partitions 3 --ttr 60s",
		Args:    arguments(1, 1, "QUEUE"),
	}
	c.Flags().SortFlags = false
	c.Flags().Uint32Var(&request.Partitions, "partitions", 1, "1 to the number of shards; never changes; order holds within a partition only")
	settings.add(c.Flags())
	requestIDFlag(c, &request.RequestId)
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, args []string) error {
		request.Queue, request.Settings = args[0], settings.build(c.Flags())
		a.ensure(&request.RequestId)
		response, err := conn.admin.CreateQueue(ctx, request)
		if err != nil {
			return withRequest(request.RequestId, err)
		}
		return a.show(response, func(w io.Writer) {
			renderCreated(w, response)
			renderSettings(w, response.Settings, a.now())
		})
	})
	return c
}

func (a *app) queueSetCommand() *cobra.Command {
	settings := &settingsFlags{}
	var requestID string
	c := &cobra.Command{
		Use:               "set QUEUE",
		Short:             "Change settings of a queue; what is not given stays",
		Example:           "  belfry queue set orders --max-attempts 5 --retry-delays 0s,10s,2m",
		Args:              arguments(1, 1, "QUEUE"),
		ValidArgsFunction: a.completeQueue,
	}
	c.Flags().SortFlags = false
	settings.add(c.Flags())
	requestIDFlag(c, &requestID)
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, args []string) error {
		if !settings.given(c.Flags()) {
			return usagef("no setting given")
		}
		change, err := settings.change(c.Flags(), func() (*belfryv1.QueueSettings, error) {
			response, err := conn.admin.GetQueue(ctx, &belfryv1.GetQueueRequest{Queue: args[0]})
			return response.GetQueue().GetSettings(), err
		})
		if err != nil {
			return err
		}
		return a.update(ctx, conn, &belfryv1.UpdateQueueRequest{Queue: args[0], Settings: change, RequestId: requestID})
	})
	return c
}

func (a *app) queuePauseCommand() *cobra.Command {
	var length optionalDuration
	var until moment
	var requestID string
	c := &cobra.Command{
		Use:               "pause QUEUE",
		Short:             "Stop handing out jobs; puts go on",
		Example:           "  belfry queue pause orders --for 10m",
		Args:              arguments(1, 1, "QUEUE"),
		ValidArgsFunction: a.completeQueue,
	}
	c.Flags().Var(&length, "for", "resume by itself after this time")
	c.Flags().Var(&until, "until", "resume by itself at this time (RFC 3339)")
	requestIDFlag(c, &requestID)
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, args []string) error {
		if length.proto != nil && until.proto != nil {
			return usagef("--for and --until exclude each other")
		}
		paused := true
		settings := &belfryv1.QueueSettings{Paused: &paused, PausedUntil: until.proto}
		if length.proto != nil {
			settings.PausedUntil = momentAfter(a.now(), length.proto.AsDuration())
		}
		return a.update(ctx, conn, &belfryv1.UpdateQueueRequest{Queue: args[0], Settings: settings, RequestId: requestID})
	})
	return c
}

func (a *app) queueResumeCommand() *cobra.Command {
	var requestID string
	c := &cobra.Command{
		Use:               "resume QUEUE",
		Short:             "Hand out jobs again",
		Example:           "  belfry queue resume orders",
		Args:              arguments(1, 1, "QUEUE"),
		ValidArgsFunction: a.completeQueue,
	}
	requestIDFlag(c, &requestID)
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, args []string) error {
		paused := false
		return a.update(ctx, conn, &belfryv1.UpdateQueueRequest{
			Queue: args[0], Settings: &belfryv1.QueueSettings{Paused: &paused}, RequestId: requestID,
		})
	})
	return c
}

// update changes settings and shows all that are in force then.
func (a *app) update(ctx context.Context, conn *connection, request *belfryv1.UpdateQueueRequest) error {
	a.ensure(&request.RequestId)
	response, err := conn.admin.UpdateQueue(ctx, request)
	if err != nil {
		return withRequest(request.RequestId, err)
	}
	return a.show(response, func(w io.Writer) {
		renderUpdated(w, request.Queue, response)
		renderSettings(w, response.Settings, a.now())
	})
}

// completeQueue offers the names of the queues to the shell.
func (a *app) completeQueue(c *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.complete(c, args, func(ctx context.Context, conn *connection) (names []cobra.Completion, err error) {
		page, err := conn.admin.ListQueues(ctx, &belfryv1.ListQueuesRequest{Prefix: prefix})
		if err != nil {
			return nil, err
		}
		for _, queue := range page.Queues {
			names = append(names, queue.Name)
		}
		return names, nil
	})
}

// complete offers what the server answers to the shell, for a first argument. A server that is slow or gone offers nothing.
func (a *app) complete(c *cobra.Command, args []string, list func(context.Context, *connection) ([]cobra.Completion, error)) ([]cobra.Completion, cobra.ShellCompDirective) {
	const timeout = 2 * time.Second
	none := cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		return nil, none
	}
	if err := resolve(c, a.lookupEnv); err != nil {
		return nil, none
	}
	conn, err := a.connect()
	if err != nil {
		return nil, none
	}
	ctx, cancel := context.WithTimeout(c.Context(), timeout)
	defer cancel()
	names, err := list(ctx, conn)
	if err != nil {
		return nil, none
	}
	return names, none
}
