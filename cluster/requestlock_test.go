package cluster

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node"
)

// TestRequestLockAtTheLeader: attempts at one request through different members lock it in turn. A
// newer attempt is announced to the older one, and waits for its end.
func TestRequestLockAtTheLeader(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		const shard = 0
		leader, _ := tr.leader(shard)
		for _, first := range tr.all {
			for _, second := range tr.all {
				name := first.name + " then " + second.name
				newer, end, err := first.cluster.Router().LockRequest(t.Context(), shard, "r-1", time.Minute)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				synctest.Wait()
				if closed(newer) {
					t.Errorf("%s: the first is told of a newer one before there is one", name)
				}
				other, leave, err := second.cluster.Router().LockRequest(t.Context(), shard, "r-2", time.Minute)
				if err != nil {
					t.Fatalf("%s: another request: %v", name, err)
				}
				leave()
				_ = other
				unlocked := make(chan func(), 1)
				go func() {
					_, end, err := second.cluster.Router().LockRequest(t.Context(), shard, "r-1", time.Minute)
					if err != nil {
						t.Errorf("%s: the second: %v", name, err)
					}
					unlocked <- end
				}()
				<-newer
				synctest.Wait()
				if len(unlocked) > 0 {
					t.Errorf("%s: both run", name)
				}
				end()
				if end := <-unlocked; end != nil {
					end()
				}
				await(t, "nothing to be left", func() bool { return leader.cluster.Router().LockedRequests() == 0 })
			}
		}
	})
}

// TestAttemptWithoutTheLock ends with its retry budget or with its caller. The outcome of the
// request is then unknown, or nothing was done.
func TestAttemptWithoutTheLock(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		const shard = 0
		leader, other := tr.leader(shard)
		_, end, err := leader.cluster.Router().LockRequest(t.Context(), shard, "r-1", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, _, err = other.cluster.Router().LockRequest(t.Context(), shard, "r-1", time.Second)
		if took := time.Since(began); !errors.Is(err, node.ErrUnknownOutcome) || took != time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		_, _, err = other.cluster.Router().LockRequest(ctx, shard, "r-1", time.Minute)
		if took := time.Since(began); err == nil || took != time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		end()
		await(t, "nothing to be left", func() bool { return leader.cluster.Router().LockedRequests() == 0 })
	})
}

// closed reports whether a channel is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
