package main

import (
	"fmt"
	"io"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/spf13/cobra"
)

// versionCommand returns `version`.
func versionCommand(a *cli.App) *cobra.Command {
	return a.OutputFlag(&cobra.Command{
		Use:   "version",
		Short: "Show what this binary was built from",
		Args:  cli.Arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			b := cli.ThisBuild()
			return a.ShowValue(b, func(w io.Writer) { fmt.Fprintln(w, b) })
		},
	})
}
