package admit

import (
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
)

// TestFiringsCountTheirBytes: quotas and entries know what the jobs of schedules take, though the requests
// have no bodies.
func TestFiringsCountTheirBytes(t *testing.T) {
	m := machine.New(fsm.Config{})
	put := codec.AppendRequestIn(nil, fsm.KeysFormat, &fsm.Request{Commands: []fsm.Command{
		&fsm.PutSchedule{Queue: "n/q", Partitions: 1, Name: "s", Job: fsm.Put{Body: make([]byte, 1<<20)}},
	}})
	if _, err := m.Apply(1, codec.AppendEntryIn(nil, fsm.KeysFormat, 1, [][]byte{put})); err != nil {
		t.Fatal(err)
	}
	q := Quotas{view: func(f func(*machine.Machine, fsm.Time)) { f(m, 1) }}
	for _, tc := range []struct {
		c           fsm.Command
		jobs, bytes uint64 // bytes in MiB
	}{
		{&fsm.Fire{Queue: "n/q", Name: "s"}, 0, 0},
		{&fsm.Fire{Queue: "n/q", Name: "s", Put: 5}, 1, 1},
		{&fsm.Fire{Queue: "n/q", Name: "none", Put: 5}, 1, 0},
		{&fsm.RunSchedule{Queue: "n/q", Name: "s", Times: make([]fsm.Time, 2)}, 2, 2},
		{&fsm.RunSchedule{Queue: "n/q", Name: "s", Times: make([]fsm.Time, 1000)}, 4, 4}, // the machine stops there
		{&fsm.RunSchedule{Queue: "none", Name: "s", Times: make([]fsm.Time, 1000)}, 1000, 0},
	} {
		req := &fsm.Request{Commands: []fsm.Command{tc.c}}
		want := q.demand(req)["n"]
		if fsm.QueueOf(tc.c) == "n/q" && (want[JobsLimit] != tc.jobs || want[BytesLimit]>>20 != tc.bytes) {
			t.Errorf("%+v: %v", tc.c, want)
		}
		if n := q.view.FiringBytes(req); n>>20 != tc.bytes {
			t.Errorf("%+v: %d bytes", tc.c, n)
		}
	}
}
