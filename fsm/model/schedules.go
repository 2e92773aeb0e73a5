package model

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// schedule returns a schedule of a queue, nil if it has none of that name.
func (q *queue) schedule(name string) *fsm.Schedule {
	for _, s := range q.schedules {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// schedule is the part of the rules that commands about a schedule have in common.
func (m *Model) schedule(queue, name string) (*queue, *fsm.Schedule, fsm.Code) {
	q := m.name(queue)
	if q == nil {
		return nil, nil, fsm.QueueNotFound
	}
	if q.schedule(name) == nil {
		return nil, nil, fsm.ScheduleNotFound
	}
	return q, q.schedule(name), fsm.OK
}

// putSchedule is rule PutSchedule.
func (m *Model) putSchedule(c *fsm.PutSchedule) (result fsm.Result, changed bool) {
	if c.IfVersion != 0 && m.queue(c.Queue) == nil {
		return fsm.Result{Code: fsm.VersionChanged}, false
	}
	if c.Job.Key != "" && c.Partitions > 1 {
		return fsm.Result{Code: fsm.KeyRefused}, false
	}
	q := m.name(c.Queue)
	if q == nil && (c.Partition != 0 || c.Partitions != 1) {
		return fsm.Result{Code: fsm.QueueChanged}, false
	}
	if q == nil && m.queuesFull() {
		return fsm.Result{Code: fsm.Quota}, false
	}
	if q == nil {
		q, changed = m.createQueue(c.Queue, c.Partition, c.Partitions), true
	}
	if q.Partition != c.Partition || q.Partitions != c.Partitions {
		return fsm.Result{Code: fsm.QueueChanged}, false
	}
	s := q.schedule(c.Name)
	before := uint64(0)
	if s != nil {
		before = scheduleBytes(s.Name, &s.Job)
	}
	if q.grows(before, scheduleBytes(c.Name, &c.Job)) {
		return fsm.Result{Code: fsm.QueueFull}, changed
	}
	if c.IfVersion != 0 && (s == nil || s.Version != c.IfVersion) {
		if s != nil {
			result.Version = s.Version
		}
		result.Code = fsm.VersionChanged
		return result, changed
	}
	if s != nil && bytes.Equal(codec.AppendDefinition(nil, &s.Spec, &s.Policy, &s.Job),
		codec.AppendDefinition(nil, &c.Spec, &c.Policy, &c.Job)) {
		return fsm.Result{Serial: s.Serial, Version: s.Version, Due: s.Next}, changed
	}
	held := 0
	for _, q := range m.queues {
		held += len(q.schedules)
	}
	if s == nil && held >= m.cfg.SchedulesMax {
		return fsm.Result{Code: fsm.Quota}, changed
	}
	result.Replaced, result.Created = s != nil, s == nil
	if s == nil {
		s = &fsm.Schedule{Queue: q.Name, Name: c.Name, Serial: m.nextSerial(), Created: m.Clock}
		s.Version = s.Serial + uint64(q.Partition)*versionsOfPartition
		q.schedules = append(q.schedules, s)
	} else {
		s.Version++
		m.Serial = max(m.Serial, s.Version%versionsOfPartition)
	}
	m.giveContent(s, c)
	result.Serial, result.Version, result.Due = s.Serial, s.Version, s.Next
	return result, true
}

// versionsOfPartition is how many versions the schedules of a partition can have.
const versionsOfPartition = 1 << 48

// giveContent gives a schedule the content of its version. A time that was to fire by now stays, whatever
// the rule; of two such times the later one. Any other time that has been planned stays while the rule does. By
// now is by the clock of the shard or of the caller, unless that one is wrong; then the leader has to look.
// Two times of which one is only by the clock of the caller both stay.
func (m *Model) giveContent(s *fsm.Schedule, c *fsm.PutSchedule) {
	ruleStays := s.ZoneData == c.ZoneData && sameSpec(s.Spec, c.Spec)
	s.Spec, s.Policy, s.Job, s.Changed = c.Spec, c.Policy, c.Job, m.Clock
	s.Job.Priority = normal(s.Job.Priority)
	wrong := c.NextAfter > m.Clock.Add(fsm.CallerAheadMax)
	came := func(t fsm.Time) bool { return m.passed(t) || !wrong && t <= c.NextAfter }
	switch {
	case ruleStays && s.Next != 0:
	case s.Next != 0 && came(s.Next) && (s.Pending || !s.Replan):
		if s.Replan { // Then is no time of a rule
			s.Then = 0
		}
		if s.Then > s.Next && m.passed(s.Then) {
			s.Counts.Missed++
			recall(s, fsm.Firing{Result: fsm.Missed, Nominal: s.Next, At: m.Clock, Count: 1})
			s.Last, s.Next = s.Next, s.Then
		}
		if s.Then <= s.Next || !came(s.Then) {
			s.Then = c.Next
		}
		if s.Replan = wrong; wrong {
			s.Then = m.Clock + 1
		}
		s.RuleVersion, s.Pending, s.ZoneData = s.Version, true, c.ZoneData
	default:
		s.RuleVersion = s.Version
		goOnAt(s, c.Next, c.ZoneData)
		if wrong {
			s.Next, s.Replan = max(s.Last, m.Clock+1), true
		}
	}
	endIfDone(s)
}

// goOnAt sets the next time of a schedule. If that is not after the last one, the leader has to look.
func goOnAt(s *fsm.Schedule, next fsm.Time, zoneData string) {
	s.Next, s.Then, s.Pending, s.ZoneData = next, 0, false, zoneData
	if s.Replan = next != 0 && next <= s.Last; s.Replan {
		s.Next = max(s.Last, 1)
	}
}

func sameSpec(a, b fsm.ScheduleSpec) bool {
	return bytes.Equal(codec.AppendSpec(nil, &a), codec.AppendSpec(nil, &b))
}

// scheduleBytes is what a schedule counts against maxBytes.
func scheduleBytes(name string, put *fsm.Put) uint64 {
	each := job{Job: fsm.Job{Generated: true, Key: put.Key, Headers: put.Headers, Body: put.Body}}
	return uint64(len(name)) + each.bytes()
}

// endIfDone ends a schedule that has fired as often as it may.
func endIfDone(s *fsm.Schedule) {
	if s.Policy.MaxFires != 0 && s.Counts.Fired >= s.Policy.MaxFires {
		s.Next, s.Replan, s.Pending, s.Then = 0, false, false, 0
	}
}

// deleteSchedule is rule DeleteSchedule.
func (m *Model) deleteSchedule(c *fsm.DeleteSchedule) fsm.Result {
	q, s, code := m.schedule(c.Queue, c.Name)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	if c.IfVersion != 0 && c.IfVersion != s.Version {
		return fsm.Result{Code: fsm.VersionChanged, Version: s.Version}
	}
	q.schedules = slices.DeleteFunc(q.schedules, func(other *fsm.Schedule) bool { return other == s })
	var result fsm.Result
	for _, serial := range s.Jobs {
		if j := q.bySerial(serial); c.CancelWaiting && j != nil && waiting(j) {
			q.Counters.Cancelled++
			m.endJob(q, j, fsm.Cancelled)
			result.Count++
		}
	}
	return result
}

// pauseSchedules is rule PauseSchedules.
func (m *Model) pauseSchedules(c *fsm.PauseSchedules) fsm.Result {
	q := m.name(c.Queue)
	if q == nil {
		return fsm.Result{Code: fsm.QueueNotFound}
	}
	var result fsm.Result
	bytes := uint64(0)
	for _, name := range c.Names {
		s := q.schedule(name)
		if s == nil || s.Paused != c.Resume {
			continue
		}
		if bytes >= 4<<20 {
			result.More = true
			break
		}
		s.Paused, s.Note = !c.Resume, c.Note
		result.Count++
		bytes += scheduleBytes(s.Name, &s.Job)
	}
	return result
}

// fire is rule Fire.
func (m *Model) fire(c *fsm.Fire) fsm.Result {
	q, s, code := m.schedule(c.Queue, c.Name)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	if !m.goesOn(s, c) {
		return fsm.Result{Code: fsm.VersionChanged, Version: s.Version}
	}
	alive := q.alive(s)
	skip := slices.ContainsFunc(alive, func(j *job) bool {
		return waiting(j) && s.Policy.Overlap != fsm.OverlapAllow || s.Policy.Overlap == fsm.OverlapSkip
	})
	var result fsm.Result
	if c.Put != 0 && !skip {
		j := m.firing(q, s, c.Put, c.Due)
		known := m.takesNot(q, j)
		if !known && q.isFull(j) {
			return fsm.Result{Code: fsm.QueueFull}
		}
		if !known {
			m.putFiring(q, s, j)
			result.Created, result.Serial = true, j.Serial
		}
	}
	if c.Missed > 0 {
		s.Counts.Missed += c.Missed
		recall(s, fsm.Firing{Result: fsm.Missed, Nominal: c.LastMissed, At: m.Clock, Count: c.Missed})
	}
	s.Last = max(s.Last, c.LastMissed, c.Put)
	if s.Pending {
		then, looks := s.Then, s.Replan
		goOnAt(s, then, s.ZoneData)
		if looks {
			s.Next, s.Replan = max(s.Last, then), true
		}
	} else {
		goOnAt(s, c.Next, c.ZoneData)
	}
	switch {
	case result.Created:
		s.Counts.Fired++
		recall(s, fsm.Firing{Result: fsm.Fired, Nominal: c.Put, At: m.Clock, Count: 1})
	case c.Put != 0:
		s.Counts.Skipped++
		recall(s, fsm.Firing{Result: fsm.Skipped, Nominal: c.Put, At: m.Clock, Count: 1})
	}
	if c.Put != 0 {
		s.Jobs = serialsOf(q, s)
		endIfDone(s)
	}
	return result
}

// goesOn reports whether a Fire goes on from a schedule: it names the present firing, which has come,
// all its times are in order, and it was planned by the present rule or deals with a pending time.
func (m *Model) goesOn(s *fsm.Schedule, c *fsm.Fire) bool {
	if s.Paused || s.Next == 0 || c.Serial != s.Serial || c.Version > s.Version || c.Nominal != s.Next {
		return false
	}
	if deals := c.Put != 0 || c.Missed != 0; s.Pending && !deals || !s.Pending && c.Version < s.RuleVersion {
		return false
	}
	times := []fsm.Time{s.Last}
	inOrder := func(t fsm.Time) bool {
		ok := t > times[len(times)-1]
		times = append(times, t)
		return ok
	}
	if (c.Missed == 0) != (c.LastMissed == 0) ||
		c.Missed > 0 && (!inOrder(c.LastMissed) || c.LastMissed < c.Nominal || c.LastMissed > m.Clock) ||
		c.Put != 0 && (!inOrder(c.Put) || c.Put < c.Nominal || c.Put > m.Clock) {
		return false
	}
	return m.passed(c.Nominal) && (c.Next == 0 || inOrder(c.Next))
}

// recall adds a firing to the last ones.
func recall(s *fsm.Schedule, f fsm.Firing) {
	s.Recent = append(slices.Clone(s.Recent), f)
	if len(s.Recent) > 10 {
		s.Recent = s.Recent[1:]
	}
}

// alive returns the jobs of a schedule, of those that it remembers, that have not ended.
func (q *queue) alive(s *fsm.Schedule) (jobs []*job) {
	for _, serial := range s.Jobs {
		if j := q.bySerial(serial); j != nil && j.State != fsm.Dead {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

func serialsOf(q *queue, s *fsm.Schedule) []uint64 {
	var serials []uint64
	for _, j := range q.alive(s) {
		serials = append(serials, j.Serial)
	}
	return serials
}

// firing is the job of a nominal time, without a serial.
func (m *Model) firing(q *queue, s *fsm.Schedule, nominal, due fsm.Time) *job {
	at := time.Unix(0, int64(nominal)).UTC().Format(time.RFC3339Nano)
	p := s.Job
	p.ID, p.Headers = "cron:"+s.Name+"@"+at, nil
	for _, h := range s.Job.Headers {
		if h.Name != "belfry-nominal" && h.Name != "belfry-schedule" {
			p.Headers = append(p.Headers, h)
		}
	}
	p.Headers = append(p.Headers, fsm.Header{Name: "belfry-nominal", Value: at},
		fsm.Header{Name: "belfry-schedule", Value: s.Name})
	slices.SortFunc(p.Headers, func(a, b fsm.Header) int { return cmp.Compare(a.Name, b.Name) })
	j := m.newJob(q, &p)
	j.FirstDue = due.Ceil()
	j.Due, j.State = j.FirstDue, m.stateAt(j.FirstDue)
	return j
}

// takesNot reports whether a queue takes no job of a firing: one of its id is there or remembered, or it
// takes no keys.
func (m *Model) takesNot(q *queue, j *job) bool {
	return q.byPutID(j.ID, j.Key) != nil || m.tombstoneOf(q, j.ID, j.Key) != nil || j.Key != "" && q.Settings.Keys.Refused
}

func (m *Model) putFiring(q *queue, s *fsm.Schedule, j *job) {
	s.Jobs = serialsOf(q, s)
	m.forgetID(q, j.ID, j.Key)
	j.Serial = m.nextSerial()
	q.jobs = append(q.jobs, j)
	q.Counters.Put++
	m.changed(q, j.Key)
	s.Jobs = append(s.Jobs, j.Serial)
	s.Jobs = s.Jobs[max(0, len(s.Jobs)-8):]
}

// runSchedule is rule RunSchedule.
func (m *Model) runSchedule(c *fsm.RunSchedule) fsm.Result {
	q, s, code := m.schedule(c.Queue, c.Name)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	var result fsm.Result
	most := fsm.RunJobs(&s.Job)
	for _, nominal := range atMost(c.Times, 1000) {
		j := m.firing(q, s, nominal, m.Clock)
		if enough := result.Count == most; !enough && m.takesNot(q, j) {
			continue
		} else if enough || q.isFull(j) {
			result.More, result.Due = true, nominal
			break
		}
		m.putFiring(q, s, j)
		s.Counts.Backfilled++
		recall(s, fsm.Firing{Result: fsm.Backfilled, Nominal: nominal, At: m.Clock, Count: 1})
		result.Count++
		endIfDone(s)
	}
	if result.More && result.Count == 0 {
		return fsm.Result{Code: fsm.QueueFull}
	}
	return result
}

// deadFiring is what rule PauseOnDead does when a job becomes DEAD.
func (q *queue) deadFiring(j *job) {
	rest, ok := strings.CutPrefix(j.ID, "cron:")
	at := strings.LastIndex(rest, "@")
	if j.Generated || !ok || at < 0 {
		return
	}
	if s := q.schedule(rest[:at]); s != nil && s.Policy.PauseOnDead && !s.Paused && s.Serial < j.Serial {
		s.Paused, s.Note = true, "job "+j.ID+" is dead"
	}
}

// NextFiring returns when the next schedule fires, 0 if none does.
func (m *Model) NextFiring() fsm.Time {
	next := fsm.Time(0)
	for _, q := range m.queues {
		for _, s := range q.schedules {
			if !m.restored.Open() && !s.Paused && s.Next != 0 && (next == 0 || s.Next < next) {
				next = s.Next
			}
		}
	}
	return next
}

// Schedules returns the schedules of a queue by name.
func (m *Model) Schedules(queue string) (list []fsm.Schedule) {
	if q := m.queue(queue); q != nil {
		for _, s := range q.schedules {
			list = append(list, *s)
		}
	}
	slices.SortFunc(list, func(a, b fsm.Schedule) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
