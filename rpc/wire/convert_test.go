package wire

import (
	"testing"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func TestStatesConvert(t *testing.T) {
	seen := map[belfryv1.JobState]bool{}
	for s := fsm.StateNone; s <= fsm.Expired; s++ {
		seen[State(s)] = true
		back, ok := HeldState(State(s))
		if ok != s.Held() || ok && back != s {
			t.Errorf("%d became %v and then %d, %v", s, State(s), back, ok)
		}
	}
	if len(seen) != len(belfryv1.JobState_name) {
		t.Errorf("%d of %d states", len(seen), len(belfryv1.JobState_name))
	}
}
