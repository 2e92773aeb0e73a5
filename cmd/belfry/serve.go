package main

import "github.com/spf13/cobra"

func (a *app) serveCommand() *cobra.Command {
	return &cobra.Command{Use: "serve", RunE: func(*cobra.Command, []string) error { return nil }}
}
func (a *app) demoCommand() *cobra.Command {
	return &cobra.Command{Use: "demo", RunE: func(*cobra.Command, []string) error { return nil }}
}
func (a *app) benchCommand() *cobra.Command {
	return &cobra.Command{Use: "bench", RunE: func(*cobra.Command, []string) error { return nil }}
}
