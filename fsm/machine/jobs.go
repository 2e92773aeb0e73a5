package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/digest"
	"github.com/belfrydb/belfry/fsm/rule"
	"github.com/belfrydb/belfry/fsm/store"
)

// job names a held job by the index of its slot and its queue. Every change of a job goes through
// lift and then set or drop, which keep orders, counters and digest in step.
type job struct {
	index uint32
	q     *queue
}

// slot returns the mutable part of a job for reading.
func (m *Machine) slot(j job) *store.Slot { return m.store.Slot(j.index) }

// payload returns the immutable contents of a job.
func (m *Machine) payload(j job) store.Payload { return m.store.Payload(m.slot(j)) }

// leaseOf returns a copy of the lease record of a job, an empty one if it has none.
func (m *Machine) leaseOf(j job) store.Lease { return m.store.Lease(m.slot(j)) }

// ttl returns when the job expires, 0 if never.
func (m *Machine) ttl(j job) fsm.Time { return m.store.TTL(m.slot(j)) }

// expiredTTL reports whether the job's ttl has passed.
func (m *Machine) expiredTTL(j job) bool {
	ttl := m.ttl(j)
	return ttl != 0 && ttl <= m.scalars.Clock
}

// hash is the job's part of the digest.
func (m *Machine) hash(j job) uint64 {
	s, l := m.slot(j), m.leaseOf(j)
	note := m.store.Note(&l)
	return digest.JobIn(m.payload(j).Hash(), &digest.JobState{
		State: s.State(), Due: s.Due, TTL: m.ttl(j), Attempt: l.Attempt, Fence: l.Fence, Until: l.Until, LeaseTTR: l.TTR,
		Redrives: l.Redrives, LastError: note.LastError, Died: l.Died,
		Leased: l.Leased, Client: m.store.ClientSum(&l), Attempts: note.Attempts,
		Place: m.store.Place(&l), Next: m.store.Next(&l), Uses: m.store.Uses(&l),
	})
}

// lift takes the job out of the order and count of its state, and its hash out of the digest. A
// call of set or drop must follow.
func (m *Machine) lift(j job) {
	m.sum -= m.hash(j)
	s, r := m.slot(j), m.touch(j.q)
	switch s.State() {
	case fsm.Delayed:
		r.Counts.Delayed--
		m.countDue(j.q, s.Due, ^uint32(0))
	case fsm.Ready:
		r.Counts.Ready--
	case fsm.Reserved:
		r.Counts.Reserved--
		m.leases--
	default:
		m.store.RemoveDead(j.index)
		r.Counts.Dead--
	}
	j.q.Remove(j.index)
	if s.HasKey() {
		j.q.keys.Lift(j.index)
	}
}

// set puts a lifted job into a held state.
func (m *Machine) set(j job, state fsm.State, due fsm.Time) {
	s, r := m.store.EditSlot(j.index), m.touch(j.q)
	s.Due = due
	s.SetState(state)
	switch state {
	case fsm.Delayed:
		r.Counts.Delayed++
		m.countDue(j.q, due, 1)
	case fsm.Ready:
		r.Counts.Ready++
	case fsm.Reserved:
		r.Counts.Reserved++
		m.leases++
	default:
		m.store.AddDead(j.index)
		r.Counts.Dead++
	}
	j.q.Insert(j.index)
	m.sum += m.hash(j)
	m.keySet(j)
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
	m.store.EditLease(j.index).Died = m.scalars.Clock
	m.noteEnding(j, fsm.Dead)
	m.touch(j.q).Counters.Died++
	if m.successorOf(j) != nil {
		m.touch(j.q).Counters.Purged++
		m.end(j, fsm.StateNone)
		return
	}
	m.fence(j)
	m.set(j, fsm.Dead, m.slot(j).Due)
	m.deadFiring(j)
}

// setExpired ends a lifted job whose ttl has passed, or makes it dead if its queue says so.
func (m *Machine) setExpired(j job) fsm.State {
	if m.record(j.q).Settings.ExpireToDead {
		m.store.EditSlot(j.index).ClearTTL()
		m.setDead(j)
		return fsm.Dead
	}
	m.touch(j.q).Counters.Expired++
	m.end(j, fsm.Expired)
	return fsm.Expired
}

// drop ends a lifted job in the given ended state and adds a tombstone if the client chose its id.
// With StateNone it adds none. A successor goes with the job: see end.
func (m *Machine) drop(j job, ended fsm.State) {
	if m.slot(j).HasID() && ended != fsm.StateNone {
		m.evictTombstones()
		m.indexTombstone(j.q, m.store.AddTombstoneOf(j.index, ended, m.scalars.Clock))
	}
	r := m.touch(j.q)
	if next := m.successorOf(j); next != nil {
		r.Counts.Bytes -= fsm.JobBytes(&next.Job)
	}
	group := uint32(0)
	if m.slot(j).HasKey() {
		group = m.store.Keys.GroupOf(j.index)
	}
	m.uncountFIFO(j)
	r.Counts.Bytes -= m.store.RemoveJob(j.index)
	m.keyDropped(j.q, group)
}

// countDue counts a job that becomes DELAYED, 1, or ceases to be, -1 modulo 2^32. The queue must be
// touched: its counts are closed when the entry ends.
func (m *Machine) countDue(q *queue, due fsm.Time, n uint32) {
	if !m.restoring {
		q.due.Count(due, n)
	}
}

// evictTombstones forgets the oldest tombstones until there is room for one more.
func (m *Machine) evictTombstones() {
	for m.store.Tombstones() >= m.cfg.TombstonesMax {
		first, ok := m.queues.oldest.First()
		if !ok {
			break
		}
		old := m.queues.byIndex[first.Index]
		k, _ := old.ended.Min()
		r := m.touch(old)
		r.Forgotten = max(r.Forgotten, k.At)
		m.forgetTombstone(old, k.Index)
	}
}

// indexTombstone adds a stored tombstone to the order of its queue, agendas and digest.
func (m *Machine) indexTombstone(q *queue, index uint32) {
	q.ended.Insert(index)
	m.planForgetting(q)
	m.sum += m.tombstoneHash(q, index)
}

// forgetTombstone removes a tombstone.
func (m *Machine) forgetTombstone(q *queue, index uint32) {
	m.sum -= m.tombstoneHash(q, index)
	q.ended.Remove(index)
	m.store.RemoveTombstone(index)
	m.planForgetting(q)
}

// tombstone returns a stored tombstone as readers see it.
func (m *Machine) tombstone(q *queue, index uint32) fsm.Tombstone {
	t := m.store.Tomb(index)
	b := m.store.TombPayload(t)
	return fsm.Tombstone{
		Queue: q.name, ID: string(b.ID()), Key: b.KeyName(), Serial: t.Serial, Content: b.Content(), FirstDue: t.FirstDue,
		State: t.State, Ended: t.Ended,
	}
}

func (m *Machine) tombstoneHash(q *queue, index uint32) uint64 {
	t := m.tombstone(q, index)
	return digest.Tombstone(&t)
}

// planForgetting updates when the queue is due in the two agendas of tombstones: by their end, and
// by the end of their window.
func (m *Machine) planForgetting(q *queue) {
	oldest := q.ended.FirstAt()
	forget := fsm.Time(0)
	if window, forever := rule.DedupWindow(&m.record(q).Settings); oldest != 0 && !forever {
		forget = oldest.Add(window)
	}
	m.queues.oldest.Move(q.item(), q.oldest, oldest)
	m.queues.forgets.Move(q.item(), q.forget, forget)
	q.oldest, q.forget = oldest, forget
}
