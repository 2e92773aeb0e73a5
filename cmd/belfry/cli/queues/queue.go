// Package queues has the commands of queues and namespaces.
package queues

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// verbs are the commands of queues and namespaces.
type verbs struct{ *cli.App }

// Commands returns `queue`, `keys` and `namespace`.
func Commands(a *cli.App) []*cobra.Command {
	v := verbs{a}
	return []*cobra.Command{v.queueCommand(), v.keysCommand(), v.namespaceCommand()}
}

func (a verbs) queueCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:     "queue",
		Aliases: []string{"queues"},
		Short:   "List, show, configure, pause, purge and delete queues",
	}, a.queueListCommand(), a.queueShowCommand(), a.queueCreateCommand(), a.queueSetCommand(),
		a.queuePauseCommand(), a.queueResumeCommand(), a.queuePurgeCommand(), a.queueDeleteCommand())
}

func (a verbs) queueListCommand() *cobra.Command {
	request := &belfryv1.ListQueuesRequest{}
	due := false
	c := &cobra.Command{
		Use:     "list [PREFIX]",
		Aliases: []string{"ls"},
		Short:   "List the queues",
		Example: "  belfry queue list shop/",
		Args:    cli.Arguments(0, 1),
	}
	c.Flags().BoolVar(&due, flag.Due, false, "draw when the jobs of all of them fall due")
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		if len(args) == 1 {
			request.Prefix = args[0]
		}
		response, err := cli.ListQueues(ctx, conn, request)
		if err != nil {
			return err
		}
		if len(args) == 1 && len(response.Queues) == 0 {
			fmt.Fprintf(a.Err, "belfry: warning: no queue begins with %q%s\n", args[0], cli.NearestQueue(ctx, conn, args[0]))
		}
		return a.Show(response, func(w io.Writer) {
			renderQueues(w, response.Queues)
			if due {
				fmt.Fprintln(w)
				render.Fields(w, "due", render.DueSums(response.Due))
				render.Due(w, response.Due, a.Canvas(), a.Now().Location())
			}
		})
	})
	return a.ClientFlags(c)
}

func (a verbs) queueShowCommand() *cobra.Command {
	c := &cobra.Command{
		Use:               "show QUEUE",
		Short:             "Show a queue: counts, lateness, when its jobs fall due, settings",
		Example:           "  belfry queue show orders",
		Args:              cli.Arguments(1, 1, "QUEUE"),
		ValidArgsFunction: a.CompleteQueue,
	}
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		response, err := conn.Admin.GetQueue(ctx, &belfryv1.GetQueueRequest{Queue: args[0]})
		if err != nil {
			return cli.WithNearestQueue(ctx, conn, args[0], err)
		}
		return a.Show(response, func(w io.Writer) { renderQueue(w, response.Queue, a.Canvas(), a.Now()) })
	})
	return a.ClientFlags(c)
}

func (a verbs) queueCreateCommand() *cobra.Command {
	request := &belfryv1.CreateQueueRequest{}
	settings := &settingsFlags{}
	c := &cobra.Command{
		Use:     "create QUEUE",
		Short:   "Make a queue ahead of its first put, also with several partitions",
		Example: "  belfry queue create orders --partitions 3 --ttr 60s",
		Args:    cli.Arguments(1, 1, "QUEUE"),
	}
	c.Flags().SortFlags = false
	c.Flags().Uint32Var(&request.Partitions, flag.Partitions, 1,
		"1 to the number of shards; never changes; order holds within a partition only")
	settings.add(c.Flags())
	cli.RequestIDFlag(c, &request.RequestId)
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		request.Queue, request.Settings = args[0], settings.build(c.Flags())
		a.Ensure(&request.RequestId)
		response, err := conn.Admin.CreateQueue(ctx, request)
		if err != nil {
			return cli.WithRequest(request.RequestId, err)
		}
		return a.Show(response, func(w io.Writer) {
			renderCreated(w, response)
			renderSettings(w, response.Settings, a.Now())
		})
	})
	return a.ClientFlags(c)
}

func (a verbs) queueSetCommand() *cobra.Command {
	settings := &settingsFlags{}
	var requestID string
	c := &cobra.Command{
		Use:               "set QUEUE",
		Short:             "Change settings of a queue; what is not given stays",
		Example:           "  belfry queue set orders --max-attempts 5 --retry-delays 0s,10s,2m",
		Args:              cli.Arguments(1, 1, "QUEUE"),
		ValidArgsFunction: a.CompleteQueue,
	}
	c.Flags().SortFlags = false
	settings.add(c.Flags())
	cli.RequestIDFlag(c, &requestID)
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		if !settings.given(c.Flags()) {
			return cli.Usagef("no setting given")
		}
		change, err := settings.change(c.Flags(), func() (*belfryv1.QueueSettings, error) {
			response, err := conn.Admin.GetQueue(ctx, &belfryv1.GetQueueRequest{Queue: args[0]})
			return response.GetQueue().GetSettings(), err
		})
		if err != nil {
			return err
		}
		return a.update(ctx, conn, &belfryv1.UpdateQueueRequest{Queue: args[0], Settings: change, RequestId: requestID})
	})
	return a.ClientFlags(c)
}

func (a verbs) queuePauseCommand() *cobra.Command {
	var length cli.OptionalDuration
	var until cli.MomentValue
	var requestID string
	c := &cobra.Command{
		Use:               "pause QUEUE",
		Short:             "Stop handing out jobs; puts go on",
		Example:           "  belfry queue pause orders --for 10m",
		Args:              cli.Arguments(1, 1, "QUEUE"),
		ValidArgsFunction: a.CompleteQueue,
	}
	c.Flags().Var(&length, flag.For, "resume by itself after this time")
	c.Flags().Var(&until, flag.Until, "resume by itself at this time (RFC 3339)")
	cli.RequestIDFlag(c, &requestID)
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		if length.Proto != nil && until.Proto != nil {
			return cli.Usagef("--for and --until exclude each other")
		}
		paused := true
		settings := &belfryv1.QueueSettings{Paused: &paused, PausedUntil: until.Proto}
		if length.Proto != nil {
			settings.PausedUntil = render.After(a.Now(), length.Proto.AsDuration())
		}
		return a.update(ctx, conn, &belfryv1.UpdateQueueRequest{Queue: args[0], Settings: settings, RequestId: requestID})
	})
	return a.ClientFlags(c)
}

func (a verbs) queueResumeCommand() *cobra.Command {
	var requestID string
	c := &cobra.Command{
		Use:               "resume QUEUE",
		Short:             "Hand out jobs again",
		Example:           "  belfry queue resume orders",
		Args:              cli.Arguments(1, 1, "QUEUE"),
		ValidArgsFunction: a.CompleteQueue,
	}
	cli.RequestIDFlag(c, &requestID)
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		paused := false
		return a.update(ctx, conn, &belfryv1.UpdateQueueRequest{
			Queue: args[0], Settings: &belfryv1.QueueSettings{Paused: &paused}, RequestId: requestID,
		})
	})
	return a.ClientFlags(c)
}

// update changes settings and shows all that are in force then.
func (a verbs) update(ctx context.Context, conn *cli.Connection, request *belfryv1.UpdateQueueRequest) error {
	a.Ensure(&request.RequestId)
	response, err := conn.Admin.UpdateQueue(ctx, request)
	if err != nil {
		return cli.WithRequest(request.RequestId, err)
	}
	return a.Show(response, func(w io.Writer) {
		renderUpdated(w, request.Queue, response)
		renderSettings(w, response.Settings, a.Now())
	})
}
