package cluster

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPlacementHandsNothingBack: a node that has handed over, because it is about to stop, leads
// nothing any more, though others lead more.
func TestPlacementHandsNothingBack(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		leader, other := tr.leader(0)
		leader.node.HandOver(t.Context())
		leads := func() (n int) {
			for shard := range uint32(testShards) {
				if leader.node.Serves(shard) {
					n++
				}
			}
			return n
		}
		look := time.NewTicker(100 * time.Millisecond)
		defer look.Stop()
		for range 600 {
			<-look.C
			if n := leads(); n > 0 {
				t.Fatalf("it leads %d shards again", n)
			}
		}
		if err := put(other, "orders"); err != nil {
			t.Error(err)
		}
	})
}
