package ledger

import (
	"slices"
	"strings"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
)

// The rules of schedules.
const (
	firedOnce Rule = 46
	firedAll  Rule = 47
)

// schedule is what the ledger says of a schedule. See fsm/schedules/DESIGN.md.
type schedule struct {
	name            string
	serial, version uint64
	rule            uint64 // the version since which it has had its spec and zone
	spec            fsm.ScheduleSpec
	zone            string
	policy          fsm.SchedulePolicy
	job             fsm.Put
	next, last      fsm.Time
	changed         fsm.Time // when it got its content
	replan, paused  bool
	pending         bool     // next had come when the rule changed
	then            fsm.Time // the first time of the rule after the pending one
	fired           uint64
	// jobs are its last jobs that had not ended when it last put one, or skipped it.
	jobs []*Job
}

// onSchedule takes a command about schedules.
func (b *Shard) onSchedule(c fsm.Command, r *fsm.Result) {
	switch c := c.(type) {
	case *fsm.PutSchedule:
		b.putSchedule(c, r)
	case *fsm.DeleteSchedule:
		b.deleteSchedule(c, r)
	case *fsm.PauseSchedules:
		b.pauseSchedules(c, r)
	case *fsm.Fire:
		b.fire(c, r)
	case *fsm.RunSchedule:
		b.runSchedule(c, r)
	}
}

// scheduleOf finds the schedule of a command, in a queue that is then settled; nil if it is not there, or
// the answer is not what it must be.
func (b *Shard) scheduleOf(queue, name string, code fsm.Code) (*Queue, *schedule) {
	q := b.queues[queue]
	if q == nil {
		b.expect(firedOnce, code, fsm.QueueNotFound)
		return nil, nil
	}
	b.settleQueue(q)
	s := q.schedules[name]
	if s == nil {
		b.expect(firedOnce, code, fsm.ScheduleNotFound)
	}
	return q, s
}

// putSchedule records that a schedule was created, or got another content.
func (b *Shard) putSchedule(c *fsm.PutSchedule, r *fsm.Result) {
	b.look(firedOnce)
	known := b.queues[c.Queue]
	switch {
	case r.Code == fsm.Quota:
		return
	case c.IfVersion != 0 && known == nil:
		b.expect(firedOnce, r.Code, fsm.VersionChanged)
		return
	case c.Job.Key != "" && c.Partitions > 1:
		b.expect(37, r.Code, fsm.KeyRefused)
		return
	}
	q, code := b.home(c.Queue, c.Partition, c.Partitions)
	if code != fsm.OK {
		b.expect(30, r.Code, code)
		return
	}
	b.now.Effect = known == nil
	s := q.schedules[c.Name]
	if q.grows(s.bytes(), scheduleBytes(c.Name, &c.Job)) {
		b.expect(37, r.Code, fsm.QueueFull)
		return
	}
	if c.IfVersion != 0 && (s == nil || s.version != c.IfVersion) {
		b.expect(firedOnce, r.Code, fsm.VersionChanged)
		return
	}
	if !b.expect(firedOnce, r.Code, fsm.OK) {
		return
	}
	same := s != nil && sameDefinition(s, c)
	if r.Created != (s == nil) || r.Replaced != (s != nil && !same) {
		b.violated(firedOnce, "schedule %s of %s was put and answered %+v; it was there: %v, with this content: %v", c.Name,
			c.Queue, *r, s != nil, same)
	}
	if !same {
		s = b.changeSchedule(q, s, c)
	}
	if r.Serial != s.serial || r.Version != s.version || r.Due != s.next {
		b.violated(firedOnce, "schedule %s of %s was put and answered %+v; it has serial %d, version %d and next %d", c.Name,
			c.Queue, *r, s.serial, s.version, s.next)
	}
}

// bytes is what a schedule counts against the limit of bytes of its queue; 0 if there is none.
func (s *schedule) bytes() uint64 {
	if s == nil {
		return 0
	}
	return scheduleBytes(s.name, &s.job)
}

func scheduleBytes(name string, job *fsm.Put) uint64 {
	return uint64(len(name)) + bytesOf(&fsm.Put{Key: job.Key, Headers: job.Headers, Body: job.Body})
}

