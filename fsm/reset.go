package fsm

import "encoding/binary"

// reset is a ResetClock under way: the shard's time goes from one moment back to an earlier one.
type reset struct {
	from, to Time
	grace    Duration
}

// resetClock moves the shard's time back: see DESIGN.md, Reset. It looks at every job of the shard.
func (m *Machine) resetClock(c *ResetClock) Result {
	r := reset{from: m.scalars.Clock, to: max(c.To, millisecond).Ceil(), grace: c.Grace}
	if r.to >= r.from {
		return Result{}
	}
	m.scalars.Clock = r.to
	m.scalars.LowWater = min(m.scalars.LowWater, r.to)
	for place := uint32(1); place < m.store.slots.next; place++ {
		if page, _ := m.store.slots.locate(place); m.store.slots.live[page] == 0 {
			continue
		}
		if s := m.store.slots.at(place); s.state().Held() {
			m.resetJob(&r, job{place, m.queues.byPlace[s.queue]})
		}
	}
	for _, q := range m.queues.byPlace {
		if q != nil {
			m.resetQueue(&r, q)
		}
	}
	m.resetMemory(&r)
	return Result{changed: true}
}

// left is the time that at, a moment on the clock before, is away from the present.
func (r *reset) left(at Time) Duration { return max(0, at.Sub(r.from)) }

// kept is the moment as far from the new present as at was from the old one, a whole millisecond.
func (r *reset) kept(at Time) Time { return r.to.After(r.left(at)) }

// until is the end of a lease: its whole length from now, or what was left of it if that is more, and the grace; no later than it was.
func (r *reset) until(g *grant) Time {
	return min(g.until, r.to.After(max(g.ttr, r.left(g.until))).Add(r.grace).Ceil())
}

// resetJob brings the times of a job before the new present, or as far behind it as they were.
func (m *Machine) resetJob(r *reset, j job) {
	var v Job
	m.show(j, &v)
	g := m.grantOf(j)
	retaken := v.Created > r.to || g.until.Sub(r.to) > g.ttr // was put or granted in the time that is taken back
	if v.Due <= r.to && !retaken && g.until <= r.to && g.died <= r.to {
		return
	}
	m.lift(j)
	if m.slot(j).grant != 0 {
		p := m.grantPlace(j)
		p.until, p.died = r.until(&g), min(g.died, r.to)
	}
	if v.Created > r.to {
		v.Created = r.to
		if v.TTL != 0 {
			v.TTL = r.kept(v.TTL)
		}
		m.bearAgain(j, &v)
	}
	due := v.Due
	switch v.State {
	case Dead:
		m.set(j, Dead, due)
	case Reserved:
		m.set(j, Reserved, min(due, r.to))
	default:
		if named := v.Given.Has(GivenDueAt) && due == v.FirstDue; retaken && !named && due > r.to {
			due = r.kept(due)
		}
		m.resetDue(r, j, &v, due)
	}
}

// resetDue puts a lifted job that waits where its due time says: one that was ready may have to wait again.
func (m *Machine) resetDue(r *reset, j job, v *Job, due Time) {
	if v.State == Delayed && v.Due <= r.to {
		m.set(j, Delayed, due) // nobody has settled it yet
		return
	}
	m.setDue(j, due)
}

// bearAgain replaces the fixed part of a lifted job.
func (m *Machine) bearAgain(j job, v *Job) {
	s := m.store.slots.edit(j.place)
	b := m.born(j)
	content, hash := b.content(), uint32(0)
	if s.flags&slotHasID != 0 {
		hash = b.idHash()
	}
	m.store.scratch = appendBorn(m.store.scratch[:0], v, content, hash, bornHash(v, content))
	m.store.blobs.release(s.blob())
	s.setBlob(m.store.blobs.put(m.store.scratch))
}

// resetQueue brings the times of a queue and of its tombstones before the new present.
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
		late = append(late, k.place)
		return true
	})
	for _, place := range late {
		m.sum -= m.tombHash(q, place)
		q.ended.remove(place)
		m.store.tombs.edit(place).ended = r.to
		q.ended.insert(place)
		m.sum += m.tombHash(q, place)
	}
	m.planForgetting(q)
}

// resetMemory brings the times of remembered requests before the new present, and of finished leases as far behind it as they were.
func (m *Machine) resetMemory(r *reset) {
	a := &m.answers
	for _, t := range a.order[a.head:] {
		if a.records.live[t.place>>a.records.shift] == 0 || a.records.at(t.place).seq != t.seq || a.records.at(t.place).at <= r.to {
			continue
		}
		m.resetAnswer(r, t.place)
	}
	var late []uint32
	m.finished.byExpiry.ascend(key{at: r.to + 1}, func(k key) bool {
		late = append(late, k.place)
		return true
	})
	for _, place := range late {
		l := *m.finished.records.at(place)
		m.forgetFinished(place)
		l.expiry = r.to.Add(r.left(l.expiry))
		m.addFinished(l)
	}
}

// resetAnswer has a request remembered as of the new present. Its time is in its blob as well.
func (m *Machine) resetAnswer(r *reset, place uint32) {
	a := &m.answers
	rec := a.records.edit(place)
	m.sum -= hashAnswerBytes(rec.at, a.at(place))
	rd := reader{b: a.at(place)}
	v := rd.answer()
	v.At = r.to
	encoded := appendAnswer(nil, &v)
	a.blobs.release(rec.blob)
	a.bytes -= rec.bytes
	rec.at, rec.bytes = r.to, int64(len(encoded))+answerOverheadBytes
	rec.blob = a.blobs.put(append(binary.AppendUvarint(nil, uint64(len(encoded))), encoded...))
	a.bytes += rec.bytes
	m.sum += hashAnswerBytes(rec.at, encoded)
}
