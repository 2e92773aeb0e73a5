// Command belfry is Belfry's one binary: the server, and the commands that talk to it. See DESIGN.md beside this file.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	cobra.EnableCommandSorting = false // the help lists the verbs in the order of a job's life
	os.Exit(run(interruptible(context.Background()), newSystem(), os.Args[1:]))
}
