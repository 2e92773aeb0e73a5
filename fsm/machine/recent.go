package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"math/bits"
	"slices"
	"time"
)

const (
	recentSlotLength = fsm.Time(10 * time.Second)
	// recentSlots are those of a window and the one under way.
	recentSlots = int(fsm.Time(fsm.RecentWindow)/recentSlotLength) + 1
	// recentQueuesMax bounds the queues of a shard that are counted at one time, at about 3 KiB each.
	recentQueuesMax = 2000
)

// recents are the counts of a shard's queues.
type recents struct {
	// since is the clock at the restore.
	since fsm.Time
	// queues are those that have counts.
	queues []*queue
	// refused is the number of the slot in which a queue was last not counted for want of room.
	// swept is the slot in which idle queues were last looked for.
	refused, swept fsm.Time
}

// recent has the slots of one queue, by their numbers modulo their count, and its minutes.
type recent struct {
	slots   [recentSlots]recentSlot
	minutes minutes
}

// recentSlot counts what happened in one stretch of shard time.
type recentSlot struct {
	number             fsm.Time
	puts, grants, acks uint32
	late               [fsm.LateBuckets]uint32
	lateMax            fsm.Duration
}

// recentSeen are the counters of a queue when they were last looked at.
type recentSeen struct{ put, granted, acked, failed uint64 }

func seenOf(c *fsm.Counters) recentSeen {
	return recentSeen{c.Put, c.Granted, c.Acked, c.Nacked + c.Lapsed}
}

// countRecent adds what the counters of a queue gained to the present slot. It does not count what
// a restore brings.
func (m *Machine) countRecent(q *queue) {
	before, now := q.seen, seenOf(&m.record(q).Counters)
	q.seen = now
	if now == before || m.restored.Open() {
		return
	}
	if s := m.recentSlot(q); s != nil {
		s.puts += uint32(now.put - before.put)
		s.grants += uint32(now.granted - before.granted)
		s.acks += uint32(now.acked - before.acked)
		q.recent.minutes.at(m.scalars.Clock).count(&before, &now)
	}
}

// countLate counts the first attempt of a job that was due at the given time.
func (m *Machine) countLate(q *queue, due fsm.Time) {
	s := m.recentSlot(q)
	if s == nil {
		return
	}
	late := max(0, m.scalars.Clock.Sub(due))
	bucket := min(fsm.LateBuckets-1, bits.Len64(uint64(late/time.Millisecond)))
	s.late[bucket]++
	q.recent.minutes.at(m.scalars.Clock)
	q.recent.minutes.late[bucket]++
	s.lateMax = max(s.lateMax, late)
}

// recentSlot returns the present slot of a queue, or nil if too many queues are counted.
func (m *Machine) recentSlot(q *queue) *recentSlot {
	number := m.scalars.Clock / recentSlotLength
	if q.recent == nil {
		if len(m.recents.queues) >= recentQueuesMax {
			m.sweepRecents(number)
		}
		if len(m.recents.queues) >= recentQueuesMax {
			m.recents.refused = number
			return nil
		}
		q.recent = &recent{minutes: minutes{since: m.recents.since}}
		if m.recents.swept != 0 { // the queue may have had counts before
			q.recent.minutes.since = m.scalars.Clock
		}
		m.recents.queues = append(m.recents.queues, q)
	}
	s := &q.recent.slots[int(number%fsm.Time(recentSlots))]
	if s.number != number {
		*s = recentSlot{number: number}
	}
	return s
}

// dropRecent drops the counts of a queue that is deleted.
func (m *Machine) dropRecent(q *queue) {
	if q.recent == nil {
		return
	}
	q.recent = nil
	i := slices.Index(m.recents.queues, q)
	m.recents.queues = slices.Delete(m.recents.queues, i, i+1)
}

// resetRecents drops all counts: their times are not those of the clock any more.
func (m *Machine) resetRecents(now fsm.Time) {
	for _, q := range m.recents.queues {
		q.recent = nil
	}
	m.recents = recents{since: now}
}

// sweepRecents drops the counts of queues that were idle for a window, at most once a slot.
func (m *Machine) sweepRecents(number fsm.Time) {
	if m.recents.swept == number {
		return
	}
	m.recents.swept = number
	m.recents.queues = slices.DeleteFunc(m.recents.queues, func(q *queue) bool {
		for i := range q.recent.slots {
			if s := &q.recent.slots[i]; s.number > number-fsm.Time(recentSlots) && *s != (recentSlot{number: s.number}) {
				return false
			}
		}
		q.recent = nil
		return true
	})
}

// recent returns the activity of a queue up to now, or nil if it is not known.
func (m *Machine) recent(q *queue, now fsm.Time) *fsm.Recent {
	v := &fsm.Recent{Window: min(fsm.RecentWindow, now.Sub(m.recents.since))}
	number := now / recentSlotLength
	if v.Window <= 0 || q.recent == nil && m.recents.refused != 0 && m.recents.refused > number-fsm.Time(recentSlots) {
		return nil
	}
	if q.recent == nil {
		return v
	}
	for i := range q.recent.slots {
		if s := &q.recent.slots[i]; s.number > number-fsm.Time(recentSlots) && s.number <= number {
			addSlot(v, s, now)
		}
	}
	return v
}

// addSlot adds a slot. The window cuts the oldest slot: of that one it adds the same part of the
// events as of the time.
func addSlot(v *fsm.Recent, s *recentSlot, now fsm.Time) {
	left := (s.number+1)*recentSlotLength - max(0, now-fsm.Time(fsm.RecentWindow))
	part := func(n uint32) uint64 {
		if left >= recentSlotLength {
			return uint64(n)
		}
		return uint64(n) * uint64(left) / uint64(recentSlotLength)
	}
	v.Puts += part(s.puts)
	v.Grants += part(s.grants)
	v.Acks += part(s.acks)
	for i, n := range s.late {
		v.Late[i] += uint64(n)
	}
	v.LateMax = max(v.LateMax, s.lateMax)
}
