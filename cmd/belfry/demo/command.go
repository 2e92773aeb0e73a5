package demo

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	"github.com/belfrydb/belfry/cmd/belfry/local"
)

// verbs is `demo`.
type verbs struct{ *cli.App }

// Commands returns `demo`.
func Commands(a *cli.App) []*cobra.Command { return []*cobra.Command{verbs{a}.demoCommand()} }

func (a verbs) demoCommand() *cobra.Command {
	var seed uint64
	c := &cobra.Command{
		Use:   "demo",
		Short: "Watch jobs ring on time while a node is stopped, in half a minute",
		Long: `
Demo runs three nodes in this process, on directories that it removes afterwards, and plays a short
story with them: jobs ring when they are due, fail and come back, are extended, cancelled and
redriven, and in the middle the node that leads them is stopped. It draws a picture on a terminal,
and writes plain lines elsewhere. It names the address of a dashboard, which shows the jobs while it
plays. It fails if a job is early or missing.`,
		Args: cli.Arguments(0, 0),
	}
	c.Flags().Uint64Var(&seed, flag.Seed, 1, "decides when the jobs of the choir ring")
	c.RunE = func(c *cobra.Command, _ []string) error {
		formed := false
		if !a.OutTerminal {
			fmt.Fprintln(a.Out, "three nodes are becoming a cluster")
		}
		err := local.Host{
			Version: cli.ThisBuild().Version, Fatal: a.StorageFailed,
		}.WithTrio(c.Context(), a.forming, func(t *local.Trio) error {
			formed = true
			dashboard := t.Dashboard(storyQueue)
			if !a.OutTerminal {
				fmt.Fprintln(a.Out, "until the end there is a dashboard at "+dashboard)
			}
			return Run(c.Context(), Config{
				URLs: t.Urls(), Nodes: t, Out: a.Out, Picture: a.OutTerminal, Color: a.Color(), Size: a.Size, Seed: seed,
				Title: demoTitle(dashboard),
			})
		})
		if a.OutTerminal && !formed {
			fmt.Fprintln(a.Out) // ends the line that says how far they are
		}
		return err
	}
	return c
}

// demoTitle is what the picture says of the cluster. A terminal of 80 columns has room for all of
// it.
func demoTitle(dashboard string) string {
	return fmt.Sprintf("three nodes, %s; dashboard: %s", render.Count(local.TrioShards, "shard"), dashboard)
}

// forming shows on a terminal how far the three nodes are.
func (a verbs) forming(voting, all int) {
	if !a.OutTerminal {
		return
	}
	end := "\r"
	if voting == all {
		end = "\r\x1b[K"
	}
	fmt.Fprintf(a.Out, "\r three nodes are becoming a cluster: %d of %d replicas vote\x1b[K%s", voting, all, end)
}
