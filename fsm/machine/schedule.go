package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/rule"
	"github.com/belfrydb/belfry/fsm/schedules"
)

// applySchedule is the part of apply about schedules.
func (m *Machine) applySchedule(c fsm.Command) (result fsm.Result, changed bool) {
	switch c := c.(type) {
	case *fsm.PutSchedule:
		return m.putSchedule(c)
	case *fsm.DeleteSchedule:
		return m.deleteSchedule(c)
	case *fsm.PauseSchedules:
		return m.pauseSchedules(c)
	case *fsm.Fire:
		return m.fire(c)
	case *fsm.RunSchedule:
		return m.runSchedule(c)
	default:
		return fsm.Result{}, false
	}
}

// schedule settles a queue and finds a schedule of it.
func (m *Machine) schedule(queue, name string) (q *queue, index uint32, code fsm.Code) {
	if q = m.queues.byName[queue]; q == nil {
		return nil, 0, fsm.QueueNotFound
	}
	m.settleQueue(q)
	if index = q.schedules.Find(name); index == 0 {
		return q, 0, fsm.ScheduleNotFound
	}
	return q, index, fsm.OK
}

func (m *Machine) putSchedule(c *fsm.PutSchedule) (fsm.Result, bool) {
	if m.queues.byName[c.Queue] == nil && c.IfVersion != 0 {
		return fsm.Result{Code: fsm.VersionChanged}, false
	}
	if c.Job.Key != "" && c.Partitions > 1 { // the schedule and its jobs could be in two partitions
		return fsm.Result{Code: fsm.KeyRefused}, false
	}
	created := m.scalars.QueuesCreated
	q, code := m.home(c.Queue, c.Partition, c.Partitions)
	if code != fsm.OK {
		return fsm.Result{Code: code}, false
	}
	before, bytes := m.store.Schedules.Bytes(q.schedules.Find(c.Name)), fsm.ScheduleBytes(c.Name, &c.Job)
	if rule.TooLarge(m.touch(q), before, bytes) {
		return fsm.Result{Code: fsm.QueueFull}, false
	}
	result, changed := q.schedules.Put(c)
	return result, changed || m.scalars.QueuesCreated != created
}

func (m *Machine) deleteSchedule(c *fsm.DeleteSchedule) (fsm.Result, bool) {
	q, index, code := m.schedule(c.Queue, c.Name)
	if code != fsm.OK {
		return fsm.Result{Code: code}, false
	}
	s := q.schedules.Get(index)
	if c.IfVersion != 0 && c.IfVersion != s.Version {
		return fsm.Result{Code: fsm.VersionChanged, Version: s.Version}, false
	}
	m.touch(q)
	q.schedules.Remove(index)
	var n uint64
	for _, serial := range s.Jobs {
		j := job{m.store.BySerial(q.index, serial), q}
		if !c.CancelWaiting || j.index == 0 {
			continue
		}
		if state := m.slot(j).State(); state == fsm.Delayed || state == fsm.Ready {
			m.touch(q).Counters.Cancelled++
			m.lift(j)
			m.end(j, fsm.Cancelled)
			n++
		}
	}
	return fsm.Result{Count: n}, true
}

func (m *Machine) pauseSchedules(c *fsm.PauseSchedules) (fsm.Result, bool) {
	q := m.queues.byName[c.Queue]
	if q == nil {
		return fsm.Result{Code: fsm.QueueNotFound}, false
	}
	m.settleQueue(q)
	result := q.schedules.Pause(c)
	return result, result.Count > 0
}

// fire deals with firings of a schedule whose time has come.
func (m *Machine) fire(c *fsm.Fire) (fsm.Result, bool) {
	q, index, code := m.schedule(c.Queue, c.Name)
	if code != fsm.OK {
		return fsm.Result{Code: code}, false
	}
	s := q.schedules.Get(index)
	if !schedules.GoesOn(&s, c, m.scalars.Clock) {
		return fsm.Result{Code: fsm.VersionChanged, Version: s.Version}, false
	}
	var result fsm.Result
	outcome := fsm.Skipped
	if c.Put != 0 && !schedules.Overlaps(&s, q.schedules.KeepHeld(&s)) {
		serial, full := m.putFiring(q, &s, c.Put, c.Due)
		if full {
			return fsm.Result{Code: fsm.QueueFull}, false
		}
		if serial != 0 {
			result.Created, result.Serial, outcome = true, serial, fsm.Fired
		}
	}
	schedules.MoveOn(&s, c, m.scalars.Clock)
	if c.Put != 0 {
		schedules.Count(&s, outcome, c.Put, m.scalars.Clock)
	}
	q.schedules.Set(index, &s)
	return result, true
}

