package machine

import (
	"encoding/binary"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
	"time"
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
	for index := uint32(1); index < m.store.slots.next; index++ {
		if page, _ := m.store.slots.locate(index); m.store.slots.live[page] == 0 {
			continue
		}
		if s := m.store.slots.at(index); s.state().Held() {
			m.resetJob(&r, job{index, m.queues.byIndex[s.queue]})
		}
	}
	for _, q := range m.queues.byIndex {
		if q != nil {
			m.resetQueue(&r, q)
		}
	}
	m.resetMemory(&r)
	return fsm.Result{}, true
}

// left returns how long after the old clock at is, not less than 0.
func (r *reset) left(at fsm.Time) fsm.Duration { return max(0, at.Sub(r.from)) }

// kept returns the moment that is as far from the new clock as at was from the old one, rounded up
// to a millisecond.
func (r *reset) kept(at fsm.Time) fsm.Time { return r.to.After(r.left(at)) }

// until returns the new end of a lease: its whole length from now, or what was left of it if that
// is more, plus the grace; no later than the old end.
func (r *reset) until(l *lease) fsm.Time {
	return min(l.until, r.to.After(max(l.ttr, r.left(l.until))).Add(r.grace).Ceil())
}

// resetJob moves the times of a job to the new clock at the latest, or as far after it as they were
// after the old one.
func (m *Machine) resetJob(r *reset, j job) {
	var v fsm.Job
	m.show(j, &v)
	l := m.leaseOf(j)
	retaken := v.Created > r.to || l.until.Sub(r.to) > l.ttr // put or leased in the time taken back
	if v.Due <= r.to && !retaken && l.until <= r.to && l.died <= r.to {
		return
	}
	m.lift(j)
	if m.slot(j).lease != 0 {
		edited := m.editLease(j)
		edited.until, edited.died = r.until(&l), min(l.died, r.to)
	}
	if v.Created > r.to {
		v.Created = r.to
		if v.TTL != 0 {
			v.TTL = r.kept(v.TTL)
		}
		m.replacePayload(j, &v)
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

// replacePayload replaces the payload of a lifted job.
func (m *Machine) replacePayload(j job, v *fsm.Job) {
	s := m.store.slots.edit(j.index)
	b := m.payload(j)
	content, hash := b.content(), uint32(0)
	if s.flags&slotHasID != 0 {
		hash = b.idHash()
	}
	m.store.scratch = appendPayload(m.store.scratch[:0], v, content, hash, digest.JobPayload(v, content))
	m.store.blobs.release(s.blob())
	s.setBlob(m.store.blobs.put(m.store.scratch))
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
	q.ended.ascend(key{at: r.to + 1}, func(k key) bool {
		late = append(late, k.index)
		return true
	})
	for _, index := range late {
		m.sum -= m.tombstoneHash(q, index)
		q.ended.remove(index)
		m.store.tombs.edit(index).ended = r.to
		q.ended.insert(index)
		m.sum += m.tombstoneHash(q, index)
	}
	m.planForgetting(q)
}

// resetMemory moves the times of remembered requests to the new clock at the latest, and the ends
// of finished leases as far after it as they were after the old one.
func (m *Machine) resetMemory(r *reset) {
	a := &m.answers
	for _, t := range a.order[a.head:] {
		if a.records.live[t.index>>a.records.shift] == 0 {
			continue
		}
		if rec := a.records.at(t.index); rec.seq == t.seq && rec.at > r.to {
			m.resetAnswer(r, t.index)
		}
	}
	var late []uint32
	m.finished.byExpiry.ascend(key{at: r.to + 1}, func(k key) bool {
		late = append(late, k.index)
		return true
	})
	for _, index := range late {
		l := *m.finished.records.at(index)
		m.forgetFinished(index)
		l.expiry = r.to.Add(r.left(l.expiry))
		m.addFinished(l)
	}
}

// resetAnswer makes a request remembered as of the new clock. Its time is in its blob as well.
func (m *Machine) resetAnswer(r *reset, index uint32) {
	a := &m.answers
	rec := a.records.edit(index)
	m.sum -= digest.EncodedAnswer(rec.at, a.at(index))
	rd := codec.PlainReader(a.at(index))
	v := rd.Answer()
	v.At = r.to
	encoded := codec.AppendAnswer(nil, &v)
	a.blobs.release(rec.blob)
	a.bytes -= rec.bytes
	rec.at, rec.bytes = r.to, int64(len(encoded))+codec.AnswerOverheadBytes
	rec.blob = a.blobs.put(append(binary.AppendUvarint(nil, uint64(len(encoded))), encoded...))
	a.bytes += rec.bytes
	m.sum += digest.EncodedAnswer(rec.at, encoded)
}
