package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/rule"
	"github.com/belfrydb/belfry/fsm/store"
)

// settleQueue carries out what has fallen due in a queue, once an entry: see DESIGN.md, Settling.
func (m *Machine) settleQueue(q *queue) {
	if q.settled == m.applied || m.restored.Open() {
		return
	}
	q.settled = m.applied
	if m.overdue(q) {
		m.step(q)
	}
}

// overdue reports whether the queue has anything to settle. It asks the orders, since the agenda
// may be out of date within an entry.
func (m *Machine) overdue(q *queue) bool {
	for _, o := range [...]*store.Order{&q.Leases, &q.TTLs, &q.Delayed} {
		if at := o.FirstAt(); at != 0 && at <= m.scalars.Clock {
			return true
		}
	}
	return false
}

// step lapses, expires and moves at most StepMax jobs each, and returns the number of jobs that it
// touched.
func (m *Machine) step(q *queue) uint64 {
	n := m.each(q, &q.Leases, func(j job) { m.lapse(j) })
	n += m.each(q, &q.TTLs, func(j job) {
		m.lift(j)
		m.setExpired(j)
	})
	return n + m.each(q, &q.Delayed, func(j job) { m.move(j) })
}

// each calls f for the jobs whose time in the order has come. f must remove the job from the order,
// or give it another key.
func (m *Machine) each(q *queue, order *store.Order, f func(job)) uint64 {
	for n := uint64(0); n < fsm.StepMax; n++ {
		k, ok := order.Min()
		if !ok || k.At > m.scalars.Clock {
			return n
		}
		f(job{k.Index, q})
	}
	return fsm.StepMax
}

// lapse ends a lease that is past its end: a failed attempt.
func (m *Machine) lapse(j job) {
	m.touch(j.q).Counters.Lapsed++
	until := m.leaseOf(j).Until
	m.lift(j)
	m.noteFailure(j, until, true, "")
	m.used(j, func(u *fsm.Uses) { u.Lapses++ })
	switch {
	case m.exhausted(j):
		m.setDead(j)
	case m.expiredTTL(j):
		m.setExpired(j)
	default:
		m.set(j, fsm.Ready, until)
	}
}

// move makes a delayed job ready, unless it fell due in an outage and the overdue policy of the
// queue says otherwise.
func (m *Machine) move(j job) {
	r := m.record(j.q)
	due := m.slot(j).Due
	m.lift(j)
	if r.OverdueFrom < due && due <= r.OverdueTo {
		switch r.Settings.Overdue {
		case fsm.SpreadOverdue:
			if r.Settings.OverduePeriod > 0 {
				outage := rule.Outage{From: r.OverdueFrom, To: r.OverdueTo}
				m.set(j, fsm.Delayed, outage.Spread(due, r.Settings.OverduePeriod))
				return
			}
		case fsm.DropOverdue:
			m.touch(j.q).Counters.Expired++
			m.end(j, fsm.Expired)
			return
		case fsm.FireOverdue:
		}
	}
	m.set(j, fsm.Ready, due)
}

// exhausted reports whether the job has no attempt left.
func (m *Machine) exhausted(j job) bool {
	var v fsm.Job
	m.payload(j).Read(&v)
	limit := rule.AttemptsMax(&v, &m.record(j.q).Settings)
	return limit > 0 && m.leaseOf(j).Attempt >= limit
}

// expire is the command of the pacer. It settles queues in the order of their deadlines until it
// has touched StepMax jobs.
func (m *Machine) expire() (fsm.Result, bool) {
	m.planTouched()
	var n uint64
	for n < fsm.StepMax {
		first, ok := m.queues.deadlines.First()
		if !ok || first.At > m.scalars.Clock {
			break
		}
		q := m.queues.byIndex[first.Index]
		n += m.step(q)
		m.plan(q)
	}
	next, ok := m.NextDeadline()
	return fsm.Result{Count: n, More: ok && next <= m.scalars.Clock}, false
}

// outage returns when the outage began and how long it lasted. It began at the earliest deadline
// that is unsettled, but not before the last entry. The last entry alone would not do, since a
// shard with nothing to do logs nothing.
func (m *Machine) outage(before fsm.Time) (from fsm.Time, length fsm.Duration) {
	m.planTouched()
	first, ok := m.queues.deadlines.First()
	if !ok || first.At > m.scalars.Clock || m.restored.Open() {
		return m.scalars.Clock, 0
	}
	from = max(before, first.At-1)
	return from, m.scalars.Clock.Sub(from)
}

// lead begins a term: it notes the outage in the queues that have a policy for it, and extends
// every lease to the grace at least.
func (m *Machine) lead(c *fsm.Lead, before fsm.Time) (fsm.Result, bool) {
	clock := m.scalars.Clock
	floor := clock.After(c.Grace)
	from, outage := m.outage(before)
	for _, q := range m.queues.byIndex {
		if q == nil {
			continue
		}
		s := &m.record(q).Settings
		if s.Overdue != fsm.FireOverdue && outage >= rule.OverdueAfter(s) {
			r := m.touch(q)
			r.OverdueFrom, r.OverdueTo = from, clock
		}
		for {
			k, ok := q.Leases.Min()
			if !ok || k.At >= floor {
				break
			}
			m.extendLease(job{k.Index, q}, func(l *store.Lease) { l.Until = floor })
		}
	}
	return fsm.Result{}, true
}
