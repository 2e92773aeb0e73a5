package machine

import (
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
	"github.com/belfrydb/belfry/fsm/store"
)

// reset is the state of a ResetClock in progress: the time of the shard goes back from one moment
// to an earlier one.
type reset struct {
	from, to fsm.Time
	grace    fsm.Duration
}

// resetClock moves the shard's time back: see DESIGN.md, Reset. It looks at every job of the shard.
func (m *Machine) resetClock(c *fsm.ResetClock) (fsm.Result, bool) {
	r := reset{from: m.scalars.Clock, to: max(c.To, fsm.Time(time.Millisecond)).Ceil(), grace: c.Grace}
	if r.to >= r.from {
		return fsm.Result{}, false
	}
	m.scalars.Clock = r.to
	m.scalars.LowWater = min(m.scalars.LowWater, r.to)
	m.keys.Loading = true // the order of the jobs here is no replica's but this one's
	for index := range m.store.Jobs() {
		m.resetJob(&r, job{index, m.queues.byIndex[m.store.Slot(index).Queue]})
	}
	for _, q := range m.queues.byIndex {
		if q != nil {
			m.resetQueue(&r, q)
			q.schedules.Reset(r.to)
		}
	}
	m.resetKeys(&r)
	m.resetMemory(&r)
	m.activity.Restart(r.to)
	return fsm.Result{}, true
}

// left returns how long after the old clock at is, not less than 0.
func (r *reset) left(at fsm.Time) fsm.Duration { return max(0, at.Sub(r.from)) }

// kept returns the moment that is as far from the new clock as at was from the old one, rounded up
// to a millisecond.
func (r *reset) kept(at fsm.Time) fsm.Time { return r.to.After(r.left(at)) }

// until returns the new end of a lease: its whole length from now, or what was left of it if that
// is more, plus the grace; no later than the old end.
func (r *reset) until(l *store.Lease) fsm.Time {
	return min(l.Until, r.to.After(max(l.TTR, r.left(l.Until))).Add(r.grace).Ceil())
}

// resetJob moves the times of a job to the new clock at the latest, or as far after it as they were
// after the old one.
func (m *Machine) resetJob(r *reset, j job) {
	var v fsm.Job
	m.show(j, &v)
	l := m.leaseOf(j)
	retaken := v.Created > r.to || l.Until.Sub(r.to) > l.TTR // put or leased in the time taken back
	if v.Due <= r.to && !retaken && l.Until <= r.to && l.Died <= r.to && v.Next == nil {
		return
	}
	m.lift(j)
	if m.slot(j).HasLease() {
		edited := m.store.EditLease(j.index)
		edited.Until, edited.Died = r.until(&l), min(l.Died, r.to)
		m.resetWork(j, edited, r.to)
		m.resetNext(r, j, v.Next)
	}
	if v.Created > r.to {
		v.Created = r.to
		if v.TTL != 0 {
			v.TTL = r.kept(v.TTL)
		}
		m.store.ReplacePayload(j.index, &v, m.payload(j).Content())
	}
	due := v.Due
	switch v.State {
	case fsm.Dead:
		m.set(j, fsm.Dead, due)
	case fsm.Reserved:
		m.set(j, fsm.Reserved, min(due, r.to))
	default:
		if named := v.Given.Has(fsm.GivenDueAt) && due == v.FirstDue; retaken && !named && due > r.to {
			due = r.kept(due)
		}
		m.resetDue(r, j, &v, due)
	}
}

// resetDue sets the state of a lifted job that waits by its due time: a job that was ready may have
// to wait again.
func (m *Machine) resetDue(r *reset, j job, v *fsm.Job, due fsm.Time) {
	if v.State == fsm.Delayed && v.Due <= r.to {
		m.set(j, fsm.Delayed, due) // it is not settled yet
		return
	}
	m.setDue(j, due)
}

// resetQueue moves the times of a queue and of its tombstones to the new clock at the latest.
func (m *Machine) resetQueue(r *reset, q *queue) {
	record := m.touch(q)
	record.Created = min(record.Created, r.to)
	record.Forgotten = min(record.Forgotten, r.to)
	if record.RateAt > r.to {
		record.RateAt = r.to.Add(r.left(record.RateAt))
	}
	record.OverdueTo = min(record.OverdueTo, r.to)
	if record.OverdueFrom >= record.OverdueTo {
		record.OverdueFrom, record.OverdueTo = 0, 0
	}
	var late []uint32
	q.ended.Ascend(store.Key{At: r.to + 1}, func(k store.Key) bool {
		late = append(late, k.Index)
		return true
	})
	for _, index := range late {
		m.sum -= m.tombstoneHash(q, index)
		q.ended.Remove(index)
		m.store.SetEnded(index, r.to)
		q.ended.Insert(index)
		m.sum += m.tombstoneHash(q, index)
	}
	m.planForgetting(q)
}

// resetMemory moves the times of remembered requests to the new clock at the latest, and the ends
// of finished leases as far after it as they were after the old one.
func (m *Machine) resetMemory(r *reset) {
	for _, index := range m.store.Answers.After(r.to) {
		m.resetAnswer(r, index)
	}
	for _, index := range m.store.Finished.After(r.to) {
		l := m.forgetFinished(index)
		l.Expiry = r.to.Add(r.left(l.Expiry))
		m.addFinished(l)
	}
}

// resetAnswer makes a request remembered as of the new clock. Its time is in its encoding as well.
func (m *Machine) resetAnswer(r *reset, index uint32) {
	a := &m.store.Answers
	m.sum -= digest.EncodedAnswer(a.Time(index), a.Encoded(index))
	v := a.Answer(index)
	v.At = r.to
	encoded := codec.AppendAnswer(nil, &v)
	a.Replace(index, r.to, encoded)
	m.sum += digest.EncodedAnswer(r.to, encoded)
}
