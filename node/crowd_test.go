package node

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/outcome"
)

// TestCrowdBeforeABacklog: one entry moves a limited number of due jobs, and the last callers in it
// find none. A caller is not told so while thousands of jobs are due.
func TestCrowdBeforeABacklog(t *testing.T) {
	const callers, each = 40, 500
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		puts := make([]fsm.Command, 1000)
		for i := range puts {
			puts[i] = put("orders", "x", time.Minute)
		}
		for range callers * each / len(puts) {
			do(t, n, 0, puts...)
		}
		time.Sleep(time.Minute)
		granted := make([]int, callers)
		var group sync.WaitGroup
		for i := range granted {
			group.Go(func() {
				req := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"orders"}, Max: each, TTR: time.Hour}}}
				reply, err := n.Reserve(t.Context(), 0, req, Wait{})
				if err != nil {
					t.Errorf("caller %d: %v", i, err)
					return
				}
				granted[i] = len(reply.Jobs)
			})
		}
		group.Wait()
		counts := queueOf(t, n, "orders").Counts
		left := counts.Delayed + counts.Ready
		for i, jobs := range granted {
			if jobs == 0 && left > 0 {
				t.Errorf("caller %d was told that there is nothing, and %d jobs are due", i, left)
			}
		}
		before := lastIndex(n)
		if jobs := reserve(t, n, 0, "none", 0); len(jobs) > 0 || lastIndex(n) != before {
			t.Errorf("an empty queue gave %d jobs and %d entries", len(jobs), lastIndex(n)-before)
		}
	})
}

// TestOneTenantLeavesRoomToWait fills the room for waiting polls from one tenant: another tenant
// may wait all the same.
func TestOneTenantLeavesRoomToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, t.TempDir())
		cfg.WaitersMax = 16
		n := openNode(t, cfg)
		poll := func(queue string) <-chan error {
			ended := make(chan error, 1)
			go func() {
				req := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{queue}, Max: 1}}}
				_, err := n.Reserve(t.Context(), 0, req, Wait{For: time.Second})
				ended <- err
			}()
			synctest.Wait()
			return ended
		}
		expect := func(polls []<-chan error, refused int) {
			t.Helper()
			for _, p := range polls {
				if err := <-p; errors.Is(err, outcome.ErrOverloaded) {
					refused--
				} else if err != nil {
					t.Error(err)
				}
			}
			if refused != 0 {
				t.Errorf("%d polls more should have been refused", refused)
			}
		}
		for range 2 { // the second time all places must be free again
			var loud, quiet []<-chan error
			for range 18 {
				loud = append(loud, poll("loud/q"))
			}
			for range 3 {
				quiet = append(quiet, poll("quiet/q"))
			}
			expect(loud, 2)
			expect(quiet, 1)
		}
	})
}
