package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/outcome"
)

// exporting is an export of shard 0 whose reader has taken the first record and reads no further
// until it is let.
type exporting struct {
	stuck chan struct{} // closed when it has the first record
	let   chan struct{}
	ended chan error
}

func startExport(t *testing.T, n *Node) *exporting {
	t.Helper()
	e := &exporting{stuck: make(chan struct{}), let: make(chan struct{}), ended: make(chan error, 1)}
	go func() {
		first := true
		e.ended <- n.Export(context.WithoutCancel(t.Context()), 0, func(*fsm.QueueRecord) bool { return true },
			func(fsm.BackupRecord) error {
				if first {
					first = false
					close(e.stuck)
					<-e.let
				}
				return nil
			})
	}()
	<-e.stuck
	return e
}

// TestExportDelaysNoStop: a node that stops does not wait for a client that reads an export slowly.
// If the client reads on, the export ends with an error.
func TestExportDelaysNoStop(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		do(t, n, 0, put("orders", "x", time.Hour), put("orders", "y", time.Hour))
		e := startExport(t, n)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := n.Close(ctx); err != nil || time.Since(began) > time.Second {
			t.Errorf("the stop took %v: %v", time.Since(began), err)
		}
		close(e.let)
		if err := <-e.ended; !errors.Is(err, outcome.ErrShuttingDown) {
			t.Errorf("the export ended with %v", err)
		}
	})
}

// TestExportOutlastsChanges: it goes on, as it was when it began, while the shard does.
func TestExportOutlastsChanges(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		do(t, n, 0, put("orders", "x", time.Hour))
		e := startExport(t, n)
		do(t, n, 0, put("orders", "y", time.Hour))
		close(e.let)
		if err := <-e.ended; err != nil {
			t.Errorf("the export ended with %v", err)
		}
	})
}
