// Package schedules judges the jobs of schedules by what clients were handed and told.
package schedules

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/wire"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The invariants that Check looks at.
const (
	Once finding.Invariant = 46
	All  finding.Invariant = 47
)

// Run is what is judged.
type Run struct {
	Ops []*history.Op
	// Drained says that consumers had drained all queues in the end.
	Drained bool
}

// name is a schedule.
type name struct{ queue, name string }

// handed is a job of a schedule as it was handed out first.
type handed struct {
	serial    uint64
	partition uint32
	op        *history.Op
}

// schedule is what clients were told of one.
type schedule struct {
	name
	// first is the first time that a put was answered with; 0 if no put was answered. If the clock of the
	// node was wrong, it is the time after which the leader finds the first nominal one.
	first fsm.Time
	spec  *belfryv1.ScheduleSpec
	// changed says that it was given another content, deleted, triggered or filled, perhaps. A pause
	// changes nothing of what is judged.
	changed bool
	jobs    map[fsm.Time]handed
	// last is what was read of it last, and when.
	last *belfryv1.Schedule
	read time.Duration
}

// judge looks at the schedules of a run.
type judge struct {
	*Run
	found     *finding.Set
	schedules map[name]*schedule
}

// Check holds what clients were handed and told against the nominal times.
func Check(run *Run, found *finding.Set) {
	j := &judge{Run: run, found: found, schedules: map[name]*schedule{}}
	for _, o := range run.Ops {
		j.hear(o)
	}
	for _, n := range slices.SortedFunc(maps.Keys(j.schedules), func(a, b name) int {
		return cmp.Or(strings.Compare(a.queue, b.queue), strings.Compare(a.name, b.name))
	}) {
		j.complete(j.schedules[n])
	}
}

func (j *judge) of(queue, called string) *schedule {
	n := name{queue, called}
	s := j.schedules[n]
	if s == nil {
		s = &schedule{name: n, jobs: map[fsm.Time]handed{}}
		j.schedules[n] = s
	}
	return s
}

// hear takes note of what a call was told.
func (j *judge) hear(o *history.Op) {
	switch r := o.Request.(type) {
	case *belfryv1.PutScheduleRequest:
		j.put(o, r)
	case *belfryv1.DeleteScheduleRequest:
		j.of(r.GetQueue(), r.GetName()).changed = true
	case *belfryv1.TriggerScheduleRequest:
		j.of(r.GetQueue(), r.GetName()).changed = true
	case *belfryv1.BackfillScheduleRequest:
		j.of(r.GetQueue(), r.GetName()).changed = true
	case *belfryv1.GetScheduleRequest:
		resp, ok := o.Response.(*belfryv1.GetScheduleResponse)
		if s := j.of(r.GetQueue(), r.GetName()); ok && o.OK() && o.Returned > s.read && !r.GetStale() {
			s.last, s.read = resp.GetSchedule(), o.Returned
		}
	case *belfryv1.ReserveRequest:
		resp, _ := o.Response.(*belfryv1.ReserveResponse)
		for _, job := range resp.GetJobs() {
			if of := job.GetHeaders()[fsm.HeaderSchedule]; of != "" {
				j.handed(o, job, of)
			}
		}
	}
}

// put takes note of a schedule that was put.
func (j *judge) put(o *history.Op, r *belfryv1.PutScheduleRequest) {
	s := j.of(r.GetQueue(), r.GetName())
	resp, ok := o.Response.(*belfryv1.PutScheduleResponse)
	if ok && o.OK() && (s.spec == nil || !resp.GetReplaced()) {
		if next := wire.TimeOf(resp.GetNext()); s.first == 0 || next < s.first {
			s.first = next
		}
		s.spec = r.GetSpec()
		return
	}
	if o.OK() || o.Outcome != belfryv1.Outcome_OUTCOME_NOT_APPLIED && s.spec != nil {
		s.changed = true
	}
}

// handed judges a job of a schedule that was handed out.
func (j *judge) handed(o *history.Op, job *belfryv1.Job, of string) {
	at, err := time.Parse(time.RFC3339Nano, job.GetHeaders()[fsm.HeaderNominal])
	if err != nil {
		j.found.Violated(Once, o.Returned, "%s was handed job %s of %s, whose nominal time is %q", wire.Describe(o),
			job.GetId(), job.GetQueue(), job.GetHeaders()[fsm.HeaderNominal])
		return
	}
	nominal, s := fsm.Time(at.UnixNano()), j.of(job.GetQueue(), of)
	j.found.Look(Once)
	if told := wire.TimeOf(job.GetWitness().GetTime()); told < nominal && !s.changed { // a backfill may be of later
		j.found.Violated(Once, o.Returned, "%s was handed job %s of %s at %d, before it has come", wire.Describe(o),
			job.GetId(), job.GetQueue(), told)
	}
	ref, ok := wire.ParseLease(job.GetLease())
	if !ok {
		return
	}
	first, twice := s.jobs[nominal]
	if twice && (first.serial != ref.Serial || first.partition != ref.Partition) {
		j.found.Violated(Once, o.Returned, "schedule %s of %s fired at %s as job %d, handed out by %s, and as job %d, by %s",
			of, job.GetQueue(), at, first.serial, wire.Describe(first.op), ref.Serial, wire.Describe(o))
	}
	if !twice {
		s.jobs[nominal] = handed{ref.Serial, ref.Partition, o}
	}
}

// complete looks for nominal times of a schedule that nobody saw. Only of those that nobody touched is it
// known which times there were.
func (j *judge) complete(s *schedule) {
	if s.changed || s.first == 0 || s.last.GetNext() == nil || !j.Drained {
		return
	}
	spec := &fsm.ScheduleSpec{Cron: s.spec.GetCron(), Every: s.spec.GetEvery().AsDuration(),
		Phase: s.spec.GetPhase().AsDuration(), Start: wire.TimeOf(s.spec.GetStart()), End: wire.TimeOf(s.spec.GetEnd())}
	next, counts := wire.TimeOf(s.last.GetNext()), s.last.GetCounts()
	var times, seen uint64
	var lost fsm.Time
	first, ok := Nominal(spec, s.first-1)
	if !ok {
		first, ok = s.first, true
	}
	for at := first; ok && at != 0 && at < next; at, ok = Nominal(spec, at) {
		times++
		if _, there := s.jobs[at]; there {
			seen++
		} else if lost == 0 {
			lost = at
		}
	}
	j.found.LookMany(All, int64(times)) //nolint:gosec // seconds of a run
	if dealt := counts.GetFired() + counts.GetMissed() + counts.GetSkipped(); dealt != times {
		j.found.Violated(All, s.read, "schedule %s of %s dealt with %d nominal times (%v), there were %d from %d to %d",
			s.name.name, s.queue, dealt, counts, times, first, next)
	}
	if seen != counts.GetFired() {
		j.found.Violated(All, s.read, "schedule %s of %s says that it fired %d times, %d jobs were handed out; the first "+
			"that was not is of %d", s.name.name, s.queue, counts.GetFired(), seen, lost)
	}
	steady := s.last.GetPolicy().GetCatchUp() == belfryv1.CatchUp_CATCH_UP_ALL &&
		s.last.GetPolicy().GetOverlap() <= belfryv1.Overlap_OVERLAP_ALLOW
	if steady && seen != times {
		j.found.Violated(All, s.read, "schedule %s of %s is to catch up with all, and %d of %d nominal times have no job, "+
			"the first at %d", s.name.name, s.queue, times-seen, times, lost)
	}
}
