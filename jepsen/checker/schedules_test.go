package checker

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/schedules"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestFirstTime: the nominal times run from the first one that is not before the answer to the put.
func TestFirstTime(t *testing.T) {
	moment := func(at time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Unix(0, int64(at))) }
	for _, tc := range []struct {
		answered time.Duration
		missed   uint64
		broken   int64
	}{
		{10 * time.Second, 3, 0}, {10 * time.Second, 2, 1}, {10500 * time.Millisecond, 2, 0},
		{10500 * time.Millisecond, 3, 1},
	} {
		found := finding.New()
		schedules.Check(&schedules.Run{Drained: true, Ops: []*history.Op{
			{
				Outcome: belfryv1.Outcome_OUTCOME_APPLIED, Request: &belfryv1.PutScheduleRequest{
					Queue: "q", Name: "s",
					Spec: &belfryv1.ScheduleSpec{Rule: &belfryv1.ScheduleSpec_Every{Every: durationpb.New(time.Second)}},
				}, Response: &belfryv1.PutScheduleResponse{Created: true, Next: moment(tc.answered)},
			},
			{
				Returned: time.Second, Outcome: belfryv1.Outcome_OUTCOME_APPLIED,
				Request: &belfryv1.GetScheduleRequest{Queue: "q", Name: "s"},
				Response: &belfryv1.GetScheduleResponse{Schedule: &belfryv1.Schedule{
					Next: moment(13 * time.Second), Counts: &belfryv1.ScheduleCounts{Missed: tc.missed},
				}},
			},
		}}, found)
		if n, kept := found.Broken(schedules.All); n != tc.broken {
			t.Errorf("answered with %v, %d missed: %v", tc.answered, tc.missed, kept)
		}
	}
}
