package node

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// Whatever is wrong with a snapshot, and wherever that is noticed, the machine goes on as it was: Raft does not end over it.
func TestRestoreThatFailsChangesNothing(t *testing.T) {
	rotten := errors.New("the last block is rotten")
	tests := []struct {
		name    string
		source  io.Reader
		problem string
	}{
		{"it ends early", strings.NewReader(""), "restoring a snapshot"},
		{"its end is rotten", io.MultiReader(strings.NewReader("9 "), iotest.ErrReader(rotten)), rotten.Error()},
		{"it holds another state", strings.NewReader("8"), "its digest is 0000000000000009, the restored state has 0000000000000008"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := IndexDigest{Index: 5, Digest: 5}
			r := &replica{machine: &counter{count: 6}, index: 6, term: 2, digests: []IndexDigest{before}}
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

// Snapshots of several groups do not share the disk.
func TestSnapshotsAreTakenOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := diskfault.New()
		cfg := testConfig(t, "/data")
		cfg.FS = disk
		n := openNode(t, cfg)
		var begun atomic.Int64
		finish := make(chan struct{})
		disk.SetHook(func(o diskfault.Op) error {
			if o.Kind == diskfault.OpCreate && strings.HasSuffix(o.Path, ".snap.tmp") {
				begun.Add(1)
				<-finish
			}
			return nil
		})
		ended := make(chan error)
		for shard := range uint32(cfg.Shards) {
			do(t, n, shard, put("orders", "x", 0))
			go func() { ended <- n.Snapshot(t.Context(), shard) }()
		}
		for turn := range int64(cfg.Shards) {
			synctest.Wait()
			if got := begun.Load(); got != turn+1 {
				t.Errorf("when %d snapshots are stored %d were begun", turn, got)
			}
			finish <- struct{}{}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}
