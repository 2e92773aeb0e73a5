package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/belfrydb/belfry/cmd/belfry/server"
)

// withOwnServer runs work with a server inside this process, on a data directory of its own. Without a directory it makes
// one and removes it afterwards.
func (a *app) withOwnServer(ctx context.Context, dir string, work func(*server.Server) error) (err error) {
	if dir == "" {
		if dir, err = os.MkdirTemp("", "belfry-"); err != nil {
			return fmt.Errorf("making a directory: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	s, err := server.Start(ctx, a.ownServer(dir))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(ctx))) }()
	return work(s)
}

// ownServer returns the configuration of a server inside this process.
func (a *app) ownServer(dir string) server.Config {
	return server.Config{
		Dir: dir, Listen: "127.0.0.1:0", Alone: true, Version: thisBuild(debug.ReadBuildInfo()).Version,
		Logger: slog.New(slog.DiscardHandler),
		Fatal: func(err error) {
			fmt.Fprintf(a.err, "belfry: storage failed: %s\n", err)
			a.exit(codeStorage)
		},
	}
}
