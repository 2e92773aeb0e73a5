package machine

import (
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/rule"
	"github.com/belfrydb/belfry/fsm/store"
)

// resetClock moves the shard's time back: see DESIGN.md, Reset. It looks at every job of the shard.
func (m *Machine) resetClock(c *fsm.ResetClock) (fsm.Result, bool) {
	r := rule.Reset{From: m.scalars.Clock, To: max(c.To, fsm.Time(time.Millisecond)).Ceil(), Grace: c.Grace}
	if r.To >= r.From {
		return fsm.Result{}, false
	}
	m.scalars.Clock = r.To
	m.scalars.LowWater = min(m.scalars.LowWater, r.To)
	m.keys.Loading = true // the order of the jobs here is no replica's but this one's
	for index := range m.store.Jobs() {
		m.resetJob(&r, job{index, m.queues.byIndex[m.store.Slot(index).Queue]})
	}
	for _, q := range m.queues.byIndex {
		if q != nil {
			m.resetQueue(&r, q)
			q.schedules.Reset(r.To)
		}
	}
	m.resetKeys(&r)
	m.remembered.Reset(r.To, r.Left)
	m.activity.Restart(r.To)
	return fsm.Result{}, true
}

// resetJob moves the times of a job to the new clock at the latest, or as far after it as they were
// after the old one.
func (m *Machine) resetJob(r *rule.Reset, j job) {
	var v fsm.Job
	m.show(j, &v)
	l := m.leaseOf(j)
	retaken := v.Created > r.To || l.Until.Sub(r.To) > l.TTR // put or leased in the time taken back
	if v.Due <= r.To && !retaken && l.Until <= r.To && l.Died <= r.To && v.Next == nil {
		return
	}
	m.lift(j)
	if m.slot(j).HasLease() {
		edited := m.store.EditLease(j.index)
		edited.Until, edited.Died = r.Until(l.Until, l.TTR), min(l.Died, r.To)
		m.resetWork(j, edited, r.To)
		if next := r.Successor(v.Next); next != nil {
			m.store.SetNext(j.index, next)
		}
	}
	if v.Created > r.To {
		v.Created = r.To
		if v.TTL != 0 {
			v.TTL = r.Kept(v.TTL)
		}
		m.store.ReplacePayload(j.index, &v, m.payload(j).Content())
	}
	due := v.Due
	switch v.State {
	case fsm.Dead:
		m.set(j, fsm.Dead, due)
	case fsm.Reserved:
		m.set(j, fsm.Reserved, min(due, r.To))
	default:
		if named := v.Given.Has(fsm.GivenDueAt) && due == v.FirstDue; retaken && !named && due > r.To {
			due = r.Kept(due)
		}
		m.resetDue(r, j, &v, due)
	}
}

// resetDue sets the state of a lifted job that waits by its due time: a job that was ready may have
// to wait again.
func (m *Machine) resetDue(r *rule.Reset, j job, v *fsm.Job, due fsm.Time) {
	if v.State == fsm.Delayed && v.Due <= r.To {
		m.set(j, fsm.Delayed, due) // it is not settled yet
		return
	}
	m.setDue(j, due)
}

// resetQueue moves the times of a queue and of its tombstones to the new clock at the latest.
func (m *Machine) resetQueue(r *rule.Reset, q *queue) {
	record := m.touch(q)
	record.Created = min(record.Created, r.To)
	record.Forgotten = min(record.Forgotten, r.To)
	if record.RateAt > r.To {
		record.RateAt = r.To.Add(r.Left(record.RateAt))
	}
	record.OverdueTo = min(record.OverdueTo, r.To)
	if record.OverdueFrom >= record.OverdueTo {
		record.OverdueFrom, record.OverdueTo = 0, 0
	}
	var late []uint32
	q.ended.Ascend(store.Key{At: r.To + 1}, func(k store.Key) bool {
		late = append(late, k.Index)
		return true
	})
	for _, index := range late {
		m.sum -= m.tombstoneHash(q, index)
		q.ended.Remove(index)
		m.store.SetEnded(index, r.To)
		q.ended.Insert(index)
		m.sum += m.tombstoneHash(q, index)
	}
	m.planForgetting(q)
}
