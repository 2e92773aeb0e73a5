package fsm

import (
	"strconv"
	"strings"
)

// FormatID returns the id that a job without a client-chosen one goes by.
func FormatID(partition uint32, serial uint64) string {
	return strconv.FormatUint(uint64(partition), 10) + "-" + strconv.FormatUint(serial, 10)
}

// ParseID reads a generated id back. It accepts exactly what FormatID returns.
func ParseID(id string) (partition uint32, serial uint64, ok bool) {
	left, right, found := strings.Cut(id, "-")
	if !found {
		return 0, 0, false
	}
	p, err1 := strconv.ParseUint(left, 10, 32)
	n, err2 := strconv.ParseUint(right, 10, 64)
	if err1 != nil || err2 != nil || FormatID(uint32(p), n) != id {
		return 0, 0, false
	}
	return uint32(p), n, true
}

// lookup finds a held job of the queue by its id, chosen or generated, or the tombstone of a chosen
// id. At most one of the two is not 0.
func (m *Machine) lookup(q *queue, id string) (j job, tombstone uint32) {
	if partition, serial, ok := ParseID(id); ok {
		j := job{m.store.bySerial(q.index, serial), q}
		if j.index == 0 {
			return j, 0
		}
		s := m.slot(j)
		if s.queue != q.index || m.record(q).Partition != partition || s.flags&slotHasID != 0 {
			j.index = 0
		}
		return j, 0
	}
	index, tombstone := m.store.byID(q, id)
	return job{index, q}, tombstone
}

// named settles the queue and finds the job that a command names. If the job is not held, it
// returns the result to answer.
func (m *Machine) named(name, id string) (job, Result) {
	missing := Result{Code: JobNotFound}
	q := m.queues.byName[name]
	if q == nil {
		return job{}, missing
	}
	m.settleQueue(q)
	j, tombstone := m.lookup(q, id)
	if tombstone != 0 && !m.forgotten(q, tombstone) {
		missing.State = m.store.tombs.at(tombstone).state
	}
	return j, missing
}

func (m *Machine) cancel(c *Cancel) Result {
	j, missing := m.named(c.Queue, c.ID)
	if j.index == 0 {
		return missing
	}
	state := m.slot(j).state()
	if state == Reserved && !c.Force {
		return Result{Code: JobReserved, State: state}
	}
	m.touch(j.q).Counters.Cancelled++
	m.lift(j)
	m.drop(j, Cancelled)
	return Result{State: state, changed: true}
}

func (m *Machine) reschedule(c *Reschedule) Result {
	j, missing := m.named(c.Queue, c.ID)
	if j.index == 0 {
		return missing
	}
	if state := m.slot(j).state(); state == Reserved {
		return Result{Code: JobReserved, State: state}
	} else if state == Dead {
		return Result{Code: JobNotFound, State: state}
	}
	due := m.scalars.Clock.After(c.Delay)
	if c.Given.Has(GivenDueAt) {
		due = c.DueAt.Ceil()
	}
	m.touch(j.q).Counters.Rescheduled++
	m.lift(j)
	return Result{State: m.setDue(j, due), Due: due, changed: true}
}

func (m *Machine) redrive(c *Redrive) Result {
	q := m.queues.byName[c.Queue]
	if q == nil {
		return Result{Code: QueueNotFound}
	}
	m.settleQueue(q)
	var n uint64
	for _, id := range c.IDs {
		if j, _ := m.lookup(q, id); j.index != 0 && m.slot(j).state() == Dead {
			m.revive(j)
			n++
		}
	}
	for limit := stepLimit(c.Max); len(c.IDs) == 0 && n < limit; n++ {
		k, ok := q.dead.min()
		if !ok {
			break
		}
		m.revive(job{k.index, q})
	}
	return Result{Count: n, changed: n > 0}
}

// revive makes a dead job ready, with no attempts counted and without a ttl, which would end it at
// once.
func (m *Machine) revive(j job) {
	m.touch(j.q).Counters.Redriven++
	m.lift(j)
	l := m.editLease(j)
	l.attempt = 0
	l.redrives++
	m.store.slots.edit(j.index).flags &^= slotHasTTL
	m.set(j, Ready, m.scalars.Clock.After(0))
}

// stepLimit is the number of jobs that a command with the given maximum may touch.
func stepLimit(most uint32) uint64 {
	if most == 0 || most > StepMax {
		return StepMax
	}
	return uint64(most)
}

func (m *Machine) purge(c *Purge) Result {
	q := m.queues.byName[c.Queue]
	if q == nil {
		return Result{Code: QueueNotFound}
	}
	m.settleQueue(q)
	n := m.removeJobs(q, c.States, stepLimit(c.Max), Cancelled)
	_, more := m.nextOf(q, c.States)
	return Result{Count: n, More: more, changed: n > 0}
}

// removeJobs ends up to limit held jobs in the given states.
func (m *Machine) removeJobs(q *queue, states StateSet, limit uint64, ended State) uint64 {
	for n := uint64(0); n < limit; n++ {
		j, ok := m.nextOf(q, states)
		if !ok {
			return n
		}
		m.touch(q).Counters.Purged++
		m.lift(j)
		m.drop(j, ended)
	}
	return limit
}

// nextOf returns the first job in the given states: DELAYED before READY before RESERVED before
// DEAD, each in its order.
func (m *Machine) nextOf(q *queue, states StateSet) (job, bool) {
	var k key
	var ok bool
	if states.Has(Delayed) {
		k, ok = q.delayed.min()
	}
	if !ok && states.Has(Ready) {
		k, ok = q.ready.min()
	}
	if !ok && states.Has(Reserved) {
		k, ok = q.leases.min()
	}
	if !ok && states.Has(Dead) {
		k, ok = q.dead.min()
	}
	if !ok {
		return job{}, false
	}
	return job{k.index, q}, true
}

func (m *Machine) configure(c *Configure) Result {
	created := m.scalars.QueuesCreated
	q, code := m.home(c.Queue, c.Partition, c.Partitions)
	if code != OK {
		return Result{Code: code}
	}
	if c.Version <= m.record(q).Version {
		return Result{changed: m.scalars.QueuesCreated != created}
	}
	r := m.touch(q)
	r.Version, r.Settings = c.Version, c.Settings.Clone()
	m.planForgetting(q)
	return Result{changed: true}
}

func (m *Machine) open(c *Open) Result {
	if q := m.queues.byName[c.Queue]; q != nil {
		m.settleQueue(q)
		if r := m.record(q); r.Partition != c.Partition || r.Partitions != c.Partitions {
			return Result{Code: QueueExists}
		}
		return Result{}
	}
	if _, code := m.createQueue(c.Queue, c.Partition, c.Partitions); code != OK {
		return Result{Code: code}
	}
	return Result{Created: true, changed: true}
}

func (m *Machine) deleteQueue(c *DeleteQueue) Result {
	q := m.queues.byName[c.Queue]
	if q == nil {
		return Result{Code: QueueNotFound}
	}
	m.settleQueue(q)
	n := m.removeJobs(q, Set(Delayed, Ready, Reserved, Dead), StepMax, StateNone)
	for budget := StepMax - n; budget > 0; budget-- {
		k, ok := q.ended.min()
		if !ok {
			break
		}
		m.forgetTombstone(q, k.index)
	}
	if m.record(q).Counts.Jobs() > 0 || q.ended.len() > 0 {
		return Result{Count: n, More: true, changed: true}
	}
	m.dropQueue(q)
	return Result{Count: n, changed: true}
}
