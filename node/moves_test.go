package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// openJoined opens a node that founded nothing.
func openJoined(t *testing.T, dir string) *Node {
	t.Helper()
	cfg := testConfig(t, dir)
	cfg.Join = "c"
	return openNode(t, cfg)
}

// wasRemoved is for StopShard where the shard's members are not in question.
func wasRemoved(context.Context) error { return nil }

// shardsHere returns the numbers of the shards in a node's status.
func shardsHere(n *Node) (here []uint32) {
	for _, st := range n.Status().Shards {
		here = append(here, st.Shard)
	}
	return here
}

// expectHere fails the test unless exactly these shards are here.
func expectHere(t *testing.T, n *Node, want ...uint32) {
	t.Helper()
	if got := shardsHere(n); !slices.Equal(got, want) || n.Status().ShardCount != 2 {
		t.Errorf("of %d shards %v are here, want %v", n.Status().ShardCount, got, want)
	}
}

func TestCallsToAShardThatIsNotHere(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openJoined(t, dir)
		expectHere(t, n)
		req := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"q"}, Max: 1}}}
		query := &fsm.QueueQuery{Queue: "q"}
		for shard, want := range map[uint32]error{0: outcome.ErrNotHere, 1: outcome.ErrNotHere, 2: outcome.ErrUnknownShard} {
			group := founding.ShardGroup(shard)
			for what, call := range map[string]func() error{
				"do":       func() error { _, err := n.Do(t.Context(), shard, req); return err },
				"reserve":  func() error { _, err := n.Reserve(t.Context(), shard, req, Wait{For: 1}); return err },
				"query":    func() error { _, _, err := n.Query(t.Context(), shard, query); return err },
				"peek":     func() error { _, _, err := n.Peek(shard, query); return err },
				"leader":   func() error { _, err := n.Leader(shard); return err },
				"snapshot": func() error { return n.Snapshot(t.Context(), shard) },
				"members":  func() error { return n.AddVoter(t.Context(), group, "x.1", 0) },
			} {
				if err := call(); !errors.Is(err, want) || outcome.Of(err) != outcome.NotApplied {
					t.Errorf("%s on shard %d gives %v, want %v", what, shard, err, want)
				}
			}
		}
	})
}

func TestShardsComeAndGo(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openJoined(t, dir)
		start := func(shard uint32) {
			t.Helper()
			if err := n.StartShard(t.Context(), shard); err != nil {
				t.Error(err)
			}
		}
		stop := func(shard uint32) {
			t.Helper()
			if err := n.StopShard(t.Context(), shard, wasRemoved); err != nil {
				t.Error(err)
			}
		}
		again := func() {
			t.Helper()
			closeNode(t, n)
			n = openJoined(t, dir)
		}
		stop(1) // it never was here
		start(1)
		start(1)
		expectHere(t, n, 1)
		again()
		expectHere(t, n, 1)
		start(0)
		expectHere(t, n, 0, 1)
		stop(1)
		stop(1)
		expectHere(t, n, 0)
		again()
		expectHere(t, n, 0)
		if _, err := n.Do(t.Context(), 1, &fsm.Request{}); !errors.Is(err, outcome.ErrNotHere) {
			t.Errorf("a call to the shard that left gives %v", err)
		}
		stop(0)
		start(1)
		again()
		expectHere(t, n, 1)
		if st := n.Status().Shards[0]; st.Role != Follower || len(st.Voters) != 0 || st.LastIndex != 0 {
			t.Errorf("the shard that came back is %+v, want one that waits to be added", st)
		}
		n.Drain()
		if err := errors.Join(n.StartShard(t.Context(), 0)); !errors.Is(err, outcome.ErrShuttingDown) {
			t.Errorf("a start while draining gives %v", err)
		}
	})
}

