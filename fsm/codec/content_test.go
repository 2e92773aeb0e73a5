package codec_test

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// TestRequestHashOfPutSchedule: a repeat is one whatever first firing it found, and other content is none.
func TestRequestHashOfPutSchedule(t *testing.T) {
	put := fsm.PutSchedule{
		Queue: "q", Partitions: 1, Name: "s", Spec: fsm.ScheduleSpec{Every: time.Second}, Next: 7, ZoneData: "2025a",
	}
	hash := func(c fsm.PutSchedule) [16]byte {
		return codec.RequestHash(&fsm.Request{Commands: []fsm.Command{&c}})
	}
	later, other := put, put
	later.Next, later.NextAfter, later.ZoneData = 8, 7, "2025b"
	other.Spec.Every = time.Minute
	if hash(put) != hash(later) {
		t.Error("a repeat that found another first firing counts as another request")
	}
	if hash(put) == hash(other) {
		t.Error("another rule counts as the same request")
	}
}
