package machine

import (
	"encoding/binary"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
	"math"
)

// job names a held job by the index of its slot and its queue. Every change of a job goes through
// lift and then set or drop, which keep orders, counters and digest in step.
type job struct {
	index uint32
	q     *queue
}

// slot returns the mutable part of a job for reading.
func (m *Machine) slot(j job) *slot { return m.store.slots.at(j.index) }

// payload returns the immutable contents of a job.
func (m *Machine) payload(j job) jobPayload { return openPayload(m.store.blobs.at(m.slot(j).blob())) }

// leaseOf returns a copy of the lease record of a job, an empty one if it has none.
func (m *Machine) leaseOf(j job) lease {
	if l := m.slot(j).lease; l != 0 {
		return *m.store.leases.at(l)
	}
	return lease{}
}

// editLease returns the lease record of a job for writing. It creates the record if there is none.
func (m *Machine) editLease(j job) *lease {
	s := m.store.slots.edit(j.index)
	if s.lease == 0 {
		s.lease = m.store.leases.alloc()
	}
	return m.store.leases.edit(s.lease)
}

// ttl returns when the job expires, 0 if never.
func (m *Machine) ttl(j job) fsm.Time { return m.store.ttl(m.slot(j)) }

// expiredTTL reports whether the job's ttl has passed.
func (m *Machine) expiredTTL(j job) bool {
	ttl := m.ttl(j)
	return ttl != 0 && ttl <= m.scalars.Clock
}

// hash is the job's part of the digest.
func (m *Machine) hash(j job) uint64 {
	s, l := m.slot(j), m.leaseOf(j)
	return digest.JobIn(m.payload(j).hash(), &digest.JobState{
		State: s.state(), Due: s.due, TTL: m.ttl(j), Attempt: l.attempt, Fence: l.fence, Until: l.until, LeaseTTR: l.ttr,
		Redrives: l.redrives, LastError: m.note(l.note), Died: l.died,
	})
}

// lift takes the job out of the order and count of its state, and its hash out of the digest. A
// call of set or drop must follow.
func (m *Machine) lift(j job) {
	m.sum -= m.hash(j)
	s, r := m.slot(j), m.touch(j.q)
	switch s.state() {
	case fsm.Delayed:
		j.q.delayed.remove(j.index)
		r.Counts.Delayed--
		m.countDue(j.q, s.due, ^uint32(0))
	case fsm.Ready:
		j.q.ready.remove(j.index)
		r.Counts.Ready--
	case fsm.Reserved:
		j.q.leases.remove(j.index)
		j.q.working.remove(j.index)
		r.Counts.Reserved--
		m.leases--
	case fsm.Dead:
		j.q.dead.remove(j.index)
		r.Counts.Dead--
	default:
		panic("fsm: a job that is not held is lifted")
	}
	if s.state() == fsm.Delayed || s.state() == fsm.Ready {
		if s.flags&slotHasTTL != 0 {
			j.q.ttls.remove(j.index)
		}
	}
}

// set puts a lifted job into a held state.
func (m *Machine) set(j job, state fsm.State, due fsm.Time) {
	s, r := m.store.slots.edit(j.index), m.touch(j.q)
	s.due = due
	s.setState(state)
	switch state {
	case fsm.Delayed:
		j.q.delayed.insert(j.index)
		r.Counts.Delayed++
		m.countDue(j.q, due, 1)
	case fsm.Ready:
		j.q.ready.insert(j.index)
		r.Counts.Ready++
	case fsm.Reserved:
		j.q.leases.insert(j.index)
		j.q.working.insert(j.index)
		r.Counts.Reserved++
		m.leases++
	case fsm.Dead:
		j.q.dead.insert(j.index)
		r.Counts.Dead++
	default:
		panic("fsm: a job is set to a state in which none is held")
	}
	if state == fsm.Delayed || state == fsm.Ready {
		if s.flags&slotHasTTL != 0 {
			j.q.ttls.insert(j.index)
		}
	}
	m.sum += m.hash(j)
}

// setDue puts a lifted job into DELAYED, or into READY if it is due.
func (m *Machine) setDue(j job, due fsm.Time) fsm.State {
	state := fsm.Delayed
	if due <= m.scalars.Clock {
		state = fsm.Ready
	}
	m.set(j, state, due)
	return state
}

// setDead puts a lifted job among the dead letters.
func (m *Machine) setDead(j job) {
	m.editLease(j).died = m.scalars.Clock
	m.noteEnding(j, fsm.Dead)
	m.touch(j.q).Counters.Died++
	m.set(j, fsm.Dead, m.slot(j).due)
}

// setExpired ends a lifted job whose ttl has passed, or makes it dead if its queue says so.
func (m *Machine) setExpired(j job) fsm.State {
	if m.record(j.q).Settings.ExpireToDead {
		m.store.slots.edit(j.index).flags &^= slotHasTTL
		m.setDead(j)
		return fsm.Dead
	}
	m.touch(j.q).Counters.Expired++
	m.drop(j, fsm.Expired)
	return fsm.Expired
}

