package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// TestEndingsAreMeasured: how long jobs took from their puts to their acks, and after how many
// attempts they were acked or died.
func TestEndingsAreMeasured(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		once := put("orders", "fails", 0)
		once.Given, once.MaxAttempts = once.Given|fsm.GivenMaxAttempts, 1
		do(t, n, 0, once, put("orders", "works", 2*time.Second))
		do(t, n, 0, &fsm.Nack{Ref: refOf(reserve(t, n, 0, "orders", 0)[0])})
		do(t, n, 0, &fsm.Nack{Ref: refOf(reserve(t, n, 0, "orders", time.Minute)[0])})
		pass(3 * time.Second)
		do(t, n, 0, &fsm.Ack{Ref: refOf(reserve(t, n, 0, "orders", 0)[0])})
		got := n.Stats().Shards[0].Queues["orders"]
		if h := got.JobSeconds; h.Count != 1 || h.Sum < 5 || h.Sum > 5.01 {
			t.Errorf("%d jobs took %v s, want one that took 5", h.Count, h.Sum)
		}
		if h := got.Attempts; h.Count != 2 || h.Sum != 3 {
			t.Errorf("%d jobs took %v attempts, want 2 with 1 and 2", h.Count, h.Sum)
		}
	})
}
