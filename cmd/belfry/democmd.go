package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/demo"
	"github.com/belfrydb/belfry/cmd/belfry/server"
)

func (a *app) demoCommand() *cobra.Command {
	var seed uint64
	c := &cobra.Command{
		Use:   "demo",
		Short: "Watch jobs ring on time, in 25 seconds",
		Long: "Demo runs one node in this process, on a directory that it removes afterwards, and plays a short story with it: jobs\n" +
			"ring when they are due, fail and come back, are extended, cancelled and redriven. It draws a picture on a terminal,\n" +
			"and writes plain lines elsewhere. It fails if a job is early or missing.",
		Args: arguments(0, 0),
	}
	c.Flags().Uint64Var(&seed, "seed", 1, "decides when the jobs of the choir ring")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.withOwnServer(c.Context(), "", func(s *server.Server) error {
			return demo.Run(c.Context(), demo.Config{
				URL: s.URL(), Out: a.out, Picture: a.outTerminal, Color: a.color(), Size: a.size, Seed: seed,
				Title: fmt.Sprintf("one node, %s; a put is on disk before it is answered", count(len(s.Status().Shards), "shard")),
			})
		})
	}
	return c
}
