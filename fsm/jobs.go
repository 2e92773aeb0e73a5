package fsm

import (
	"encoding/binary"
	"math"
)

// job is a held job at hand: its place and its queue. Every change of a job goes through lift and one of set and drop, which
// keep orders, counters and digest in step.
type job struct {
	place uint32
	q     *queue
}

func (m *Machine) slot(j job) *slot { return m.store.slots.at(j.place) }

func (m *Machine) born(j job) born { return openBorn(m.store.blobs.at(m.slot(j).blob())) }

// grantOf returns the job's grant record for reading, an empty one if it was never granted.
func (m *Machine) grantOf(j job) grant {
	if g := m.slot(j).grant; g != 0 {
		return *m.store.grants.at(g)
	}
	return grant{}
}

// grantPlace returns the job's grant record for writing and makes it if there is none.
func (m *Machine) grantPlace(j job) *grant {
	s := m.store.slots.edit(j.place)
	if s.grant == 0 {
		s.grant = m.store.grants.alloc()
	}
	return m.store.grants.edit(s.grant)
}

// ttl returns when the job expires, 0 if never.
func (m *Machine) ttl(j job) Time { return m.store.ttl(m.slot(j)) }

// expiredTTL reports whether the job's ttl has passed.
func (m *Machine) expiredTTL(j job) bool {
	ttl := m.ttl(j)
	return ttl != 0 && ttl <= m.scalars.Clock
}

// hash is the job's part of the digest.
func (m *Machine) hash(j job) uint64 {
	s, g := m.slot(j), m.grantOf(j)
	return jobHash(m.born(j).hash(), &jobNow{
		State: s.state(), Due: s.due, TTL: m.ttl(j), Attempt: g.attempt, Fence: g.fence, Until: g.until, LeaseTTR: g.ttr,
		Redrives: g.redrives, LastError: m.note(g.note), Died: g.died,
	})
}

// lift takes the job out of the order and count of its state, and its hash out of the digest. It must be followed by set
// or drop.
func (m *Machine) lift(j job) {
	m.sum -= m.hash(j)
	s, r := m.slot(j), m.touch(j.q)
	switch s.state() {
	case Delayed:
		j.q.delayed.remove(j.place)
		r.Counts.Delayed--
		m.countDue(j.q, s.due, ^uint32(0))
	case Ready:
		j.q.ready.remove(j.place)
		r.Counts.Ready--
	case Reserved:
		j.q.leases.remove(j.place)
		j.q.working.remove(j.place)
		r.Counts.Reserved--
		m.leases--
	case Dead:
		j.q.dead.remove(j.place)
		r.Counts.Dead--
	default:
		panic("fsm: a job that is not held is lifted")
	}
	if s.state() == Delayed || s.state() == Ready {
		if s.flags&slotHasTTL != 0 {
			j.q.ttls.remove(j.place)
		}
	}
}

// set puts a lifted job into a held state.
func (m *Machine) set(j job, state State, due Time) {
	s, r := m.store.slots.edit(j.place), m.touch(j.q)
	s.due = due
	s.setState(state)
	switch state {
	case Delayed:
		j.q.delayed.insert(j.place)
		r.Counts.Delayed++
		m.countDue(j.q, due, 1)
	case Ready:
		j.q.ready.insert(j.place)
		r.Counts.Ready++
	case Reserved:
		j.q.leases.insert(j.place)
		j.q.working.insert(j.place)
		r.Counts.Reserved++
		m.leases++
	case Dead:
		j.q.dead.insert(j.place)
		r.Counts.Dead++
	default:
		panic("fsm: a job is set to a state in which none is held")
	}
	if state == Delayed || state == Ready {
		if s.flags&slotHasTTL != 0 {
			j.q.ttls.insert(j.place)
		}
	}
	m.sum += m.hash(j)
}

// setDue puts a lifted job into DELAYED, or into READY if it is due.
func (m *Machine) setDue(j job, due Time) State {
	state := Delayed
	if due <= m.scalars.Clock {
		state = Ready
	}
	m.set(j, state, due)
	return state
}

// setDead puts a lifted job among the dead letters.
func (m *Machine) setDead(j job) {
	m.grantPlace(j).died = m.scalars.Clock
	m.ends(j, Dead)
	m.touch(j.q).Counters.Died++
	m.set(j, Dead, m.slot(j).due)
}

// setExpired ends a lifted job whose ttl has passed, or makes it dead if its queue says so.
func (m *Machine) setExpired(j job) State {
	if m.record(j.q).Settings.ExpireToDead {
		m.store.slots.edit(j.place).flags &^= slotHasTTL
		m.setDead(j)
		return Dead
	}
	m.touch(j.q).Counters.Expired++
	m.drop(j, Expired)
	return Expired
}

