package server_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/server"
)

// slowCatalog keeps servers from opening their replica of the catalog until open is closed, and
// notes that a shard has elected its leader.
type slowCatalog struct {
	group   string
	open    <-chan struct{}
	elected func()
}

func (c slowCatalog) Enabled(context.Context, slog.Level) bool { return true }
func (c slowCatalog) WithGroup(string) slog.Handler            { return c }

func (c slowCatalog) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if a.Key == "group" {
			c.group = a.Value.String()
		}
	}
	return c
}

func (c slowCatalog) Handle(_ context.Context, r slog.Record) error {
	switch {
	case c.group == "catalog" && r.Message == "raft: initial configuration":
		<-c.open
	case strings.HasPrefix(c.group, "shard-") && r.Message == "raft: election won":
		c.elected()
	}
	return nil
}

// TestShardsElectBeforeTheCatalogIsOpen: nodes that are started together find one another by gossip
// while they still read their data. No node has opened its catalog yet, which also knows the
// addresses, and those addresses are of an earlier life.
func TestShardsElectBeforeTheCatalogIsOpen(t *testing.T) {
	t.Parallel()
	join := []string{addresses.Free(t), addresses.Free(t)}
	configs := make([]server.Config, len(join))
	for i, name := range []string{"n1", "n2"} {
		configs[i] = config(t, t.TempDir())
		configs[i].Shards, configs[i].SteadyAfter = 1, time.Millisecond
		configs[i].NodeID, configs[i].GossipListen, configs[i].Join, configs[i].BootstrapExpect = name, join[i], join,
			len(join)
	}
	servers := startAll(t, configs)()
	await(t, "every shard to have two voters", func() bool {
		for _, shard := range servers[0].Status().Shards {
			if len(shard.Voters) < len(join) {
				return false
			}
		}
		return len(servers[0].Status().Shards) > 0
	})
	for _, s := range servers {
		stop(t, s)
	}

	open, elected := make(chan struct{}), make(chan struct{})
	slow := slog.New(slowCatalog{open: open, elected: sync.OnceFunc(func() { close(elected) })})
	for i := range configs {
		configs[i].Logger = slow
	}
	started := startAll(t, configs)
	func() {
		defer close(open)
		await(t, "a shard to elect its leader", func() bool {
			select {
			case <-elected:
				return true
			default:
				return false
			}
		})
	}()
	for _, s := range started() {
		<-s.Ready()
	}
}

// startAll begins to start servers, and returns what waits for them. They are stopped with the
// test.
func startAll(t *testing.T, configs []server.Config) (wait func() []*server.Server) {
	t.Helper()
	servers, errs := make([]*server.Server, len(configs)), make([]error, len(configs))
	var starting sync.WaitGroup
	for i, cfg := range configs {
		starting.Go(func() { servers[i], errs[i] = server.Start(t.Context(), cfg) })
	}
	t.Cleanup(func() {
		starting.Wait()
		for _, s := range servers {
			if s != nil {
				stop(t, s)
			}
		}
	})
	return func() []*server.Server {
		t.Helper()
		starting.Wait()
		for i, err := range errs {
			if err != nil {
				t.Fatalf("starting %s: %v", configs[i].NodeID, err)
			}
		}
		return servers
	}
}
