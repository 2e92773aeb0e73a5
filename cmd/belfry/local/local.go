// Package local runs servers inside this process, for the commands that need one of their own.
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/belfrydb/belfry/cmd/belfry/server"
)

// Host is what servers inside this process are told of it.
type Host struct {
	// Version is the build's, for the peers and the status.
	Version string
	// Fatal is called once when storage failed, and must end the process.
	Fatal func(error)
}

// WithOwnServer runs work with a server inside this process, on a data directory of its own.
// Without a directory it makes one and removes it afterwards.
func (h Host) WithOwnServer(ctx context.Context, dir string, work func(*server.Server) error) (err error) {
	if dir == "" {
		if dir, err = os.MkdirTemp("", "belfry-"); err != nil {
			return fmt.Errorf("making a directory: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	s, err := server.Start(ctx, h.OwnServer(dir))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(ctx))) }()
	return work(s)
}

// OwnServer returns the configuration of a server inside this process.
func (h Host) OwnServer(dir string) server.Config {
	return server.Config{
		Dir: dir, Listen: "127.0.0.1:0", Alone: true, Version: h.Version,
		Logger: slog.New(slog.DiscardHandler),
		Fatal:  h.Fatal,
	}
}
