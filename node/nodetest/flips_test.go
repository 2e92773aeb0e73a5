package nodetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node"
)

// TestBitsThatFlipOnTheWay: a network that changes what it carries costs connections, and nothing
// that was promised. A node that gives up fails the test.
func TestBitsThatFlipOnTheWay(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir, Configure: func(cfg *node.Config) {
			cfg.SnapshotBytes, cfg.TrailingBytes = 64<<10, 1
		}})
		h := &history{}
		stop := h.start(t, c)
		for range 5 {
			c.FlipBits(0.05)
			time.Sleep(4 * time.Second)
			c.FlipBits(0)
			time.Sleep(2 * time.Second)
		}
		stop()
		c.Converge(0)
		h.check(t, whatIsHeld(t, c))
		var noticed uint64
		for _, m := range c.Members() {
			noticed += m.Node.Stats().PeersChanged
		}
		if flipped := c.FlipBits(0); flipped < 100 || noticed == 0 {
			t.Errorf("%d bits were flipped, and %d connections ended for it", flipped, noticed)
		} else {
			t.Logf("%d bits were flipped, and %d connections ended for it", flipped, noticed)
		}
	})
}
