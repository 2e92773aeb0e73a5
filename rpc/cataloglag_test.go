package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/rpc/backend"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
)

// laggingCatalog knows nothing of the queues whose names begin with queue until it is refreshed.
type laggingCatalog struct {
	*backendtest.Catalog
	behind, cut atomic.Bool
	refreshed   atomic.Int64
	queue       string
}

// Queue implements Catalog.
func (c *laggingCatalog) Queue(name string) (backend.QueueConfig, bool) {
	if strings.HasPrefix(name, c.queue) && c.behind.Load() {
		return backend.QueueConfig{}, false
	}
	return c.Catalog.Queue(name)
}

// Refresh implements Catalog.
func (c *laggingCatalog) Refresh(context.Context) error {
	c.refreshed.Add(1)
	if c.cut.Load() {
		return errors.New("the leader of the catalog does not answer")
	}
	c.behind.Store(false)
	return nil
}

// heldJobs is how many jobs the queue has, and heldID the id of one of them.
const heldJobs = 12

func heldID(n int) string { return fmt.Sprintf("job-%d", n) }

// finding is a call that finds so many jobs, of which job n is named where the method names one.
type finding struct {
	name string
	call func(ctx context.Context, n int) (found int, err error)
	want int
}

// findings are the calls that look for jobs of the queue.
func findings(q belfryv1connect.QueueServiceClient, a belfryv1connect.AdminServiceClient) []finding {
	return []finding{
		{"Get", func(ctx context.Context, n int) (int, error) {
			_, err := q.Get(ctx, &belfryv1.GetRequest{Queue: "wide", Id: heldID(n)})
			return 1, err
		}, 1},
		{"Reschedule", func(ctx context.Context, n int) (int, error) {
			_, err := q.Reschedule(ctx, &belfryv1.RescheduleRequest{
				Queue: "wide", Id: heldID(n), When: &belfryv1.RescheduleRequest_Delay{Delay: durationpb.New(time.Hour)},
			})
			return 1, err
		}, 1},
		{"List", func(ctx context.Context, _ int) (int, error) {
			res, err := q.List(ctx, &belfryv1.ListRequest{Queue: "wide"})
			return len(res.GetJobs()), err
		}, heldJobs},
		{"GetQueue", func(ctx context.Context, _ int) (int, error) {
			res, err := a.GetQueue(ctx, &belfryv1.GetQueueRequest{Queue: "wide"})
			return int(res.GetQueue().GetCounts().GetDelayed()), err
		}, heldJobs},
		{"Cancel", func(ctx context.Context, n int) (int, error) {
			_, err := q.Cancel(ctx, &belfryv1.CancelRequest{Queue: "wide", Id: heldID(n)})
			if err != nil {
				return 0, err
			}
			_, err = q.Put(ctx, &belfryv1.PutRequest{
				Queue: "wide", Id: heldID(n), Again: true, When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Hour)},
			})
			return 1, err
		}, 1},
	}
}

// TestNothingIsMissingWhereTheCatalogLags asks a node for jobs of a queue that it takes for one of
// a single partition.
func TestNothingIsMissingWhereTheCatalogLags(t *testing.T) {
	lagging := &laggingCatalog{queue: "wide"}
	s := serve(t, func(cfg *Config) {
		lagging.Catalog = cfg.Catalog.(*backendtest.Catalog)
		cfg.Catalog = lagging
	})
	q, a := s.bothClients()
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "wide", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	for n := range heldJobs {
		put := &belfryv1.PutRequest{
			Queue: "wide", Id: heldID(n), When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Hour)},
		}
		if _, err := q.Put(t.Context(), put); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range findings(q, a) {
		for n := range heldJobs {
			lagging.behind.Store(true)
			if found, err := tt.call(t.Context(), n); err != nil || found != tt.want {
				t.Errorf("%s %s through a node that lags: %d of %d, %v", tt.name, heldID(n), found, tt.want, err)
			}
		}
		// Where the catalog cannot catch up, what is found is right, and nothing is said to be missing.
		lagging.cut.Store(true)
		for n := range heldJobs {
			lagging.behind.Store(true)
			found, err := tt.call(t.Context(), n)
			if err == nil && found == tt.want {
				continue
			}
			if f, _ := fault.FromConnect(err); f == nil || f.Reason != belfryv1.Reason_REASON_QUEUE_CHANGED {
				t.Errorf("%s %s where the catalog is cut off: %d of %d, %v", tt.name, heldID(n), found, tt.want, err)
			}
		}
		lagging.cut.Store(false)
	}
	lagging.behind.Store(true)
	if _, err := a.PurgeQueue(t.Context(), &belfryv1.PurgeQueueRequest{Queue: "wide"}); err != nil {
		t.Error(err)
	}
	lagging.behind.Store(true)
	if _, err := a.DeleteQueue(t.Context(), &belfryv1.DeleteQueueRequest{Queue: "wide"}); err != nil ||
		s.node.Holders("wide") != 0 {
		t.Errorf("deleting gives %v; %d shards hold the queue", err, s.node.Holders("wide"))
	}
	if _, recorded := s.catalog.Queue("wide"); recorded {
		t.Error("the queue is recorded after its deletion")
	}
}

// TestPutsWhereTheCatalogLags: puts into many queues wait once for a catalog that cannot catch up,
// since one wait takes seconds, and are refused.
func TestPutsWhereTheCatalogLags(t *testing.T) {
	lagging := &laggingCatalog{queue: "wide"}
	s := serve(t, func(cfg *Config) {
		lagging.Catalog = cfg.Catalog.(*backendtest.Catalog)
		cfg.Catalog = lagging
	})
	q, a := s.bothClients()
	batch := &belfryv1.PutBatchRequest{}
	for n := range 3 {
		queue := fmt.Sprintf("wide%d", n)
		if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: queue, Partitions: 3}); err != nil {
			t.Fatal(err)
		}
		batch.Jobs = append(batch.Jobs, &belfryv1.PutRequest{Queue: queue})
	}
	for _, cut := range []bool{true, false} {
		lagging.behind.Store(true)
		lagging.cut.Store(cut)
		lagging.refreshed.Store(0)
		res, err := q.PutBatch(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, result := range res.GetResults() {
			if refused := result.GetError().GetReason() == belfryv1.Reason_REASON_QUEUE_CHANGED; refused != cut {
				t.Errorf("cut off: %v: %v", cut, result)
			}
		}
		if n := lagging.refreshed.Load(); n != 1 {
			t.Errorf("cut off: %v: the catalog was waited for %d times", cut, n)
		}
	}
}