// drop ends a lifted job in the given ended state; its id is remembered if the client chose it. StateNone forgets it.
func (m *Machine) drop(j job, ended State) {
	s := *m.slot(j)
	b := m.born(j)
	m.touch(j.q).Counts.Bytes -= b.bytes()
	m.store.serials.remove(serialHash(s.serial), j.place)
	if s.flags&slotHasID != 0 {
		m.store.withID--
		m.store.idBytes -= len(b.id())
		m.store.ids.remove(b.idHash(), j.place<<1)
		if ended != StateNone {
			m.entomb(j.q, b, &s, ended)
		}
	}
	if s.grant != 0 {
		m.setNote(s.grant, "")
		m.store.grants.release(s.grant)
	}
	m.store.blobs.release(s.blob())
	m.store.slots.release(j.place)
}

func jobBytes(j *Job) uint64 {
	n := len(j.Body)
	if !j.Generated {
		n += len(j.ID)
	}
	for _, h := range j.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return uint64(n)
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

// setNote replaces the last error of a grant record.
func (m *Machine) setNote(place uint32, text string) {
	g := m.store.grants.edit(place)
	if g.note != 0 {
		m.store.blobs.release(g.note)
		g.note = 0
	}
	if text != "" {
		g.note = m.store.blobs.put(appendText(nil, text))
	}
}

// entomb remembers a job that ends, after making room for it.
func (m *Machine) entomb(q *queue, b born, s *slot, ended State) {
	m.roomForTomb()
	place := m.store.tombs.alloc()
	*m.store.tombs.edit(place) = tomb{
		serial: s.serial, firstDue: b.firstDue(), ended: m.scalars.Clock, queue: q.place, state: ended, attempts: m.attemptsOf(s),
		blob: m.store.blobs.put(appendBornStone(nil, string(b.id()), b.content(), b.idHash())),
	}
	m.addTomb(q, place)
	m.sum += m.tombHash(q, place)
}

// attemptsOf returns what a tombstone keeps of the attempts of a job that ends.
func (m *Machine) attemptsOf(s *slot) uint16 {
	if s.grant == 0 {
		return 1
	}
	return uint16(min(m.store.grants.at(s.grant).attempt, math.MaxUint16-1) + 1)
}

// roomForTomb forgets the oldest tombstones while there are as many as there may be.
func (m *Machine) roomForTomb() {
	for m.store.tombs.count() >= m.cfg.TombstonesMax {
		first, ok := m.queues.oldest.first()
		if !ok {
			break
		}
		old := m.queues.byPlace[first.queue]
		k, _ := old.ended.min()
		r := m.touch(old)
		r.Forgotten = max(r.Forgotten, k.at)
		m.forgetTomb(old, k.place)
	}
}

// addTomb puts a stored tombstone into table, order, and agendas.
func (m *Machine) addTomb(q *queue, place uint32) {
	t := m.store.tombs.at(place)
	b := openBorn(m.store.blobs.at(t.blob))
	m.store.ids.insert(b.idHash(), place<<1|1)
	m.store.stones.insert(serialHash(t.serial), place)
	q.ended.insert(place)
	m.planForgetting(q)
}

// forgetTomb removes a tombstone.
func (m *Machine) forgetTomb(q *queue, place uint32) {
	m.sum -= m.tombHash(q, place)
	t := *m.store.tombs.at(place)
	b := openBorn(m.store.blobs.at(t.blob))
	m.store.ids.remove(b.idHash(), place<<1|1)
	m.store.stones.remove(serialHash(t.serial), place)
	q.ended.remove(place)
	m.store.blobs.release(t.blob)
	m.store.tombs.release(place)
	m.planForgetting(q)
}

// tombOf finds a tombstone of the queue by serial.
func (m *Machine) tombOf(q *queue, serial uint64) uint32 {
	return m.store.stones.find(serialHash(serial), func(place uint32) bool {
		t := m.store.tombs.at(place)
		return t.serial == serial && t.queue == q.place
	})
}

func (m *Machine) tombstone(q *queue, place uint32) Tombstone {
	t := m.store.tombs.at(place)
	b := openBorn(m.store.blobs.at(t.blob))
	return Tombstone{
		Queue: q.name, ID: string(b.id()), Serial: t.serial, Content: b.content(), FirstDue: t.firstDue, State: t.state, Ended: t.ended,
	}
}

func (m *Machine) tombHash(q *queue, place uint32) uint64 {
	t := m.tombstone(q, place)
	return HashTombstone(&t)
}

// planForgetting brings the queue's turns for its tombstones up to date: by their end, and by the end of their window.
func (m *Machine) planForgetting(q *queue) {
	oldest := q.ended.firstAt()
	forget := Time(0)
	if window, forever := dedupWindow(&m.record(q).Settings); oldest != 0 && !forever {
		forget = oldest.Add(window)
	}
	m.queues.oldest.move(q, q.oldest, oldest)
	m.queues.forgets.move(q, q.forget, forget)
	q.oldest, q.forget = oldest, forget
}

func dedupWindow(s *Settings) (window Duration, forever bool) {
	switch {
	case s.DedupForever:
		return 0, true
	case s.DedupWindowSet:
		return s.DedupWindow, false
	default:
		return DefaultDedupWindow, false
	}
}