// changeSchedule creates a schedule, or gives it another content.
func (b *Shard) changeSchedule(q *Queue, s *schedule, c *fsm.PutSchedule) *schedule {
	b.effect(nil)
	q.counts.Bytes += scheduleBytes(c.Name, &c.Job) - s.bytes()
	if s == nil {
		s = &schedule{name: c.Name, serial: b.take()}
		s.version = uint64(c.Partition)<<48 + s.serial - 1
		q.schedules[c.Name] = s
	}
	s.version++
	b.serial = max(b.serial, s.version%(1<<48)) // no later one of the name has a version of this one
	ruleChanges := s.next == 0 || s.zone != c.ZoneData || !sameSpec(&s.spec, &c.Spec)
	s.spec, s.policy, s.job, s.changed = c.Spec, c.Policy, c.Job, b.clock
	if ruleChanges {
		b.changeRule(s, c)
	}
	s.endIfDone()
	return s
}

// changeRule gives a schedule another rule. The first time that the caller found is after its present: that
// is some time after the shard's at most, or the caller is wrong and the leader has to look.
func (b *Shard) changeRule(s *schedule, c *fsm.PutSchedule) {
	now, then := b.clock, c.Next
	looks := c.NextAfter.Sub(b.clock) > fsm.CallerAheadMax
	if !looks {
		now = max(now, c.NextAfter)
	}
	s.rule = s.version
	if s.next != 0 && s.next <= now && (s.pending || !s.replan) { // it is to fire by now, and is not dropped
		if s.replan {
			s.then = 0 // it was no time of a rule
		}
		if s.pending && s.then > s.next && s.then <= b.clock {
			b.count("nominal times missed", 1)
			s.last, s.next = s.next, s.then
		}
		switch {
		case looks:
			then = b.clock + 1
		case s.pending && s.then > s.next && s.then <= now: // it is about to come
			then = s.then
		}
		s.pending, s.then, s.replan, s.zone = true, then, looks, c.ZoneData
		return
	}
	if s.goOn(then, c.ZoneData); looks {
		s.next, s.replan = max(s.last, b.clock+1), true
	}
}

// goOn sets the next time. One that is not after the last one is no time of the rule.
func (s *schedule) goOn(next fsm.Time, zone string) {
	s.next, s.zone, s.pending, s.then = next, zone, false, 0
	if s.replan = next != 0 && next <= s.last; s.replan {
		s.next = max(s.last, 1)
	}
}

// endIfDone ends a schedule that has fired as often as it may.
func (s *schedule) endIfDone() {
	if s.policy.MaxFires != 0 && s.fired >= s.policy.MaxFires {
		s.next, s.replan, s.pending, s.then = 0, false, false, 0
	}
}

// sameDefinition reports whether a schedule has the content that is put.
func sameDefinition(s *schedule, c *fsm.PutSchedule) bool {
	return sameSpec(&s.spec, &c.Spec) && s.policy == c.Policy && s.job.Key == c.Job.Key && SameContent(&s.job, &c.Job)
}

func sameSpec(x, y *fsm.ScheduleSpec) bool {
	return x.Cron == y.Cron && x.Every == y.Every && x.Phase == y.Phase && x.TimeZone == y.TimeZone && x.DST == y.DST &&
		x.Start == y.Start && x.End == y.End && x.Jitter == y.Jitter && slices.Equal(x.Exclude, y.Exclude)
}

// deleteSchedule records that a schedule went.
func (b *Shard) deleteSchedule(c *fsm.DeleteSchedule, r *fsm.Result) {
	q, s := b.scheduleOf(c.Queue, c.Name, r.Code)
	if s == nil {
		return
	}
	if c.IfVersion != 0 && c.IfVersion != s.version {
		b.expect(firedOnce, r.Code, fsm.VersionChanged)
		return
	}
	if !b.expect(firedOnce, r.Code, fsm.OK) {
		return
	}
	b.effect(nil)
	delete(q.schedules, c.Name)
	q.counts.Bytes -= s.bytes()
	n := uint64(0)
	for _, a := range s.jobs {
		if c.CancelWaiting && (a.State == fsm.Delayed || a.State == fsm.Ready) {
			q.counters.Cancelled++
			a.lift()
			a.why = cancelled
			b.endJob(a, fsm.Cancelled)
			n++
		}
	}
	if r.Count != n {
		b.violated(23, "%d jobs of schedule %s of %s were cancelled, should be %d", r.Count, c.Name, c.Queue, n)
	}
}

