package node

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
)

func TestOpenRefuses(t *testing.T) {
	remove := func(parts ...string) func(*testing.T, *Config) {
		return func(t *testing.T, cfg *Config) {
			if err := os.RemoveAll(filepath.Join(append([]string{cfg.Dir}, parts...)...)); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name    string
		spoil   func(*testing.T, *Config)
		problem string
	}{
		{"a node of another name", func(_ *testing.T, cfg *Config) { cfg.Name = "other" },
			`belongs to node "node", not "other"`},
		{"a lost shard", remove("shards", "0001"), "no group in this directory"},
		{"lost shards", remove("shards"), "no group in this directory"},
		{"a lost identity", remove(identity.File), "restore that file"},
		{"a foreign shard", func(t *testing.T, cfg *Config) {
			one, two := filepath.Join(cfg.Dir, "shards", "0000"), filepath.Join(cfg.Dir, "shards", "0001")
			if err := errors.Join(os.RemoveAll(one), os.Rename(two, one)); err != nil {
				t.Fatal(err)
			}
		}, "belongs to group"},
		{"a clock behind", func(_ *testing.T, cfg *Config) { cfg.Clock = shiftedClock(-time.Minute) }, "--accept-clock"},
		{"a clock far ahead", func(_ *testing.T, cfg *Config) { cfg.Clock = shiftedClock(31 * 24 * time.Hour) },
			"--accept-clock"},
		{"a bad configuration", func(_ *testing.T, cfg *Config) { cfg.Logger, cfg.Dir = nil, "" },
			"Dir is empty\nLogger is nil"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig(t, t.TempDir())
			n := openNode(t, cfg)
			do(t, n, 0, put("orders", "x", 0))
			closeNode(t, n)
			tt.spoil(t, &cfg)
			n, err := Open(t.Context(), cfg)
			if err == nil {
				closeNode(t, n)
			}
			if err == nil || !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("error is %v, want one that says %q", err, tt.problem)
			}
		})
	}
}

func TestRefusedClockStampsNothing(t *testing.T) {
	cfg := testConfig(t, t.TempDir())
	closeNode(t, openNode(t, cfg))
	wrong := cfg
	wrong.Clock = shiftedClock(31 * 24 * time.Hour)
	if n, err := Open(t.Context(), wrong); err == nil {
		closeNode(t, n)
		t.Fatal("a clock 31 days ahead was accepted")
	}
	openNode(t, cfg) // would be behind the last stamp, had there been one
}

// shiftedClock is the system's clock with the wall off by d.
func shiftedClock(d time.Duration) *offClock {
	c := &offClock{Source: clock.System()}
	c.off.Store(int64(d))
	return c
}

type offClock struct {
	clock.Source
	off atomic.Int64
}

func (c *offClock) Wall() fsm.Time { return c.Source.Wall() + fsm.Time(c.off.Load()) }

func TestOpenRefusesASecondProcess(t *testing.T) {
	cfg := testConfig(t, t.TempDir())
	openNode(t, cfg)
	_, err := Open(t.Context(), cfg)
	var locked *disk.LockedError
	if !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("error is %v, want one that names process %d", err, os.Getpid())
	}
}

// TestLockOfTheCallerStaysHeld: if the caller locked the directory for the node, the caller also
// releases the lock, even after the node's end.
func TestLockOfTheCallerStaysHeld(t *testing.T) {
	cfg := testConfig(t, t.TempDir())
	lock, err := disk.Lock(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	held := cfg
	held.Lock = lock
	n := openNode(t, held)
	do(t, n, 0, put("orders", "x", 0))
	closeNode(t, n)
	var locked *disk.LockedError
	if _, err := Open(t.Context(), cfg); !errors.As(err, &locked) {
		t.Errorf("after the node's end the directory gives %v, want that it is in use", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	openNode(t, cfg)
}

func TestOpenGivesUpWithItsContext(t *testing.T) {
	cfg := testConfig(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n, err := Open(ctx, cfg)
	if err == nil {
		closeNode(t, n) // so quick that nothing had to be waited for
		return
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want the context's", err)
	}
	openNode(t, cfg) // the directory is free again, and founded
}

func TestOpenWithAnAcceptedClockGoesOnFromTheStamp(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, dir)
		n := openNode(t, cfg)
		last := do(t, n, 0, put("orders", "x", 0)).Witness.Time
		closeNode(t, n)
		cfg.Clock, cfg.AcceptClock = shiftedClock(-time.Hour), true
		n = openNode(t, cfg)
		time.Sleep(10 * time.Second)
		next := do(t, n, 0, put("orders", "x", 0)).Witness.Time
		if passed := next.Sub(last); passed < 9900*time.Millisecond || passed > 10100*time.Millisecond {
			t.Errorf("in 10 s the stamps went on by %v", passed)
		}
		if st := n.Status().Shards[0]; !st.ClockAhead {
			t.Errorf("the status does not say that the clock is ahead: %+v", st)
		}
	})
}

func TestOpenCompletesAnInterruptedFounding(t *testing.T) {
	cfg := testConfig(t, t.TempDir())
	id, err := identity.Load(cfg.withDefaults().identity())
	if err != nil {
		t.Fatal(err)
	}
	// The process ended when one shard had a term and no configuration, and the other no files.
	stores, err := storage.Open(identity.ShardDir(cfg.Dir, 0),
		storage.Config{Group: id.ClusterID + "/" + id.ServerID() + "/shard-0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stores.Stable.SetUint64([]byte("CurrentTerm"), 1), stores.Close()); err != nil {
		t.Fatal(err)
	}
	n := openNode(t, cfg)
	for shard := range uint32(2) {
		do(t, n, shard, put("orders", "x", 0))
	}
}

// What a start waits for, as opposed to what it works, is virtual time: Raft alone would wait 1 to
// 2 s for a leader.
func TestSoleVoterWaitsForNobody(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, dir)
		cfg.Shards = DefaultShards
		for _, what := range []string{"first", "second"} {
			start := time.Now()
			n := openNode(t, cfg)
			if waited := time.Since(start); waited > 10*time.Millisecond {
				t.Errorf("the %s start waited %v", what, waited)
			}
			time.Sleep(time.Minute)
			if st := n.Stats().Shards[0]; st.LeaderChanges != 1 {
				t.Errorf("the leader changed %d times in a minute", st.LeaderChanges)
			}
			closeNode(t, n)
		}
	})
}

