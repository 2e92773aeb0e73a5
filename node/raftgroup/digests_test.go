package raftgroup

import (
	"errors"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/histogram"
	"github.com/belfrydb/belfry/node/outcome"
)

// TestDigestsAreKept has two replicas apply the same entries, one from the beginning and one from a
// snapshot.
func TestDigestsAreKept(t *testing.T) {
	apply := func(r *Replica, from, to uint64) {
		for index := from; index <= to; index++ {
			if index%digestEvery == 0 && index/digestEvery%2 == 0 {
				continue // an entry of Raft's own, which the machine does not see
			}
			if out := r.Apply(&raft.Log{Index: index, Term: 1, Data: []byte("x")}).(*appliedEntry); out.err != nil {
				t.Fatal(out.err)
			}
		}
	}
	newReplica := func() *Replica {
		r := New(Config{
			Fatal: func(err error) { t.Error(err) }, Grown: func() {}, Throttle: &Throttle{},
			Machine: &counter{}, ApplySeconds: histogram.Seconds(),
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
		if err := whole.Differs(d); !errors.Is(err, outcome.ErrDisproved) {
			t.Errorf("the replica's own digest at %d is taken for another: %v", d.Index, err)
		}
		if err := whole.Differs(IndexDigest{d.Index, d.Digest + 1}); err != nil {
			t.Errorf("another digest at %d is taken for the replica's: %v", d.Index, err)
		}
	}
	if err := whole.Differs(IndexDigest{Index: 7}); !errors.Is(err, outcome.ErrDisproved) {
		t.Errorf("a digest that is not kept is known to differ: %v", err)
	}
	apply(whole, 3*digestEvery+6, (digestsKept+9)*digestEvery)
	if got := whole.compared(); len(got) > digestsKept+1 {
		t.Errorf("%d digests are kept", len(got))
	}
}