// pauseSchedules records that schedules were paused or resumed.
func (b *Shard) pauseSchedules(c *fsm.PauseSchedules, r *fsm.Result) {
	q := b.present(firedOnce, c.Queue, r.Code)
	if q == nil {
		return
	}
	n, bytes, more := uint64(0), uint64(0), false
	for _, name := range c.Names {
		s := q.schedules[name]
		if s == nil || s.paused != c.Resume {
			continue
		}
		if more = bytes >= fsm.FiringsBytesMax; more {
			break
		}
		s.paused = !c.Resume
		n, bytes = n+1, bytes+s.bytes()
	}
	if n > 0 {
		b.effect(nil)
	}
	if r.Count != n || r.More != more {
		b.violated(firedOnce, "%d schedules of %s were paused or resumed, should be %d; some are left: %v, should be %v",
			r.Count, c.Queue, n, r.More, more)
	}
}

// pauseOnDead pauses the schedule of a job that has become dead, if it is to.
func (b *Shard) pauseOnDead(a *Job) {
	rest, ok := strings.CutPrefix(a.ID, "cron:")
	at := strings.LastIndexByte(rest, '@')
	if !ok || at < 0 {
		return
	}
	if s := a.Queue.schedules[rest[:at]]; s != nil && s.policy.PauseOnDead && a.Serial > s.serial {
		s.paused = true
	}
}

// fire records that a schedule dealt with nominal times.
func (b *Shard) fire(c *fsm.Fire, r *fsm.Result) {
	q, s := b.scheduleOf(c.Queue, c.Name, r.Code)
	if s == nil {
		return
	}
	b.look(firedOnce)
	if why := b.outOfPlan(s, c); why != "" {
		if b.count("firings that came too late", 1); r.Code != fsm.VersionChanged {
			b.violated(firedOnce, "schedule %s of %s fired with code %d for %+v, %s", c.Name, c.Queue, r.Code, *c, why)
		}
		return
	}
	if r.Code == fsm.QueueFull {
		return
	}
	if !b.expect(firedOnce, r.Code, fsm.OK) {
		return
	}
	b.effect(nil)
	b.judgeTimes(s, c)
	b.putFired(q, s, c, r)
	s.last = max(s.last, c.LastMissed, c.Put)
	if s.pending {
		then, looks := s.then, s.replan
		if s.goOn(then, s.zone); looks {
			s.next, s.replan = max(s.last, then), true
		}
	} else {
		s.goOn(c.Next, c.ZoneData)
	}
	if c.Put != 0 {
		s.endIfDone()
	}
	b.count("nominal times missed", int64(c.Missed)) //nolint:gosec // few
}

// outOfPlan says why a firing does not go on from the schedule as it is, empty if it does.
func (b *Shard) outOfPlan(s *schedule, c *fsm.Fire) string {
	latest := s.last
	follows := func(t fsm.Time) bool {
		ok := t == 0 || t > latest
		latest = max(latest, t)
		return ok
	}
	switch {
	case s.paused:
		return "and is paused"
	case s.next == 0 || c.Serial != s.serial || c.Version > s.version || c.Nominal != s.next:
		return "and is to fire otherwise"
	case !s.pending && c.Version < s.rule:
		return "planned by an earlier rule"
	case s.pending && c.Put == 0 && c.Missed == 0:
		return "and drops a pending firing"
	case c.Nominal > b.clock || c.Put > b.clock || c.LastMissed > b.clock:
		return "which has not come"
	case (c.Missed == 0) != (c.LastMissed == 0) || c.LastMissed != 0 && c.LastMissed < c.Nominal ||
		c.Put != 0 && c.Put < c.Nominal || !follows(c.LastMissed) || !follows(c.Put) || !follows(c.Next):
		return "and its times are out of order"
	}
	return ""
}

