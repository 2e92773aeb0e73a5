package cluster

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node"
)

// TestFullVoterIsHeardOf: a node whose memory is full leads nothing, but its replicas grow with
// every put. So the leaders refuse puts soon after, through whatever node they come, with the
// figures of the full node, and take them again soon after it has memory again.
func TestFullVoterIsHeardOf(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		var live, cycles atomic.Uint64
		small := tr.all[1]
		small.stop()
		small.heap = func() (uint64, uint64) { return live.Load(), cycles.Add(1) }
		small.start(nil)
		await(t, "a settled cluster", func() bool { return settled(tr.all[0].cluster, 3, tr.all...) })
		puts := func(want error) {
			t.Helper()
			for q := range 2 * testShards {
				for _, m := range tr.all {
					err := put(m, fmt.Sprintf("q%d", q))
					if got, _ := errors.AsType[*node.MemoryError](err); !errors.Is(err, want) || want != nil &&
						(got == nil || got.Limit != 1<<30) {
						t.Errorf("a put through %s ended with %v, want %v", m.name, err, want)
					}
				}
			}
		}
		puts(nil)
		live.Store(1 << 30)
		await(t, "a full node that leads nothing", func() bool { return groupsLed(small) == 0 })
		time.Sleep(time.Second)
		puts(node.ErrMemoryFull)
		live.Store(1 << 20)
		time.Sleep(time.Second)
		puts(nil)
	})
}
