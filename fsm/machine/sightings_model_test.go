package machine_test

import (
	"fmt"
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// sightings count what the random events have met, so that a test can tell when they no longer meet
// what they should.
type sightings struct {
	seeds, entries, commands, snapshots, reads int
	found                                      int // by searches
	schedules                                  int // read
	first                                      int // jobs of a state, or by their serials
	outcomes                                   map[outcome]int
	recalls                                    map[recalled]int
	refusals                                   map[fsm.Code]int // of puts, foretold by Refuses
}

// outcome is what a command of one kind came to.
type outcome struct {
	kind     fsm.Kind
	code     fsm.Code
	state    fsm.State
	replayed bool
	more     bool
}

// recalled is what a Recall came to.
type recalled struct {
	granted bool
	code    fsm.Code
}

func newSightings() sightings {
	return sightings{outcomes: map[outcome]int{}, recalls: map[recalled]int{}, refusals: map[fsm.Code]int{}}
}

func (s *sightings) add(e *event, list []fsm.Result) {
	s.entries++
	i := 0
	for _, r := range e.requests {
		for _, c := range r.Commands {
			s.commands++
			s.outcomes[outcome{c.Kind(), list[i].Code, list[i].State, list[i].Replayed, list[i].More}]++
			i++
		}
	}
}

func (s *sightings) merge(o sightings) {
	s.seeds += o.seeds
	s.entries += o.entries
	s.commands += o.commands
	s.snapshots += o.snapshots
	s.reads += o.reads
	s.found += o.found
	s.schedules += o.schedules
	s.first += o.first
	for k, n := range o.outcomes {
		s.outcomes[k] += n
	}
	for k, n := range o.recalls {
		s.recalls[k] += n
	}
	for k, n := range o.refusals {
		s.refusals[k] += n
	}
}

func (s *sightings) totals() string {
	return fmt.Sprintf("%d seeds, %d entries, %d commands with %d kinds of outcomes, %d snapshots, %d times all reads",
		s.seeds, s.entries, s.commands, len(s.outcomes), s.snapshots, s.reads)
}

// checkCoverage fails for every outcome that the rules allow and the random events never met.
func (s *sightings) checkCoverage(t *testing.T) {
	t.Helper()
	var want []outcome
	expect := func(kind fsm.Kind, code fsm.Code, states ...fsm.State) {
		if len(states) == 0 {
			states = []fsm.State{fsm.StateNone}
		}
		for _, state := range states {
			want = append(want, outcome{kind: kind, code: code, state: state})
		}
	}
	expect(fsm.KindPut, fsm.OK, fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead, fsm.Acked, fsm.Cancelled, fsm.Expired)
	for _, code := range []fsm.Code{fsm.QueueChanged, fsm.Quota, fsm.JobExists, fsm.RateLimited, fsm.QueueFull,
		fsm.Invalid, fsm.RequestExpired} {
		expect(fsm.KindPut, code)
	}
	expect(fsm.KindReserve, fsm.OK)
	expect(fsm.KindAck, fsm.OK, fsm.Acked)
	expect(fsm.KindNack, fsm.OK, fsm.Delayed, fsm.Ready, fsm.Dead, fsm.Expired)
	expect(fsm.KindRelease, fsm.OK, fsm.Delayed, fsm.Ready, fsm.Dead, fsm.Expired)
	expect(fsm.KindExtend, fsm.OK)
	for _, kind := range []fsm.Kind{fsm.KindAck, fsm.KindNack, fsm.KindRelease, fsm.KindExtend} {
		expect(kind, fsm.StaleLease)
	}
	expect(fsm.KindCancel, fsm.OK, fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead)
	expect(fsm.KindCancel, fsm.JobReserved, fsm.Reserved)
	expect(fsm.KindCancel, fsm.JobNotFound, fsm.StateNone, fsm.Acked, fsm.Cancelled, fsm.Expired)
	expect(fsm.KindReschedule, fsm.OK, fsm.Delayed, fsm.Ready)
	expect(fsm.KindReschedule, fsm.JobReserved, fsm.Reserved)
	expect(fsm.KindReschedule, fsm.JobNotFound, fsm.StateNone, fsm.Dead, fsm.Acked, fsm.Cancelled, fsm.Expired)
	for _, kind := range []fsm.Kind{fsm.KindRedrive, fsm.KindPurge, fsm.KindDeleteQueue} {
		expect(kind, fsm.OK)
		expect(kind, fsm.QueueNotFound)
	}
	for _, kind := range []fsm.Kind{fsm.KindPurge, fsm.KindDeleteQueue, fsm.KindExpire} {
		want = append(want, outcome{kind: kind, more: true})
	}
	expect(fsm.KindConfigure, fsm.OK)
	expect(fsm.KindConfigure, fsm.QueueChanged)
	expect(fsm.KindConfigure, fsm.Quota)
	expect(fsm.KindOpen, fsm.OK)
	expect(fsm.KindOpen, fsm.QueueExists)
	expect(fsm.KindOpen, fsm.Quota)
	expect(fsm.KindExpire, fsm.OK)
	expect(fsm.KindLead, fsm.OK)
	expect(fsm.KindResetClock, fsm.OK)
	expectLater(expect)
	want = append(want, outcome{
		kind: fsm.KindReserve, replayed: true,
	}, outcome{kind: fsm.KindPut, state: fsm.Ready, replayed: true},
		outcome{
			kind: fsm.KindAck, state: fsm.Acked, replayed: true,
		}, outcome{kind: fsm.KindNack, state: fsm.Dead, replayed: true})
	for _, o := range want {
		if s.outcomes[o] == 0 {
			t.Errorf("no command came to %+v", o)
		}
	}
	if s.found == 0 || s.schedules == 0 || s.first == 0 {
		t.Error("no search found a job")
	}
	for _, r := range []recalled{{false, fsm.OK}, {true, fsm.OK}, {false, fsm.Invalid}} {
		if s.recalls[r] == 0 {
			t.Errorf("no recall came to %+v", r)
		}
	}
	for _, code := range []fsm.Code{fsm.QueueFull, fsm.RateLimited} {
		if s.refusals[code] == 0 {
			t.Errorf("no put was refused beforehand with code %d", code)
		}
	}
}

// expectLater expects the outcomes of what format 4 adds.
func expectLater(expect func(kind fsm.Kind, code fsm.Code, states ...fsm.State)) {
	held := []fsm.State{fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead}
	expect(fsm.KindPut, fsm.KeyRefused)
	expect(fsm.KindPut, fsm.VersionChanged, append(held, fsm.StateNone)...)
	expect(fsm.KindPut, fsm.JobReserved, fsm.Reserved)
	for kind := fsm.KindPauseKey; kind <= fsm.KindRunSchedule; kind++ {
		expect(kind, fsm.OK)
	}
	for _, kind := range []fsm.Kind{
		fsm.KindPauseKey, fsm.KindPurgeKey, fsm.KindDeleteSchedule, fsm.KindPauseSchedules, fsm.KindFire, fsm.KindRunSchedule,
	} {
		if kind != fsm.KindFire { // a Fire names a schedule that was there
			expect(kind, fsm.QueueNotFound)
		}
	}
	for _, code := range []fsm.Code{fsm.QueueChanged, fsm.Quota, fsm.VersionChanged} {
		expect(fsm.KindPutSchedule, code)
	}
	for _, code := range []fsm.Code{fsm.ScheduleNotFound, fsm.VersionChanged} {
		expect(fsm.KindDeleteSchedule, code)
		expect(fsm.KindFire, code)
	}
	expect(fsm.KindFire, fsm.QueueFull)
	expect(fsm.KindRunSchedule, fsm.ScheduleNotFound)
	expect(fsm.KindKick, fsm.OK)
	expect(fsm.KindKick, fsm.QueueNotFound)
	expect(fsm.KindKick, fsm.JobNotFound, fsm.StateNone, fsm.Ready)
	expect(fsm.KindKick, fsm.JobReserved, fsm.Reserved)
	expect(fsm.KindReserveJob, fsm.OK)
	expect(fsm.KindReserveJob, fsm.JobNotFound)
	expect(fsm.KindReserveJob, fsm.JobReserved, fsm.Reserved)
	expect(fsm.KindReserveJob, fsm.RateLimited, fsm.Delayed, fsm.Ready, fsm.Dead)
}