// judgeTimes holds the times of a firing against the calendar: each nominal time is put or counted as
// missed, and the next one is not passed over. Which times the rule of a pending one had is not known.
func (b *Shard) judgeTimes(s *schedule, c *fsm.Fire) {
	if b.cfg.Nominal == nil || s.pending {
		return
	}
	known := true
	after := func(t fsm.Time) fsm.Time {
		next, ok := b.cfg.Nominal(&s.spec, t)
		known = known && ok
		return next
	}
	switch {
	case s.replan:
		want := after(max(s.last, min(s.changed, s.next-1)))
		if b.look(firedAll); known && c.Next != want {
			b.violated(firedAll, "schedule %s was to be planned from %d on, its first time is %d: a leader planned it for %d",
				s.name, s.next, want, c.Next)
		}
		return
	case c.Put == 0 && c.Missed == 0:
		b.judgePlan(s, c, after)
		return
	}
	missed, at := uint64(0), c.Nominal
	for at != 0 && at <= c.LastMissed && known {
		missed, at = missed+1, after(at)
	}
	due := at
	if c.Put != 0 {
		at = after(c.Put)
	}
	if !known {
		return
	}
	b.look(firedAll)
	if missed != c.Missed {
		b.violated(firedAll, "schedule %s: %d nominal times from %d to %d are missed, %d were counted", s.name, missed,
			c.Nominal, c.LastMissed, c.Missed)
	}
	if c.Put != 0 && c.Put != due {
		b.violated(firedAll, "schedule %s put the job of %d, the nominal time after %d is %d", s.name, c.Put, c.LastMissed,
			due)
	}
	if at != c.Next {
		b.violated(firedAll, "schedule %s fires at %d next, its nominal time after %d is %d", s.name, c.Next,
			max(c.Put, c.LastMissed), at)
	}
	window := s.policy.Window
	if window == 0 {
		window = fsm.DefaultScheduleWindow
	}
	if c.Missed > 0 && s.policy.CatchUp == fsm.CatchUpAll && c.LastMissed.Add(window) > b.clock {
		b.violated(firedAll, "schedule %s: %d nominal times up to %d are missed, and are to be caught up with", s.name,
			c.Missed, c.LastMissed)
	}
}

// judgePlan holds the next time that a leader found anew against the calendar: it has other time-zone data
// than the one that the schedule was planned with. It may be an earlier one, since the clock of a caller
// can be ahead of the shard.
func (b *Shard) judgePlan(s *schedule, c *fsm.Fire, after func(fsm.Time) fsm.Time) {
	b.look(firedAll)
	if c.Next <= s.changed || c.Next > c.Nominal || after(c.Next-1) != c.Next {
		b.violated(firedAll, "schedule %s was to fire at %d, a leader planned it for %d", s.name, c.Nominal, c.Next)
	}
}

// putFired records the job of a firing, or why there is none.
func (b *Shard) putFired(q *Queue, s *schedule, c *fsm.Fire, r *fsm.Result) {
	if c.Put == 0 {
		return
	}
	s.forgetEnded()
	skip := slices.ContainsFunc(s.jobs, func(a *Job) bool {
		return s.policy.Overlap == fsm.OverlapSkip || s.policy.Overlap == fsm.OverlapOneWaiting && a.State != fsm.Reserved
	})
	p := firing(s, c.Put)
	taken := b.takesNot(q, p)
	b.look(firedAll)
	if r.Created != (!skip && !taken) {
		b.violated(firedAll, "schedule %s fired at %d, a job was put: %v; one of its jobs has not ended: %v, its id is "+
			"taken: %v", s.name, c.Put, r.Created, skip, taken)
	}
	if !r.Created {
		return
	}
	b.made(r.Serial)
	b.begin(q, s, p, r.Serial, c.Due.Ceil())
	s.fired++
	b.count("jobs of schedules", 1)
}

// forgetEnded drops the jobs that have ended by now. One that is DEAD has, even if it is redriven later.
func (s *schedule) forgetEnded() {
	s.jobs = slices.DeleteFunc(s.jobs, func(a *Job) bool { return !a.State.Held() || a.State == fsm.Dead })
}

