package raftgroup

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"weak"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage"
)

// Whatever is wrong with a snapshot, and wherever that is noticed, a machine that cannot be made
// anew goes on as it was: Raft does not end over it.
func TestRestoreThatFailsChangesNothing(t *testing.T) {
	rotten := errors.New("the last block is rotten")
	tests := []struct {
		name    string
		source  io.Reader
		problem string
	}{
		{"it ends early", strings.NewReader(""), "restoring a snapshot"},
		{"its end is rotten", io.MultiReader(strings.NewReader("9 "), iotest.ErrReader(rotten)), rotten.Error()},
		{"it holds another state", strings.NewReader("8"),
			"its digest is 0000000000000009, the restored state has 0000000000000008"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := IndexDigest{Index: 5, Digest: 5}
			r := &Replica{
				cfg: Config{Grown: func() {}}, machine: &counter{count: 6}, index: 6, term: 2,
				digests: []IndexDigest{before},
			}
			r.replacement.Store(&snapshotDigest{id: "s", index: 30, term: 4, digest: 9, known: true})
			if err := r.Restore(io.NopCloser(tt.source)); err == nil || !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("error is %v, want one that says %q", err, tt.problem)
			}
			if got := r.machine.Digest(); got != 6 || r.index != 6 || r.term != 2 || !slices.Contains(r.digests, before) {
				t.Errorf("the replica stands at %d in term %d with %d, digests %v", r.index, r.term, got, r.digests)
			}
			if err := r.Restore(io.NopCloser(strings.NewReader("9"))); err != nil || r.machine.Digest() != 9 || r.index != 30 {
				t.Errorf("a sound snapshot ended with %v; the replica stands at %d with %d", err, r.index, r.machine.Digest())
			}
		})
	}
}

// witness is a machine whose Restore, of whatever source, runs a function first.
type witness struct {
	counter
	before func()
}

func (w *witness) Restore(r io.Reader) (Machine, error) {
	w.before()
	return w.counter.Restore(r)
}

// While the state of a leader's snapshot is built nothing keeps the one that it replaces.
func TestRestoreMakesRoomFirst(t *testing.T) {
	released := 0
	old := &counter{count: 6, released: &released}
	was := weak.Make(old)
	renewal := &Renewal{Restores: new(atomic.Int32), Restored: func(Machine) {}}
	r := &Replica{cfg: Config{Grown: func() {}, Renewal: renewal}, machine: old, index: 6, term: 2}
	own, err := r.Snapshot() // Raft writes it when the restore has ended
	if err != nil {
		t.Fatal(err)
	}
	asked := false
	renewal.Fresh = func() Machine {
		return &witness{before: func() {
			asked = true
			runtime.GC()
			if was.Value() != nil {
				t.Error("the old state is in memory beside the new one")
			}
			if r.AppliedIndex() != 0 {
				t.Error("the replica claims to have applied something")
			}
		}}
	}
	if err := r.Restore(io.NopCloser(strings.NewReader("9"))); err != nil || r.machine.Digest() != 9 || !asked {
		t.Errorf("it ended with %v, and has %d", err, r.machine.Digest())
	}
	if err := own.Persist(&slowSink{}); !errors.Is(err, storage.ErrSnapshotOlder) {
		t.Errorf("the snapshot of the old state ended with %v", err)
	}
	if own.Release(); released != 1 {
		t.Errorf("it was released %d times", released)
	}
}

// TestRestartWithWhatCannotBeRestored: the group has no state then, and the process goes on if the
// replica is set aside. Raft may be stopped for the restart before it has restored what it
// installed.
func TestRestartWithWhatCannotBeRestored(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		for _, aside := range []bool{true, false} {
			cfg := testConfig(t, filepath.Join(dir, fmt.Sprint(aside)), &counter{})
			var stateless, fatal []error
			cfg.Renewal = &Renewal{
				Fresh: func() Machine { return &counter{} }, Restores: new(atomic.Int32), Restored: func(Machine) {},
				Stateless: func(why error) { stateless = append(stateless, why) },
			}
			cfg.SetAside = func() bool { return aside }
			cfg.Fatal = func(err error) { fatal = append(fatal, err) }
			g := openGroup(t, cfg)
			propose(t, g, "x")
			install(t, g, g.replica.AppliedIndex()+10) // with nothing in it
			g.wedged.Send()
			synctest.Wait()
			if len(stateless) != 1 || (len(fatal) > 0) == aside {
				t.Errorf("set aside: %v; without a state because of %v, ended because of %v", aside, stateless, fatal)
			}
			closeGroup(t, g)
		}
	})
}

// TestReplicaWithoutAStateAppliesNothing after a snapshot that cannot be restored.
func TestReplicaWithoutAStateAppliesNothing(t *testing.T) {
	cfg, stateless := testConfig(t, t.TempDir(), &counter{}), 0
	cfg.Renewal = &Renewal{
		Fresh: func() Machine { return &counter{} }, Restores: new(atomic.Int32), Restored: func(Machine) {},
		Stateless: func(error) { stateless++ },
	}
	g := openGroup(t, cfg)
	propose(t, g, "x")
	if err := g.replica.Restore(io.NopCloser(strings.NewReader("rot"))); err == nil || stateless != 1 {
		t.Fatalf("it ended with %v, %d times without a state", err, stateless)
	}
	if out := g.replica.Apply(&raft.Log{Index: 9}).(*appliedEntry); out.err == nil {
		t.Error("an entry was applied to nothing")
	}
}