// putFiring puts the job of a firing, and returns its serial: 0 if a job of that id is there or
// remembered, if the queue takes no key, or if it is full.
func (m *Machine) putFiring(q *queue, s *fsm.Schedule, nominal, due fsm.Time) (serial uint64, full bool) {
	p := q.schedules.Firing(s, nominal)
	held, tombstone := m.store.ByPutID(q.index, p.ID, p.Key)
	refused := p.Key != "" && m.record(q).Settings.Keys.Refused
	if refused || held != 0 || tombstone != 0 && !m.forgotten(q, tombstone) {
		return 0, false
	}
	j := m.newJob(q, &p)
	j.FirstDue = due.Ceil()
	j.Due = j.FirstDue
	if rule.Full(m.record(q), fsm.JobBytes(&j)) {
		return 0, true
	}
	if tombstone != 0 {
		m.forgetTombstone(q, tombstone)
	}
	m.addJob(q, &j, codec.ContentHash(&p))
	s.Jobs = append(s.Jobs, j.Serial)
	s.Jobs = s.Jobs[max(0, len(s.Jobs)-fsm.ScheduleJobsKept):]
	return j.Serial, false
}

func (m *Machine) runSchedule(c *fsm.RunSchedule) (fsm.Result, bool) {
	q, index, code := m.schedule(c.Queue, c.Name)
	if code != fsm.OK {
		return fsm.Result{Code: code}, false
	}
	s := q.schedules.Get(index)
	q.schedules.KeepHeld(&s)
	var result fsm.Result
	most := fsm.RunJobs(&s.Job)
	for _, nominal := range c.Times[:min(len(c.Times), fsm.RunMax)] {
		serial, full := uint64(0), result.Count == most
		if !full {
			serial, full = m.putFiring(q, &s, nominal, m.scalars.Clock)
		}
		if full {
			result.More, result.Due = true, nominal
			break
		}
		if serial != 0 {
			result.Count++
			schedules.Count(&s, fsm.Backfilled, nominal, m.scalars.Clock)
		}
	}
	if result.Count == 0 {
		if result.More {
			return fsm.Result{Code: fsm.QueueFull}, false
		}
		return result, false
	}
	q.schedules.Set(index, &s)
	return result, true
}

// scheduled returns the schedules of a queue, nil if it is unknown.
func (m *Machine) scheduled(queue string) *schedules.Queue {
	if q := m.queues.byName[queue]; q != nil {
		return &q.schedules
	}
	return nil
}

// deadFiring tells the schedules of a queue that a job became DEAD.
func (m *Machine) deadFiring(j job) {
	if j.q.schedules.Len() > 0 && m.slot(j).HasID() {
		j.q.schedules.Dead(string(m.payload(j).ID()), m.slot(j).Serial)
	}
}

// NextFiring returns the earliest time at which a schedule fires, 0 if none does. There is none while a
// restore is open.
func (m *Machine) NextFiring() fsm.Time {
	if m.restored.Open() {
		return 0
	}
	return m.store.Schedules.Due.FirstAt()
}

// FiringBytes returns about how many bytes a schedule has, and at least as many as a job of it; 0 if it is
// unknown.
func (m *Machine) FiringBytes(queue, name string) uint64 {
	if q := m.queues.byName[queue]; q != nil {
		return q.schedules.JobBytes(name)
	}
	return 0
}

// RunJobs returns how many jobs one RunSchedule of a schedule puts at most; 0 if it is unknown.
func (m *Machine) RunJobs(queue, name string) uint64 {
	if q := m.queues.byName[queue]; q != nil {
		if index := q.schedules.Find(name); index != 0 {
			s := q.schedules.Get(index)
			return fsm.RunJobs(&s.Job)
		}
	}
	return 0
}

// ScheduleBytes returns what a schedule adds to the bytes of its queue; 0 for no schedule.
func (m *Machine) ScheduleBytes(queue, name string) uint64 {
	if q := m.queues.byName[queue]; q != nil {
		return m.store.Schedules.Bytes(q.schedules.Find(name))
	}
	return 0
}

// DueSchedules returns schedules whose next firing has come; none while a restore is open.
func (m *Machine) DueSchedules(query *schedules.DueQuery) schedules.Due {
	if m.NextFiring() == 0 {
		return schedules.Due{}
	}
	return m.schedules.Due(query, func(index uint32) *schedules.Queue { return &m.queues.byIndex[index].schedules })
}
