package model

import (
	"cmp"
	"slices"

	"github.com/belfrydb/belfry/fsm"
)

// redrive is rule Redrive.
func (m *Model) redrive(c *fsm.Redrive) fsm.Result {
	q := m.name(c.Queue)
	if q == nil {
		return fsm.Result{Code: fsm.QueueNotFound}
	}
	var result fsm.Result
	for _, id := range c.IDs {
		dead := q.jobsBy(byPutOrder, func(j *job) bool { return j.ID == id && j.State == fsm.Dead })
		if len(dead) > 0 {
			m.revive(q, dead[0])
			result.Count++
		}
	}
	if len(c.IDs) > 0 {
		return result
	}
	for _, j := range atMost(q.jobsBy(byListPlace, in(fsm.Dead)), step(c.Max)) {
		m.revive(q, j)
		result.Count++
	}
	return result
}

// byPutOrder is the order in which jobs were put.
func byPutOrder(a, b *job) int { return cmp.Compare(a.Serial, b.Serial) }

func (m *Model) revive(q *queue, j *job) {
	q.Counters.Redriven++
	j.State, j.Due, j.Attempt, j.TTL = fsm.Ready, m.Clock.After(0), 0, 0
	j.Redrives++
	if j.Key != "" && !q.Settings.Keys.HoldOnDead {
		j.Place = m.nextSerial()
	}
	m.changed(q, j.Key)
}

// step is how many jobs a bounded command may touch.
func step(asked uint32) int {
	if asked == 0 {
		return fsm.StepMax
	}
	return int(min(asked, fsm.StepMax))
}

// purge is rule Purge.
func (m *Model) purge(c *fsm.Purge) fsm.Result {
	q := m.name(c.Queue)
	if q == nil {
		return fsm.Result{Code: fsm.QueueNotFound}
	}
	jobs := q.jobsInStates(c.States)
	removed := atMost(jobs, step(c.Max))
	for _, j := range removed {
		q.Counters.Purged++
		m.dropJob(q, j, fsm.Cancelled)
	}
	return fsm.Result{Count: uint64(len(removed)), More: len(jobs) > len(removed)}
}

// jobsInStates returns the jobs in the given states, state by state, each in its order.
func (q *queue) jobsInStates(states fsm.StateSet) []*job {
	var jobs []*job
	for _, group := range []struct {
		state fsm.State
		order order
	}{{fsm.Delayed, byDue}, {fsm.Ready, byRank}, {fsm.Reserved, byUntil}, {fsm.Dead, byListPlace}} {
		if states.Has(group.state) {
			jobs = append(jobs, q.jobsBy(group.order, in(group.state))...)
		}
	}
	return jobs
}

// deleteQueue is rule DeleteQueue.
func (m *Model) deleteQueue(c *fsm.DeleteQueue) fsm.Result {
	q := m.name(c.Queue)
	if q == nil {
		return fsm.Result{Code: fsm.QueueNotFound}
	}
	held := q.jobsInStates(fsm.Set(fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead))
	removed := atMost(held, fsm.StepMax)
	for _, j := range removed {
		q.Counters.Purged++
		q.remove(j)
		m.changed(q, j.Key)
	}
	remembered := m.tombstonesOf(q)
	forgotten := atMost(remembered, fsm.StepMax-len(removed))
	for _, t := range forgotten {
		m.forget(t)
	}
	slices.SortFunc(q.schedules, func(a, b *fsm.Schedule) int { return cmp.Compare(a.Name, b.Name) })
	dropped := min(len(q.schedules), fsm.StepMax-len(removed)-len(forgotten))
	q.schedules = q.schedules[dropped:]
	more := len(held) > len(removed) || len(remembered) > len(forgotten) || len(q.schedules) > 0
	slices.SortFunc(q.memories, func(a, b fsm.KeyMemory) int { return cmp.Compare(a.Serial, b.Serial) })
	q.memories = q.memories[min(len(q.memories), fsm.StepMax-len(removed)-len(forgotten)-dropped):]
	more = more || len(q.memories) > 0
	if !more {
		m.queues = slices.DeleteFunc(m.queues, func(p *queue) bool { return p == q })
	}
	return fsm.Result{Count: uint64(len(removed)), More: more}
}

// tombstonesOf returns the tombstones of one queue, also those past their window, oldest first.
func (m *Model) tombstonesOf(q *queue) []fsm.Tombstone {
	var list []fsm.Tombstone
	for _, t := range m.tombstones {
		if t.Queue == q.Name {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, byEnded)
	return list
}

// lead is rule Overdue policy, and what Lead does to leases.
func (m *Model) lead(c *fsm.Lead) {
	from := m.Clock
	if deadline, ok := m.NextDeadline(); ok && deadline <= m.Clock {
		from = max(m.before, deadline-1)
	}
	for _, q := range m.queues {
		after := q.Settings.OverdueAfter
		if after == 0 {
			after = fsm.DefaultOverdueAfter
		}
		if m.Clock.Sub(from) >= after && q.Settings.Overdue != fsm.FireOverdue {
			q.OverdueFrom, q.OverdueTo = from, m.Clock
		}
		for _, j := range q.jobs {
			if j.State == fsm.Reserved {
				j.Until = max(j.Until, m.Clock.After(c.Grace))
			}
		}
	}
}

// configure is rule Configure.
func (m *Model) configure(c *fsm.Configure) (result fsm.Result, changed bool) {
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
	if c.Version > q.Version {
		restart := q.Settings.Keys != c.Settings.Keys
		q.Version, q.Settings, changed = c.Version, c.Settings.Clone(), true
		if restart {
			m.restartRounds(q)
		}
	}
	return fsm.Result{}, changed
}

// open is rule Open.
func (m *Model) open(c *fsm.Open) (result fsm.Result, changed bool) {
	q := m.name(c.Queue)
	if q == nil && m.queuesFull() {
		return fsm.Result{Code: fsm.Quota}, false
	}
	if q == nil {
		m.createQueue(c.Queue, c.Partition, c.Partitions)
		return fsm.Result{Created: true}, true
	}
	if q.Partition != c.Partition || q.Partitions != c.Partitions {
		return fsm.Result{Code: fsm.QueueExists}, false
	}
	return fsm.Result{}, false
}
