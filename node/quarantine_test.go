package node

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/node/histogram"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/hashicorp/raft"
)

// TestDigestsAreKept has two replicas apply the same entries, one from the beginning and one from a
// snapshot.
func TestDigestsAreKept(t *testing.T) {
	apply := func(r *replica, from, to uint64) {
		for index := from; index <= to; index++ {
			if index%digestEvery == 0 && index/digestEvery%2 == 0 {
				continue // an entry of Raft's own, which the machine does not see
			}
			entry := codec.AppendEntry(nil, fsm.Time(index),
				[][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: []fsm.Command{put("orders", "", 0)}})})
			if out := r.Apply(&raft.Log{Index: index, Term: 1, Data: entry}).(*appliedEntry); out.err != nil {
				t.Fatal(out.err)
			}
		}
	}
	newReplica := func() *replica {
		r := newGroup(groupConfig{
			Fatal: func(err error) { t.Error(err) }, Grown: func() {}, Throttle: &throttle{},
			Machine: newShardMachine(fsm.Config{}), ApplySeconds: histogram.Seconds(),
		}).replica
		r.snapshotAt.Store(1 << 40)
		return r
	}
	if promised := uint64(1024); digestEvery > promised {
		t.Errorf("replicas can be compared every %d entries, promised are %d", digestEvery, promised)
	}
	whole := newReplica()
	apply(whole, 1, 3*digestEvery+5)
	got := whole.compared()
	var at []uint64
	for _, d := range got {
		at = append(at, d.Index)
	}
	if want := []uint64{digestEvery, 2*digestEvery + 1, 3 * digestEvery, 3*digestEvery + 5}; !slices.Equal(at, want) {
		t.Fatalf("digests are kept of the entries %v, want %v", at, want)
	}
	for _, d := range got[:3] {
		if err := whole.differs(d); !errors.Is(err, outcome.ErrDisproved) {
			t.Errorf("the replica's own digest at %d is taken for another: %v", d.Index, err)
		}
		if err := whole.differs(IndexDigest{d.Index, d.Digest + 1}); err != nil {
			t.Errorf("another digest at %d is taken for the replica's: %v", d.Index, err)
		}
	}
	if err := whole.differs(IndexDigest{Index: 7}); !errors.Is(err, outcome.ErrDisproved) {
		t.Errorf("a digest that is not kept is known to differ: %v", err)
	}
	apply(whole, 3*digestEvery+6, (digestsKept+9)*digestEvery)
	if got := whole.compared(); len(got) > digestsKept+1 {
		t.Errorf("%d digests are kept", len(got))
	}
}

func TestQuarantine(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, dir)
		n := openNode(t, cfg)
		do(t, n, 1, put("orders", "x", 0))
		st := n.Status().Shards[1]
		own := IndexDigest{st.DigestIndex, st.Digest}
		if err := n.Quarantine(t.Context(), st.Group, own); !errors.Is(err, outcome.ErrDisproved) {
			t.Errorf("a replica that does not differ: %v", err)
		}
		if err := n.Quarantine(t.Context(), "shard-9", own); !errors.Is(err, outcome.ErrNotHere) {
			t.Errorf("a group that is not here: %v", err)
		}
		expectHere(t, n, 0, 1)
		if err := n.Quarantine(t.Context(), st.Group, IndexDigest{own.Index, own.Digest + 1}); err != nil {
			t.Fatal(err)
		}
		aside := func(what string) {
			t.Helper()
			expectHere(t, n, 0)
			if got := n.Status().Quarantined; !slices.Equal(got, []string{st.Group}) {
				t.Errorf("%s %v are set aside", what, got)
			}
			if _, err := n.Do(t.Context(), 1, &fsm.Request{}); !errors.Is(err, outcome.ErrNotHere) {
				t.Errorf("%s a call gives %v", what, err)
			}
			if err := n.StartShard(t.Context(), 1); !errors.Is(err, errQuarantined) {
				t.Errorf("%s a start gives %v", what, err)
			}
		}
		aside("at once")
		closeNode(t, n)
		n = openNode(t, cfg)
		aside("after a restart")
		if left, err := filepath.Glob(filepath.Join(shardDir(dir, 1), "log", "*")); err != nil || len(left) == 0 {
			t.Errorf("the files are gone: %v, %v", left, err)
		}
		if err := n.StopShard(t.Context(), 1, wasRemoved); err != nil {
			t.Fatal(err)
		}
		if err := n.StartShard(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		expectHere(t, n, 0, 1)
		if st := n.Status(); len(st.Quarantined) != 0 || st.Shards[1].LastIndex != 0 {
			t.Errorf("after its return: %v are set aside, the log ends at %d", st.Quarantined, st.Shards[1].LastIndex)
		}
	})
}

// TestGroupThatDiffersEndsTheNode: a node cannot do without its replica of a group that is no
// shard.
func TestGroupThatDiffersEndsTheNode(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, dir)
		ended := make(chan error, 1)
		cfg.Fatal = func(err error) { ended <- err }
		n := openNode(t, cfg)
		g, err := n.StartGroup(t.Context(), GroupConfig{Name: "catalog", Machine: newShardMachine(fsm.Config{})})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Propose(t.Context(), codec.AppendEntry(nil, 1, nil)); err != nil {
			t.Fatal(err)
		}
		st := n.Status().Groups[0]
		if err := n.Quarantine(t.Context(), "catalog", IndexDigest{st.DigestIndex, st.Digest + 1}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case err := <-ended:
			if !strings.Contains(err.Error(), "catalog") {
				t.Errorf("the node ended with %v", err)
			}
		default:
			t.Error("the node goes on")
		}
	})
}
