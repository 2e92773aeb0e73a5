package wire

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

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

func TestScheduleJobIDs(t *testing.T) {
	id := ScheduleJobID("shop/7@x", timestamppb.New(time.Date(2027, 3, 28, 1, 0, 0, 5e6, time.UTC)))
	if name, ok := ScheduleOf(id); id != "cron:shop/7@x@2027-03-28T01:00:00.005Z" || !ok || name != "shop/7@x" {
		t.Errorf("%s is of %q, %v", id, name, ok)
	}
	for _, other := range []string{"", "cron:", "cron:a", "a@2027-03-28T01:00:00Z"} {
		if name, ok := ScheduleOf(other); ok {
			t.Errorf("%q is of the schedule %q", other, name)
		}
	}
}
