package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/bench"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/access"
	"github.com/belfrydb/belfry/cmd/belfry/cli/backup"
	"github.com/belfrydb/belfry/cmd/belfry/cli/cluster"
	"github.com/belfrydb/belfry/cmd/belfry/cli/daemon"
	"github.com/belfrydb/belfry/cmd/belfry/cli/jobs"
	"github.com/belfrydb/belfry/cmd/belfry/cli/migration"
	"github.com/belfrydb/belfry/cmd/belfry/cli/queues"
	"github.com/belfrydb/belfry/cmd/belfry/cli/schedules"
	"github.com/belfrydb/belfry/cmd/belfry/cli/top"
	"github.com/belfrydb/belfry/cmd/belfry/demo"
	"github.com/belfrydb/belfry/cmd/belfry/doctor"
)

// run carries out one command line and returns the exit code of the process. ctx ends when the
// command shall stop.
func run(ctx context.Context, sys *cli.System, args []string) int {
	a := cli.New(sys)
	a.Failed = func(c *cobra.Command, args []string) { daemon.ShowFailedConfig(a, c, args) }
	return a.Run(ctx, newRoot(a), args) //nolint:contextcheck // each command gets the context from cobra
}

// newRoot returns the command tree.
func newRoot(a *cli.App) *cobra.Command {
	root := a.Root(
		cli.Group{ID: "jobs", Title: "Jobs:", Commands: jobs.Commands(a)},
		cli.Group{ID: "queues", Title: "Queues:", Commands: slices.Concat(queues.Commands(a), schedules.Commands(a))},
		cli.Group{
			ID: "cluster", Title: "Cluster:",
			Commands: slices.Concat(cluster.Commands(a), top.Commands(a), backup.Commands(a)),
		},
		cli.Group{ID: "server", Title: "Server:", Commands: slices.Concat(
			slices.Insert(daemon.Commands(a), 1, access.Commands(a)...), // between serve and recover
			demo.Commands(a), bench.Commands(a), cluster.ServerCommands(a), doctor.Commands(a),
			[]*cobra.Command{versionCommand(a)},
		)},
		cli.Group{ID: "migration", Title: "Migration:", Commands: migration.Commands(a)},
	)
	root.SetCompletionCommandGroupID("server")
	root.SetHelpCommandGroupID("server")
	root.InitDefaultCompletionCmd()
	return root
}
