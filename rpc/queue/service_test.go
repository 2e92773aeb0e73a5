package queue

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/auth"
	"github.com/belfrydb/belfry/rpc/backend"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/drain"
	"github.com/belfrydb/belfry/rpc/shardcall"
)

// newService returns a service whose calls need no token, over a node and an empty catalog. change
// may adjust its configuration.
func newService(t testing.TB, n backend.Node, change ...func(*Config)) *Service {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	failures, err := auth.NewFailures(logger, &auth.Recorder{Logger: logger, Trail: auth.NewTrail("n1", time.Now)},
		prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	limits := check.DefaultLimits()
	cfg := Config{
		Router: shardcall.Router{Node: n, Catalog: backendtest.NewCatalog(), PartsAtOnce: shardcall.PartsAtOnce},
		Drain:  drain.New(),
		Rules: &check.Rules{
			Limits: limits, Now: time.Now, Authorizer: &auth.Authorizer{Now: time.Now, Failures: failures},
		},
		Codec: codec.Binary{Bounds: codec.NewBounds(&limits), Buffers: &codec.Buffers{}},
	}
	for _, f := range change {
		f(&cfg)
	}
	if c, ok := cfg.Router.Catalog.(interface{ SetNode(n backend.Node) }); ok {
		c.SetNode(n)
	}
	t.Cleanup(cfg.Drain.Start) // ends the goroutine that watches the catalog
	return New(cfg)
}

// mustPut puts a job.
func (s *Service) mustPut(t testing.TB, req *belfryv1.PutRequest) *belfryv1.PutResponse {
	t.Helper()
	res, err := s.Put(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// nodeNoLeader is the error of a shard without a leader.
func nodeNoLeader() error { return fmt.Errorf("shard 1: %w", node.ErrNoLeader) }
