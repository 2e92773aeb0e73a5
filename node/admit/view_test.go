package admit

import (
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
)

// TestFiringsCountTheirBytes: quotas and entries know what the jobs of schedules take, though the requests
// have no bodies. A change of a schedule copies its body, and needs no quota.
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
		{&fsm.Fire{Queue: "n/q", Name: "s"}, 0, 1},
		{&fsm.Fire{Queue: "n/q", Name: "s", Put: 5}, 1, 1},
		{&fsm.Fire{Queue: "n/q", Name: "none", Put: 5}, 1, 0},
		{&fsm.RunSchedule{Queue: "n/q", Name: "s", Times: make([]fsm.Time, 2)}, 2, 2},
		{&fsm.RunSchedule{Queue: "n/q", Name: "s", Times: make([]fsm.Time, 1001)}, 4, 4}, // the machine stops there
		{&fsm.PauseSchedules{Queue: "n/q", Names: []string{"s", "none", "s"}}, 0, 2},
		{&fsm.PauseSchedules{Queue: "n/q", Names: slices.Repeat([]string{"s"}, 9)}, 0, 4},
		{&fsm.RunSchedule{Queue: "none", Name: "s", Times: make([]fsm.Time, 1000)}, 0, 0},
	} {
		req := &fsm.Request{Commands: []fsm.Command{tc.c}}
		want := q.demand(req)["n"]
		if tc.jobs == 0 && want != (Amounts{}) || tc.jobs > 0 && fsm.QueueOf(tc.c) == "n/q" &&
			(want[JobsLimit] != tc.jobs || want[BytesLimit]>>20 != tc.bytes) {
			t.Errorf("%+v: %v", tc.c, want)
		}
		if n := q.view.FiringBytes(req); n>>20 != tc.bytes {
			t.Errorf("%+v: %d bytes", tc.c, n)
		}
	}
}

// TestJobsOfSmallBodies: what a schedule has beside its body takes no jobs off the demand of a run.
func TestJobsOfSmallBodies(t *testing.T) {
	m := machine.New(fsm.Config{})
	put := &fsm.PutSchedule{Queue: "n/q", Partitions: 1, Name: "s", Spec: fsm.ScheduleSpec{
		Exclude: slices.Repeat([]string{strings.Repeat("x", 249)}, 32),
	}}
	times := make([]fsm.Time, 1000)
	for i := range times {
		times[i] = fsm.Time(i + 1)
	}
	run := &fsm.Request{Commands: []fsm.Command{&fsm.RunSchedule{Queue: "n/q", Name: "s", Times: times}}}
	var results []fsm.Result
	for i, req := range []*fsm.Request{{Commands: []fsm.Command{put}}, run} {
		if i == 1 {
			q := Quotas{view: func(f func(*machine.Machine, fsm.Time)) { f(m, 1) }}
			if n := q.demand(req)["n"][JobsLimit]; n != 1000 {
				t.Errorf("a demand of %d jobs", n)
			}
		}
		entry := codec.AppendEntryIn(nil, fsm.KeysFormat, 1, [][]byte{codec.AppendRequestIn(nil, fsm.KeysFormat, req)})
		var err error
		if results, err = m.Apply(uint64(i+1), entry); err != nil {
			t.Fatal(err)
		}
	}
	if results[0].Count != 1000 {
		t.Errorf("%+v", results[0])
	}
}