func TestStopShardRefusesTheOnlyVoter(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		if err := n.StopShard(t.Context(), 1, wasRemoved); !errors.Is(err, outcome.ErrLeads) {
			t.Errorf("error is %v", err)
		}
		do(t, n, 1, put("orders", "x", 0))
		if err := n.StopShard(t.Context(), 2, wasRemoved); !errors.Is(err, outcome.ErrUnknownShard) {
			t.Errorf("error is %v", err)
		}
	})
}

// What the end of the process cut off is completed at the next start, whatever step it had come to.
func TestStopThatWasCutOff(t *testing.T) {
	tests := []struct {
		name string
		cut  func(t *testing.T, dir string)
	}{
		{"before anything was removed", func(*testing.T, string) {}},
		{"without a log", func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "log")); err != nil {
				t.Fatal(err)
			}
		}},
		{"without snapshots", func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "snapshots")); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig(t, dir)
				n := openNode(t, cfg)
				do(t, n, 1, put("orders", "x", 0))
				closeNode(t, n)
				if err := n.id.Leave(founding.ShardGroup(1)); err != nil {
					t.Fatal(err)
				}
				tt.cut(t, identity.ShardDir(dir, 1))

				n = openNode(t, cfg) // the founder of shard 1, which must not found it again
				expectHere(t, n, 0)
				if err := n.StartShard(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				st := n.Status().Shards[1]
				if len(st.Voters) != 0 || st.LastIndex != 0 || st.Term == 0 {
					t.Errorf("the shard came back as %+v, want one without members and with its term", st)
				}
			})
		})
	}
}

// The files of a shard that was to be started are there, and the identity does not name it yet.
func TestStartThatWasCutOff(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openJoined(t, dir)
		s := newShard(n, 1)
		stores, err := storage.Open(s.Dir(), s.StoreConfig())
		if err != nil {
			t.Fatal(err)
		}
		if err := stores.Close(); err != nil {
			t.Fatal(err)
		}
		closeNode(t, n)
		n = openJoined(t, dir)
		expectHere(t, n)
		if err := n.StartShard(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		expectHere(t, n, 1)
	})
}

// A server that lost its vote may not come back to the shard; the others on the node go on.
func TestShardThatForgotItsVoteStaysAway(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openJoined(t, dir)
		for _, shard := range []uint32{0, 1} {
			if err := n.StartShard(t.Context(), shard); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.StopShard(t.Context(), 1, wasRemoved); err != nil {
			t.Fatal(err)
		}
		closeNode(t, n)
		if err := os.RemoveAll(identity.ShardDir(dir, 1)); err != nil {
			t.Fatal(err)
		}
		n = openJoined(t, dir)
		expectHere(t, n, 0)
		if _, damaged := errors.AsType[*disk.CorruptError](n.StartShard(t.Context(), 1)); !damaged {
			t.Error("a shard came back without its vote")
		}
		expectHere(t, n, 0)
	})
}

// Where it is not known which identity is on the disk the process ends: the next start may retire a
// replica that this one would go on with. Where it is known nothing has changed, and the replica
// goes on.
func TestIdentityThatCannotBeWritten(t *testing.T) {
	tests := []struct {
		name string
		// inTheWay is made a directory, which a file cannot replace.
		inTheWay string
		ends     bool
	}{
		{"before the file was replaced", identity.File + ".tmp", false},
		{"when it was replaced", identity.File, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig(t, dir)
				cfg.Join = "c"
				ended := 0
				cfg.Fatal = func(error) { ended++ }
				n := openNode(t, cfg)
				if err := n.StartShard(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(dir, tt.inTheWay)
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
				if err := os.MkdirAll(filepath.Join(path, "x"), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := n.StopShard(t.Context(), 1, wasRemoved); err == nil {
					t.Fatal("a stop that could not be recorded was none")
				}
				if tt.ends != (ended == 1) {
					t.Errorf("the process was ended %d times", ended)
				}
				if !tt.ends {
					expectHere(t, n, 1)
				}
			})
		})
	}
}
