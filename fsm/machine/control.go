package machine

import (
	"github.com/belfrydb/belfry/fsm"
)

// lookup finds a held job of the queue by its id, chosen or generated, or the tombstone of a chosen
// id. At most one of the two is not 0. A key that is not empty must be that of the job.
func (m *Machine) lookup(q *queue, id, key string) (j job, tombstone uint32) {
	if partition, serial, ok := fsm.ParseID(id); ok {
		j := job{m.store.BySerial(q.index, serial), q}
		if j.index == 0 {
			return j, 0
		}
		s := m.slot(j)
		if s.Queue != q.index || m.record(q).Partition != partition || s.HasID() ||
			key != "" && m.payload(j).KeyName() != key {
			j.index = 0
		}
		return j, 0
	}
	index, tombstone := m.store.ByID(q.index, id, key)
	return job{index, q}, tombstone
}

// named settles the queue and finds the job that a command names. If the job is not held, it
// returns the result to answer.
func (m *Machine) named(name, id, key string) (job, fsm.Result) {
	missing := fsm.Result{Code: fsm.JobNotFound}
	q := m.queues.byName[name]
	if q == nil {
		return job{}, missing
	}
	m.settleQueue(q)
	j, tombstone := m.lookup(q, id, key)
	if tombstone != 0 && !m.forgotten(q, tombstone) {
		missing.State = m.store.Tomb(tombstone).State
	}
	return j, missing
}

func (m *Machine) cancel(c *fsm.Cancel) (fsm.Result, bool) {
	j, missing := m.named(c.Queue, c.ID, c.Key)
	if j.index == 0 {
		return missing, false
	}
	state := m.slot(j).State()
	if state == fsm.Reserved && !c.Force {
		return fsm.Result{Code: fsm.JobReserved, State: state}, false
	}
	m.touch(j.q).Counters.Cancelled++
	m.lift(j)
	m.end(j, fsm.Cancelled)
	return fsm.Result{State: state}, true
}

func (m *Machine) reschedule(c *fsm.Reschedule) (fsm.Result, bool) {
	j, missing := m.named(c.Queue, c.ID, c.Key)
	if j.index == 0 {
		return missing, false
	}
	if state := m.slot(j).State(); state == fsm.Reserved {
		return fsm.Result{Code: fsm.JobReserved, State: state}, false
	} else if state == fsm.Dead {
		return fsm.Result{Code: fsm.JobNotFound, State: state}, false
	}
	due := m.scalars.Clock.After(c.Delay)
	if c.Given.Has(fsm.GivenDueAt) {
		due = c.DueAt.Ceil()
	}
	m.touch(j.q).Counters.Rescheduled++
	m.lift(j)
	return fsm.Result{State: m.setDue(j, due), Due: due}, true
}

func (m *Machine) redrive(c *fsm.Redrive) (fsm.Result, bool) {
	q := m.queues.byName[c.Queue]
	if q == nil {
		return fsm.Result{Code: fsm.QueueNotFound}, false
	}
	m.settleQueue(q)
	var n uint64
	for _, id := range c.IDs {
		if j, dead := m.deadByID(q, id); dead {
			m.lift(j)
			m.revive(j)
			n++
		}
	}
	for limit := stepLimit(c.Max); len(c.IDs) == 0 && n < limit; n++ {
		k, ok := q.Dead.Min()
		if !ok {
			break
		}
		j := job{k.Index, q}
		m.lift(j)
		m.revive(j)
	}
	return fsm.Result{Count: n}, n > 0
}

// revive makes a lifted dead job ready, with no attempts counted and without a ttl, which would end it at
// once.
func (m *Machine) revive(j job) {
	m.touch(j.q).Counters.Redriven++
	l := m.store.EditLease(j.index)
	l.Attempt = 0
	l.Redrives++
	m.store.EditSlot(j.index).ClearTTL()
	m.keyRevived(j)
	m.set(j, fsm.Ready, m.scalars.Clock.After(0))
}

// stepLimit is the number of jobs that a command with the given maximum may touch.
func stepLimit(most uint32) uint64 {
	if most == 0 || most > fsm.StepMax {
		return fsm.StepMax
	}
	return uint64(most)
}

func (m *Machine) purge(c *fsm.Purge) (fsm.Result, bool) {
	q := m.queues.byName[c.Queue]
	if q == nil {
		return fsm.Result{Code: fsm.QueueNotFound}, false
	}
	m.settleQueue(q)
	n := m.removeJobs(q, c.States, stepLimit(c.Max), fsm.Cancelled)
	return fsm.Result{Count: n, More: q.First(c.States) != 0}, n > 0
}

// removeJobs ends up to limit held jobs in the given states.
func (m *Machine) removeJobs(q *queue, states fsm.StateSet, limit uint64, ended fsm.State) uint64 {
	for n := uint64(0); n < limit; n++ {
		j := job{q.First(states), q}
		if j.index == 0 {
			return n
		}
		m.touch(q).Counters.Purged++
		m.lift(j)
		m.drop(j, ended)
	}
	return limit
}

func (m *Machine) configure(c *fsm.Configure) (fsm.Result, bool) {
	created := m.scalars.QueuesCreated
	q, code := m.home(c.Queue, c.Partition, c.Partitions)
	if code != fsm.OK {
		return fsm.Result{Code: code}, false
	}
	if c.Version <= m.record(q).Version {
		return fsm.Result{}, m.scalars.QueuesCreated != created
	}
	r := m.touch(q)
	r.Version, r.Settings = c.Version, c.Settings.Clone()
	m.planForgetting(q)
	m.configureKeys(q)
	return fsm.Result{}, true
}

func (m *Machine) open(c *fsm.Open) (fsm.Result, bool) {
	if q := m.queues.byName[c.Queue]; q != nil {
		m.settleQueue(q)
		if r := m.record(q); r.Partition != c.Partition || r.Partitions != c.Partitions {
			return fsm.Result{Code: fsm.QueueExists}, false
		}
		return fsm.Result{}, false
	}
	if _, code := m.createQueue(c.Queue, c.Partition, c.Partitions); code != fsm.OK {
		return fsm.Result{Code: code}, false
	}
	return fsm.Result{Created: true}, true
}

func (m *Machine) deleteQueue(c *fsm.DeleteQueue) (fsm.Result, bool) {
	q := m.queues.byName[c.Queue]
	if q == nil {
		return fsm.Result{Code: fsm.QueueNotFound}, false
	}
	m.settleQueue(q)
	n := m.removeJobs(q, fsm.Set(fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead), fsm.StepMax, fsm.StateNone)
	left := fsm.StepMax - n
	for left > 0 {
		k, ok := q.ended.Min()
		if !ok {
			break
		}
		m.forgetTombstone(q, k.Index)
		left--
	}
	m.touch(q)
	scheduled := q.schedules.Len()
	q.schedules.Drop(left)
	left -= uint64(scheduled - q.schedules.Len()) //nolint:gosec // it removes no more than it is given
	keys := q.keys.DropMemories(left)
	if m.record(q).Counts.Jobs() > 0 || q.ended.Len() > 0 || q.schedules.Len() > 0 || keys > 0 {
		return fsm.Result{Count: n, More: true}, true
	}
	m.dropQueue(q)
	return fsm.Result{Count: n}, true
}
