package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/clock/clocktest"
)

// After a clock that is moved by hand has jumped, Settle hands what fell due to the calls that
// wait, and carries out the rest, without that any time passes.
func TestSettleAfterAJumpOfTheClock(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg, hand := testConfig(t, dir), clocktest.NewHand()
		cfg.Clock = hand
		n := openNode(t, cfg)
		puts := do(t, n, 0, put("orders", "late", 40*time.Minute), put("orders", "soon", 20*time.Minute)).Results
		do(t, n, 0, &fsm.Put{Queue: "mails", Partitions: 1, Given: fsm.GivenTTL, TTL: time.Minute})
		first, second := startPoll(t, n, 30*time.Second, 1, "orders"), startPoll(t, n, 30*time.Second, 1, "orders")
		other := startPoll(t, n, 30*time.Second, 1, "parcels")
		hand.Run(20*time.Minute - 1)
		if err := n.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !first.running() || !second.running() {
			t.Fatal("a job was handed out before it was due")
		}
		began := time.Now()
		hand.Run(time.Hour)
		if err := n.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if g := first.grants(t); len(g) != 1 || g[0].Due != puts[1].Due {
			t.Errorf("who waited longest was granted %+v, want what was due first", g)
		}
		if g := second.grants(t); len(g) != 1 || g[0].Due != puts[0].Due {
			t.Errorf("the other was granted %+v", g)
		}
		if took, held := time.Since(began), n.Status().Shards[0].Jobs; took > 2*time.Millisecond || held != 2 {
			t.Errorf("%v passed, and %d jobs are held, want those that were handed out", took, held)
		}
		if !other.running() {
			t.Error("a poll that nothing is there for has ended")
		}
	})
}
