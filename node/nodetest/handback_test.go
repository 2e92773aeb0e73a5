package nodetest

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/clock"
)

// estranged are the clocks of a member that does not tell some others the time, nor hear it from
// them, while apart is true.
type estranged struct {
	clock.Peers
	from  string
	those []string
	apart *atomic.Bool
}

// ReadClock implements clock.Peers.
func (k estranged) ReadClock(ctx context.Context, serverID string) (clock.Reading, error) {
	name, err := nameOf(serverID)
	if err != nil {
		return clock.Reading{}, err
	}
	if k.apart.Load() && slices.Contains(k.those, k.from) && slices.Contains(k.those, name) {
		return clock.Reading{}, errCut
	}
	return k.Peers.ReadClock(ctx, serverID)
}

// A node whose clock is far behind hears from both others that it is, and hands over; they hear
// nothing from one another, of two clocks the lower is the median, and they hand back. They do so
// about once a second, not as fast as leaders can be elected, and none of them stamps anything
// meanwhile.
func TestLeadershipThatIsHandedBackStays(t *testing.T) {
	const (
		trip  = 5 * time.Millisecond // of a handing over
		while = 20 * time.Second
		most  = 2 * int64(while/time.Second) // two a second: there and back
	)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var apart atomic.Bool
		var handovers atomic.Int64
		c := New(t, Options{Dir: dir, Clocks: []time.Duration{0, -time.Hour, 0}, Configure: func(cfg *node.Config) {
			cfg.Clocks = estranged{cfg.Clocks, cfg.Name, []string{"n1", "n3"}, &apart}
			cfg.Dial = overhear(cfg.Dial, func(<-chan struct{}) {
				handovers.Add(1)
				pass(trip)
			})
		}})
		last := expectRight(t, c.Leader(0), 0)
		apart.Store(true)
		pass(10 * time.Second) // in which the leader compares clocks
		handovers.Store(0)
		before := c.Members()[0].index(0)
		pass(while)
		if n := handovers.Load(); n < 4 || n > most+4 {
			t.Errorf("in %v the leadership was handed over %d times, want about %d", while, n, most)
		}
		if after := c.Members()[0].index(0); after != before {
			t.Errorf("meanwhile something was logged: %d after %d", after, before)
		}
		apart.Store(false)
		if leader := c.Leader(0); leader == c.Members()[1] {
			t.Error("the node whose clock is wrong serves")
		}
		expectRight(t, c.Leader(0), last)
		c.Converge(0)
	})
}
