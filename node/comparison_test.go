package node

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/raftgroup"
)

// TestComparisonThatOutlivesItsLeadership: what is found out about a leader's clock when it leads
// no more is not left behind.
func TestComparisonThatOutlivesItsLeadership(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	s := n.shards[0].Load()
	l, err := s.Leadership()
	if err != nil {
		t.Fatal(err)
	}
	const far = fsm.Time(time.Hour)
	ahead := clock.Judge(map[string]clock.Reckoned{n.id.ServerID(): {Stamp: far, Wall: far}, "b": {}, "c": {}},
		3, clock.DefaultBound)
	heed := func(when string, counts bool) {
		t.Helper()
		if s.heed(t.Context(), l, &ahead) {
			t.Errorf("%s: this node may lead", when)
		}
		if held, off := s.withheld() != nil, s.medianOff.Load() != 0; held != counts || off != counts {
			t.Errorf("%s: stamps are withheld: %v, the clock is off: %v; want %v", when, held, off, counts)
		}
	}
	heed("while it leads", true)
	s.forgetComparison()
	heed("when its leadership has ended", false)
	s.beginComparing(&raftgroup.Leadership{})
	heed("in its next leadership", false)
	s.hold(l, clock.ErrNoMajority)
	if s.held.Load() != nil {
		t.Error("an earlier leadership's failure is held against the next")
	}
}
