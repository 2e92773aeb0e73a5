package cli

import (
	"context"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/spf13/cobra"
)

// CompleteQueue offers the names of the queues to the shell.
func (a *App) CompleteQueue(c *cobra.Command, args []string,
	prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.Complete(c, args, func(ctx context.Context, conn *Connection) (names []cobra.Completion, err error) {
		page, err := conn.Admin.ListQueues(ctx, &belfryv1.ListQueuesRequest{Prefix: prefix})
		if err != nil {
			return nil, err
		}
		for _, queue := range page.Queues {
			names = append(names, queue.Name)
		}
		return names, nil
	})
}

// Complete offers what the server answers to the shell, for a first argument. A server that is slow
// or gone offers nothing.
func (a *App) Complete(c *cobra.Command, args []string,
	list func(context.Context, *Connection) ([]cobra.Completion, error)) ([]cobra.Completion, cobra.ShellCompDirective) {
	const timeout = 2 * time.Second
	none := cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		return nil, none
	}
	if err := Resolve(c, a.LookupEnv); err != nil {
		return nil, none
	}
	conn, err := a.Connect()
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
