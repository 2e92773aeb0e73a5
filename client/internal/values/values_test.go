package values

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func TestStates(t *testing.T) {
	for number := range belfryv1.JobState_name {
		state := StateOf(belfryv1.JobState(number))
		back, ok := StateNumber(state)
		if !ok || int32(back) != number || number != 0 && state == "" {
			t.Errorf("state %d is %q and %d, %v back", number, state, back, ok)
		}
	}
	if _, ok := StateNumber("DAED"); ok {
		t.Error("DAED is a state")
	}
	if got := StateOf(1000); got != "1000" {
		t.Errorf("a state of a later version is %q", got)
	}
}

// TestUnset: what is not set stays so in both directions, and what is set comes back.
func TestUnset(t *testing.T) {
	at := time.Date(2030, 1, 31, 9, 0, 0, 7, time.UTC)
	for _, want := range []time.Time{{}, at, time.Unix(0, 0).UTC()} {
		if got := TimeOf(Timestamp(want)); !got.Equal(want) || (Timestamp(want) == nil) != want.IsZero() {
			t.Errorf("%v comes back as %v", want, got)
		}
	}
	if TimeOf((*timestamppb.Timestamp)(nil)) != (time.Time{}) {
		t.Error("a time that is not set is a time")
	}
	for _, want := range []*time.Duration{nil, new(time.Duration(0)), new(time.Hour + 1)} {
		if got := DurationOf(Duration(want)); !cmp.Equal(got, want) {
			t.Errorf("%v comes back as %v", want, got)
		}
	}
	if DurationOf((*durationpb.Duration)(nil)) != nil {
		t.Error("a duration that is not set is a duration")
	}
	for _, want := range []*int{nil, new(0), new(1<<32 - 1)} {
		var wire *uint32
		if want != nil {
			wire = new(uint32(*want))
		}
		if got := CountOf(wire); !cmp.Equal(got, want) {
			t.Errorf("%v is read as %v", want, got)
		}
	}
}

func TestEachKeepsTheOrder(t *testing.T) {
	got := Each([]int{3, 1, 2}, func(n int) string { return fmt.Sprint(n) })
	if diff := cmp.Diff([]string{"3", "1", "2"}, got); diff != "" {
		t.Error(diff)
	}
	if got := Each([]int{}, func(n int) int { return n }); got != nil {
		t.Errorf("of an empty list: %v", got)
	}
}
