package raftgroup

import (
	"errors"
	"testing"

	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/storage"
)

// A snapshot may ask for a restart at the moment at which the node is closed.
func TestRestartBesideStopLeavesNothingOpen(t *testing.T) {
	for _, order := range []string{"stop first", "together"} {
		t.Run(order, func(t *testing.T) {
			cfg := testConfig(t, t.TempDir(), &counter{})
			g := New(cfg)
			notify := make(chan bool)
			if err := g.open(notify); err != nil {
				t.Fatal(err)
			}
			g.running.Go(func() { // what watch does with what Raft reports
				for {
					select {
					case <-notify:
					case <-g.done:
						return
					}
				}
			})
			stopped := make(chan error, 1)
			if order == "together" {
				go func() { stopped <- g.Stop() }()
			} else {
				stopped <- g.Stop()
			}
			if err := g.restart(notify); err != nil && !errors.Is(err, outcome.ErrShuttingDown) {
				t.Errorf("the restart ended with %v", err)
			} else if err == nil && order == "stop first" {
				t.Error("a stopped group was started")
			}
			if err := <-stopped; err != nil {
				t.Errorf("the stop ended with %v", err)
			}
			// Files that were left open could not be opened.
			stores, err := storage.Open(g.Dir(), storage.Config{Group: "c1/" + self + "/counter",
				Mode: storage.MustExist})
			if err != nil {
				t.Fatal(err)
			}
			if err := stores.Close(); err != nil {
				t.Error(err)
			}
			select {
			case <-g.instance().ended:
			default: // Raft's own state would not tell: an election that begins just then leaves it a candidate
				t.Error("raft has not ended")
			}
		})
	}
}