func TestPeersAreListenedFor(t *testing.T) {
	cfg := testConfig(t, t.TempDir())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Peers = listener
	n := openNode(t, cfg)
	if got := n.Status().PeerAddr; got != listener.Addr().String() {
		t.Errorf("the node listens at %q, want %q", got, listener.Addr())
	}
	closeNode(t, n)
	// Its port may be another process's by now, so the test does not dial it.
	if conn, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed node still listens: %v, %v", conn, err)
	}
}

func TestCloseWaitsNoLongerThanItsContext(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		n.shards[0].Load().proposer.Hold() // what is proposed stays where it is
		ended := make(chan error, 1)
		go func() {
			_, err := n.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{put("orders", "x", 0)}})
			ended <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := n.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("after %v Close ended with %v", time.Since(start), err)
		}
		if err := <-ended; outcome.Of(err) != outcome.NotApplied {
			t.Errorf("what was queued ended with %v", err)
		}
	})
}

func TestStatusAndStats(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	w := do(t, n, 1, put("orders", "x", 0), put("orders", "y", 0)).Witness
	st := n.Status()
	if st.ClusterID == "" || st.Name != "node" || !strings.HasPrefix(st.ServerID, "node.") || st.PeerAddr != "" ||
		st.Draining || st.DiskFreeBytes == 0 {
		t.Errorf("status is %+v", st)
	}
	got := st.Shards[1]
	want := GroupStatus{
		RaftStatus: RaftStatus{
			Group: "shard-1", Role: Leader, Serving: true, Leader: st.ServerID, Heard: got.Heard, Voters: []string{st.ServerID},
			MembersIndex: 1, Term: w.Term, CommitIndex: w.Index, AppliedIndex: w.Index, LastIndex: w.Index,
			Digest: got.Digest, DigestIndex: w.Index, Digests: []IndexDigest{{Index: w.Index, Digest: got.Digest}},
		},
		Shard: 1, Clock: w.Time, Jobs: 2,
	}
	if diff := cmp.Diff(want, got); diff != "" || got.Digest == 0 || got.Heard.IsZero() {
		t.Errorf("status of shard 1 (-want +got):\n%s", diff)
	}
	s := n.Stats().Shards[1]
	if s.Applied != 1 || s.Entries != 1 || s.Commands != 2 || s.AppliedIndex != w.Index || s.EntryCommands.Sum != 2 ||
		s.ProposeSeconds.Count != 1 || s.CommitSeconds.Count != 1 || s.ApplySeconds.Count != 2 || s.LeaderChanges != 1 {
		t.Errorf("stats are %+v", s)
	}
	if n.Route("orders") != ShardOf("orders", 0, 2) {
		t.Errorf("orders is routed to shard %d", n.Route("orders"))
	}
}

func TestRolesHaveNames(t *testing.T) {
	want := []string{"follower", "candidate", "leader", "stopped"}
	for role, name := range want {
		if got := Role(role).String(); got != name {
			t.Errorf("role %d reads %q, want %q", role, got, name)
		}
	}
}

func TestUnknownShard(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	_, doErr := n.Do(t.Context(), 2, &fsm.Request{})
	_, reserveErr := n.Reserve(t.Context(), 2, &fsm.Request{}, Wait{})
	_, _, queryErr := n.Query(t.Context(), 2, &fsm.QueuesQuery{})
	_, _, peekErr := n.Peek(2, &fsm.QueuesQuery{})
	for _, err := range []error{doErr, reserveErr, queryErr, peekErr, n.Snapshot(t.Context(), 2)} {
		if !errors.Is(err, outcome.ErrUnknownShard) {
			t.Errorf("error is %v, want ErrUnknownShard", err)
		}
	}
}

func TestConfigNamesEveryProblem(t *testing.T) {
	err := Config{
		Name: "a.b", Shards: -1, ClockBound: -1, QueueRequestsMax: -1, QueueBytesMax: -1, EntryBytesMax: -1,
		EntriesInFlight: -1, WaitersMax: -1, ProposeTimeout: -1, SnapshotBytes: -1, TrailingBytes: -1, Store: "paper",
	}.withDefaults().validate()
	for _, field := range []string{
		"Dir", "Name", "Shards", "ClockBound", "QueueRequestsMax", "QueueBytesMax", "EntryBytesMax", "EntriesInFlight",
		"WaitersMax", "ProposeTimeout", "SnapshotBytes", "TrailingBytes", "Store", "Fatal", "Logger",
	} {
		if err == nil || !strings.Contains(err.Error(), field+" ") {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
}
