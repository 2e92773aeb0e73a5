package adapter

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cluster"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// TestCatalogHasTypesAndFaultsOfRPC: what cluster says with its own errors and types arrives as
// rpc's.
func TestCatalogHasTypesAndFaultsOfRPC(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	n, err := node.Open(t.Context(), node.Config{Dir: t.TempDir(), Logger: logger, Fatal: func(err error) {
		t.Error(err)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	part, err := cluster.Open(t.Context(), n, cluster.Config{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := part.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	c := NewCatalog(part.Catalog)
	made, err := c.CreateQueue(t.Context(), "orders", 2, fsm.Settings{TTR: time.Minute})
	if err != nil || made.Name != "orders" || made.Partitions != 2 || made.Version == 0 ||
		made.Settings.TTR != time.Minute {
		t.Errorf("created %+v, %v", made, err)
	}
	_, err = c.CreateQueue(t.Context(), "orders", 2, fsm.Settings{})
	if fault, ok := errors.AsType[*fault.Error](err); !ok || fault.Reason != belfryv1.Reason_REASON_QUEUE_EXISTS {
		t.Errorf("created twice: %v, want a fault of reason QUEUE_EXISTS", err)
	}
	changed, err := c.UpdateQueue(t.Context(), "orders", func(s fsm.Settings) (fsm.Settings, error) {
		s.MaxJobs = 7
		return s, nil
	})
	if err != nil || changed.Version <= made.Version || changed.Settings.MaxJobs != 7 ||
		changed.Settings.TTR != time.Minute {
		t.Errorf("changed to %+v, %v", changed, err)
	}
	if got, ok := c.Queue("orders"); !ok || got.Version != changed.Version {
		t.Errorf("the catalog has %+v, %v", got, ok)
	}
	if err := c.DeleteQueue(t.Context(), "orders"); err != nil {
		t.Error(err)
	}
	if got, ok := c.Queue("orders"); ok {
		t.Errorf("after deleting the catalog has %+v", got)
	}
}
