package raftgroup

import (
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
)

// From the stop of its Raft on a replica takes no entry and gives no state: Raft may leave entries
// out before those that still come. Once Raft runs again it does.
func TestStoppedReplicaAppliesNothing(t *testing.T) {
	g := openCounter(t, &counter{released: new(int)})
	reply := propose(t, g, "x")
	r := g.replica
	if err := g.instance().shutDown(); err != nil {
		t.Fatal(err)
	}
	out := r.Apply(&raft.Log{Index: reply.Index + 2, Term: reply.Term, Data: []byte("x")}).(*appliedEntry)
	if !errors.Is(out.err, raft.ErrRaftShutdown) || out.value != nil || r.AppliedIndex() != reply.Index {
		t.Errorf("an entry was answered with %v, %v; the last one applied is %d", out.value, out.err, r.AppliedIndex())
	}
	if _, err := r.Snapshot(); !errors.Is(err, raft.ErrRaftShutdown) {
		t.Errorf("a snapshot: %v", err)
	}
	if err := g.open(make(chan bool, 10)); err != nil {
		t.Fatal(err)
	}
	if err := r.Await(t.Context(), reply.Index); err != nil || r.stopped.Load() {
		t.Errorf("started again: %v", err)
	}
}

// A restored replica stands where its snapshot does; until then it is behind the state that it had.
func TestReplicaIsBehindUntilItIsRestored(t *testing.T) {
	renewal := &Renewal{
		Fresh: func() Machine { return &counter{} }, Restores: new(atomic.Int32), Restored: func(Machine) {},
	}
	r := &Replica{cfg: Config{Grown: func() {}, Renewal: renewal}, machine: &counter{count: 6}, index: 6, term: 2}
	position := func() (at Position) {
		r.View(func(_ Machine, p Position) { at = p })
		return at
	}
	if at := position(); at != (Position{Term: 2, Index: 6}) {
		t.Errorf("at first it stands at %+v", at)
	}
	r.replacement.Store(&snapshotDigest{term: 2, index: 6})
	source := io.MultiReader(readerFunc(func([]byte) (int, error) {
		if at := position(); at != (Position{Behind: true}) {
			t.Errorf("meanwhile it stands at %+v", at)
		}
		return 0, io.EOF
	}), strings.NewReader("6"))
	if err := r.Restore(io.NopCloser(source)); err != nil {
		t.Fatal(err)
	}
	if at := position(); at != (Position{Term: 2, Index: 6}) {
		t.Errorf("afterwards it stands at %+v", at)
	}
}

// readerFunc is a reader that is a function.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestOverdueLog: what a snapshot under way covers does not count, unless it fails.
func TestOverdueLog(t *testing.T) {
	g := New(Config{})
	r, least := g.replica, int64(50_000)
	r.snapshotAt.Store(least)
	expect := func(what string, want bool) {
		t.Helper()
		if got := g.SnapshotOverdue(); got != want {
			t.Errorf("%s: SnapshotOverdue is %v", what, got)
		}
	}
	logged := func(bytes, captured int64) { r.logged.bytes, r.captured.bytes = bytes, captured }
	logged(3*least/2, 0)
	expect("a snapshot is due and waits for its turn", false)
	logged(3*least/2+1, 0)
	expect("half as much again is logged", true)
	logged(3*least/2+1, least)
	expect("most of that is in the snapshot under way", false)
	r.snapshotEnded(false)
	expect("which failed", true)
}
