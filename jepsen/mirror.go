package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/jepsen/redisson"
	"github.com/belfrydb/belfry/jepsen/workload"
)

// startRedis starts the Redis of the run, if a workload needs one, and returns the flags with which
// the servers mirror.
func (e *experiment) startRedis(ctx context.Context) ([]string, error) {
	if !workload.NeedRedis(e.workloads) {
		return nil, nil
	}
	r, err := redisson.Start(ctx, e.dir, e.wires.Own())
	if err != nil {
		return nil, err
	}
	commands := redisson.Commands{Program: e.server, Env: append(os.Environ(), e.env...),
		Log: filepath.Join(e.dir, "mirror.log")}
	e.redisson = redisson.NewSide(r, commands, []string{workload.MirrorIn, workload.MirrorOut, workload.MirrorServed})
	return r.ServeFlags(workload.MirrorServed), nil
}

// readPassages adds to a history what went through Redis in its run, all of it.
func readPassages(dir string, kept *record, h *history.History) error {
	if kept.Passages == 0 {
		return nil
	}
	file, err := os.Open(filepath.Join(dir, passageName))
	if err != nil {
		return fmt.Errorf("opening the passages: %w", err)
	}
	defer file.Close() //nolint:errcheck // it is only read
	if err := h.ReadPassages(file); err != nil {
		return err
	}
	if n := len(h.Passages()); n != kept.Passages {
		return fmt.Errorf("there are %d passages, not %d as when they were written", n, kept.Passages)
	}
	return nil
}