// firing is the put of a job of a schedule.
func firing(s *schedule, nominal fsm.Time) *fsm.Put {
	p := s.job
	p.ID = fsm.ScheduleJobID(s.name, nominal)
	p.Headers = slices.DeleteFunc(slices.Clone(p.Headers), func(h fsm.Header) bool {
		return h.Name == fsm.HeaderNominal || h.Name == fsm.HeaderSchedule
	})
	p.Headers = append(p.Headers, fsm.Header{Name: fsm.HeaderNominal, Value: fsm.FormatTime(nominal)},
		fsm.Header{Name: fsm.HeaderSchedule, Value: s.name})
	slices.SortFunc(p.Headers, func(x, y fsm.Header) int { return strings.Compare(x.Name, y.Name) })
	return &p
}

// takesNot reports whether a queue takes no job of a firing.
func (b *Shard) takesNot(q *Queue, p *fsm.Put) bool {
	a := q.find(p.ID, q.ofPut(p))
	return a != nil && (a.State.Held() || !b.forgotten(a)) || p.Key != "" && q.Settings.Keys.Refused
}

// begin adds the job of a firing.
func (b *Shard) begin(q *Queue, s *schedule, p *fsm.Put, serial uint64, due fsm.Time) {
	a := &Job{Queue: q, Put: p, ID: p.ID, Index: b.entry.Index, Serial: serial, Created: b.clock, Due: due, FirstDue: due,
		left: b.clock, bytes: bytesOf(p), PutAt: b.entry.At, TTL: b.ttlOf(p)}
	q.counters.Put++
	q.counts.Bytes += a.bytes
	q.name(a)
	b.keep(a)
	b.set(a, b.stateAt(due), due)
	s.jobs = append(s.jobs, a)
	s.jobs = s.jobs[max(0, len(s.jobs)-fsm.ScheduleJobsKept):]
}

// runSchedule records that jobs were put for given nominal times.
func (b *Shard) runSchedule(c *fsm.RunSchedule, r *fsm.Result) {
	q, s := b.scheduleOf(c.Queue, c.Name, r.Code)
	if s == nil {
		return
	}
	n, most := uint64(0), fsm.FiringsBytesMax/max(1, bytesOf(&s.job))
	left := fsm.Time(0)
	for _, nominal := range c.Times[:min(len(c.Times), fsm.RunMax)] {
		p := firing(s, nominal)
		enough := n > 0 && n >= most
		if !enough && b.takesNot(q, p) {
			continue
		}
		if enough || n == r.Count && (r.More || r.Code == fsm.QueueFull) {
			left = nominal
			break
		}
		s.forgetEnded()
		b.begin(q, s, p, b.take(), b.clock.Ceil())
		n++
		s.endIfDone()
	}
	if n > 0 {
		b.effect(nil)
	}
	b.look(firedOnce)
	if r.Count != n || r.Due != left && r.Code == fsm.OK {
		b.violated(firedOnce, "%d jobs of schedule %s of %s were put, should be %d; %d is left, should be %d", r.Count,
			c.Name, c.Queue, n, r.Due, left)
	}
}

// NextFiring returns when the next schedule fires that is not paused, 0 if none does.
func (b *Shard) NextFiring() (next fsm.Time) {
	for _, q := range b.queues {
		for _, s := range q.schedules {
			if !s.paused && s.next != 0 && (next == 0 || s.next < next) {
				next = s.next
			}
		}
	}
	return next
}

// adoptSchedules takes the schedules of a queue over.
func (b *Shard) adoptSchedules(m *machine.Machine, q *Queue) {
	clear(q.schedules)
	page := m.Answer(&fsm.SchedulesQuery{Queue: q.Name, Max: 1 << 30}, b.clock)
	for i := range page.Schedules {
		reading := m.Answer(&fsm.ScheduleQuery{Queue: q.Name, Name: page.Schedules[i].Name}, b.clock)
		v := &reading.Schedules[0]
		s := &schedule{name: v.Name, serial: v.Serial, version: v.Version, spec: v.Spec, policy: v.Policy, job: v.Job,
			next: v.Next, last: v.Last, changed: v.Changed, replan: v.Replan, paused: v.Paused, fired: v.Counts.Fired,
			rule: v.RuleVersion, zone: v.ZoneData, pending: v.Pending, then: v.Then}
		for _, serial := range v.Jobs {
			if a := b.jobs[serial]; a != nil {
				s.jobs = append(s.jobs, a)
			}
		}
		q.schedules[v.Name] = s
	}
}
