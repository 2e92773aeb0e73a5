// Command belfry is Belfry's one binary: the server, and the commands that talk to it. See
// DESIGN.md beside this file.
package main

import (
	"context"
	"os"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
)

func main() {
	cobra.EnableCommandSorting = false // the help lists the verbs in the order of a job's life
	// the Redis client's: what it would write on its own to standard error is in the errors that it
	// returns
	logging.Disable()
	os.Exit(run(cli.Interruptible(context.Background()), cli.NewSystem(), os.Args[1:]))
}