// drop ends a lifted job in the given ended state and adds a tombstone if the client chose its id.
// With StateNone it adds none.
func (m *Machine) drop(j job, ended fsm.State) {
	s := *m.slot(j)
	b := m.payload(j)
	m.touch(j.q).Counts.Bytes -= b.bytes()
	m.store.serials.remove(digest.SerialKey(s.serial), j.index)
	if s.flags&slotHasID != 0 {
		m.store.withID--
		m.store.idBytes -= len(b.id())
		m.store.ids.remove(b.idHash(), j.index<<1)
		if ended != fsm.StateNone {
			m.addTombstone(j.q, b, &s, ended)
		}
	}
	if s.lease != 0 {
		m.setNote(s.lease, "")
		m.store.leases.release(s.lease)
	}
	m.store.blobs.release(s.blob())
	m.store.slots.release(j.index)
}

// note returns a stored last error.
func (m *Machine) note(ref blobRef) string {
	if ref == 0 {
		return ""
	}
	b := m.store.blobs.at(ref)
	n, w := binary.Uvarint(b)
	return string(b[w : w+int(n)])
}

// setNote replaces the last error of the lease record at index.
func (m *Machine) setNote(index uint32, text string) {
	l := m.store.leases.edit(index)
	if l.note != 0 {
		m.store.blobs.release(l.note)
		l.note = 0
	}
	if text != "" {
		l.note = m.store.blobs.put(codec.AppendText(nil, text))
	}
}

// addTombstone adds the tombstone of a job that ends, after it has made room.
func (m *Machine) addTombstone(q *queue, b jobPayload, s *slot, ended fsm.State) {
	m.evictTombstones()
	index := m.store.tombs.alloc()
	*m.store.tombs.edit(index) = tomb{
		serial: s.serial, firstDue: b.firstDue(), ended: m.scalars.Clock, queue: q.index, state: ended,
		attempts: m.attemptsOf(s),
		blob:     m.store.blobs.put(appendTombPayload(nil, string(b.id()), b.content(), b.idHash())),
	}
	m.indexTombstone(q, index)
	m.sum += m.tombstoneHash(q, index)
}

// attemptsOf returns what the tombstone of a job that ends keeps of its attempts.
func (m *Machine) attemptsOf(s *slot) uint16 {
	if s.lease == 0 {
		return 1
	}
	return uint16(min(m.store.leases.at(s.lease).attempt, math.MaxUint16-1) + 1)
}

// evictTombstones forgets the oldest tombstones until there is room for one more.
func (m *Machine) evictTombstones() {
	for m.store.tombs.count() >= m.cfg.TombstonesMax {
		first, ok := m.queues.oldest.first()
		if !ok {
			break
		}
		old := m.queues.byIndex[first.queue]
		k, _ := old.ended.min()
		r := m.touch(old)
		r.Forgotten = max(r.Forgotten, k.at)
		m.forgetTombstone(old, k.index)
	}
}

// indexTombstone adds a stored tombstone to tables, order, and agendas.
func (m *Machine) indexTombstone(q *queue, index uint32) {
	t := m.store.tombs.at(index)
	b := openPayload(m.store.blobs.at(t.blob))
	m.store.ids.insert(b.idHash(), index<<1|1)
	m.store.tombSerials.insert(digest.SerialKey(t.serial), index)
	q.ended.insert(index)
	m.planForgetting(q)
}

// forgetTombstone removes a tombstone.
func (m *Machine) forgetTombstone(q *queue, index uint32) {
	m.sum -= m.tombstoneHash(q, index)
	t := *m.store.tombs.at(index)
	b := openPayload(m.store.blobs.at(t.blob))
	m.store.ids.remove(b.idHash(), index<<1|1)
	m.store.tombSerials.remove(digest.SerialKey(t.serial), index)
	q.ended.remove(index)
	m.store.blobs.release(t.blob)
	m.store.tombs.release(index)
	m.planForgetting(q)
}

// findTombstone returns the index of the tombstone with a serial in the queue, 0 if there is none.
func (m *Machine) findTombstone(q *queue, serial uint64) uint32 {
	return m.store.tombSerials.find(digest.SerialKey(serial), func(index uint32) bool {
		t := m.store.tombs.at(index)
		return t.serial == serial && t.queue == q.index
	})
}

// tombstone returns a stored tombstone as readers see it.
func (m *Machine) tombstone(q *queue, index uint32) fsm.Tombstone {
	t := m.store.tombs.at(index)
	b := openPayload(m.store.blobs.at(t.blob))
	return fsm.Tombstone{
		Queue: q.name, ID: string(b.id()), Serial: t.serial, Content: b.content(), FirstDue: t.firstDue, State: t.state,
		Ended: t.ended,
	}
}

func (m *Machine) tombstoneHash(q *queue, index uint32) uint64 {
	t := m.tombstone(q, index)
	return digest.Tombstone(&t)
}

// planForgetting updates when the queue is due in the two agendas of tombstones: by their end, and
// by the end of their window.
func (m *Machine) planForgetting(q *queue) {
	oldest := q.ended.firstAt()
	forget := fsm.Time(0)
	if window, forever := dedupWindow(&m.record(q).Settings); oldest != 0 && !forever {
		forget = oldest.Add(window)
	}
	m.queues.oldest.move(q, q.oldest, oldest)
	m.queues.forgets.move(q, q.forget, forget)
	q.oldest, q.forget = oldest, forget
}

func dedupWindow(s *fsm.Settings) (window fsm.Duration, forever bool) {
	switch {
	case s.DedupForever:
		return 0, true
	case s.DedupWindowSet:
		return s.DedupWindow, false
	default:
		return fsm.DefaultDedupWindow, false
	}
}
