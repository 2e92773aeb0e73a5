package placement

import (
	"testing"
)

// TestDrainKeepsMinVoters: a drain does not leave a shard fewer voters than it must have to take
// puts.
func TestDrainKeepsMinVoters(t *testing.T) {
	for _, tt := range []struct{ least, voters int }{{1, 1}, {2, 2}} {
		s := newSim(t, 2, 3, worldNode{server: "a.1"}, worldNode{server: "b.1"}, worldNode{server: "c.1"})
		s.runToRest()
		s.minVoters = tt.least
		s.nodes[1].draining, s.nodes[2].draining = true, true
		s.runToRest()
		for i := range s.shards {
			if got := len(s.shards[i].voters); got != tt.voters {
				t.Errorf("min-voters %d: shard %d has the voters %v", tt.least, i, s.shards[i].voters)
			}
		}
	}
}
