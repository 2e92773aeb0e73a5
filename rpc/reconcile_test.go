package rpc

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// reconcilingCatalog brings its records to the shards itself, as the cluster's does.
type reconcilingCatalog struct {
	*backendtest.Catalog
	brought backend.Reconciled
	err     error
	asked   []string
}

func (c *reconcilingCatalog) Reconcile(_ context.Context, name string) (backend.Reconciled, error) {
	c.asked = append(c.asked, name)
	return c.brought, c.err
}

// TestCatalogReconciles: a Reconciling catalog updates the shards itself, and its answer is the
// call's.
func TestCatalogReconciles(t *testing.T) {
	catalog := &reconcilingCatalog{
		Catalog: backendtest.NewCatalog(),
		brought: backend.Reconciled{
			Witnesses: []node.Witness{{Shard: 2, Term: 3, Index: 4, Entry: 1}}, Pending: []uint32{0, 1},
		},
	}
	s := serve(t, func(c *Config) { c.Catalog = catalog })
	_, a := s.bothClients()
	created, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "wide", Partitions: 3})
	want := []*belfryv1.Witness{{Shard: 2, Term: 3, Index: 4, Entry: 1}}
	if diff := cmp.Diff(want, created.GetWitnesses(), protocmp.Transform(),
		protocmp.IgnoreFields(&belfryv1.Witness{}, "time")); err != nil || diff != "" {
		t.Errorf("created: %v\n%s", err, diff)
	}
	if diff := cmp.Diff([]uint32{0, 1}, created.GetPendingShards()); diff != "" {
		t.Errorf("pending after the creation:\n%s", diff)
	}
	update := func(paused bool) (*belfryv1.UpdateQueueResponse, error) {
		return a.UpdateQueue(t.Context(), &belfryv1.UpdateQueueRequest{
			Queue: "wide", Settings: &belfryv1.QueueSettings{Paused: proto.Bool(paused)},
		})
	}
	updated, err := update(true)
	if diff := cmp.Diff([]uint32{0, 1}, updated.GetPendingShards()); err != nil || diff != "" ||
		len(updated.GetWitnesses()) != 1 {
		t.Errorf("updated: %v, %v", updated, err)
	}
	catalog.err = nodeNoLeader()
	if updated, err = update(false); err != nil || len(updated.GetPendingShards()) != 3 {
		t.Errorf("while the catalog has no leader: %v, %v", updated, err)
	}
	catalog.err = fault.New(belfryv1.Reason_REASON_QUEUE_CHANGED)
	if updated, err = update(true); err != nil || len(updated.GetPendingShards()) != 3 {
		t.Errorf("of a queue that was deleted right afterwards: %v, %v", updated, err)
	}
	if diff := cmp.Diff([]string{"wide", "wide", "wide", "wide"}, catalog.asked); diff != "" ||
		s.node.Holders("wide") != 0 {
		t.Errorf("the catalog was asked for %v; %d shards were told by this node", catalog.asked, s.node.Holders("wide"))
	}
}

// TestLimitsAreCheckedAgainstAllPartitions: also those of a queue that this node has not heard of
// yet.
func TestLimitsAreCheckedAgainstAllPartitions(t *testing.T) {
	catalog := &backendtest.LateCatalog{
		Catalog: backendtest.NewCatalog(),
		Later:   backend.QueueConfig{Name: "wide", Partitions: 3, Version: 1, Settings: fsm.Settings{}},
	}
	s := serve(t, func(c *Config) { c.Catalog = catalog })
	got := s.post("/v1/update-queue", `{"queue":"wide","settings":{"maxJobs":2}}`)
	if held, _ := catalog.Queue("wide"); got.status != 400 || held.Settings.MaxJobs != 0 {
		t.Errorf("%d %s, recorded %+v", got.status, got.body, held)
	}
}
