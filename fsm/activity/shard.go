package activity

import (
	"math/bits"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

const (
	// QueuesMax bounds the queues of a shard that are counted at one time, at QueueBytes each.
	QueuesMax = 2000
	// QueueBytes is what the counts of one queue take.
	QueueBytes = 2704
)

// Shard has the queues of a shard that are counted, at most QueuesMax. The zero value counts from
// time 0 on.
type Shard struct {
	since   fsm.Time // when counting began
	counted []*Queue // those that have counts
	// refused is the number of the slot in which a queue was last not counted for want of room.
	// swept is the slot in which idle queues were last looked for.
	refused, swept fsm.Time
}

// Queue is what is known of the activity of one queue. The machine keeps it beside the queue, at the
// same address until Drop.
type Queue struct {
	counts *counts // nil if there was no activity or no room
	seen   seen
}

// counts has the slots of one queue, by their numbers modulo their count, and its minutes.
type counts struct {
	slots   [slots]slot
	minutes minutes
}

// seen are the counters of a queue when they were last looked at.
type seen struct{ put, granted, acked, failed uint64 }

func seenOf(c *fsm.Counters) seen {
	return seen{c.Put, c.Granted, c.Acked, c.Nacked + c.Lapsed}
}

// Since returns a queue that counts what its counters gain from now on.
func Since(c *fsm.Counters) Queue { return Queue{seen: seenOf(c)} }

// Skip leaves out what the counters gained since they were last looked at.
func (q *Queue) Skip(c *fsm.Counters) { q.seen = seenOf(c) }

// Count adds what the counters of a queue gained since they were last looked at.
func (s *Shard) Count(q *Queue, c *fsm.Counters, now fsm.Time) {
	before, after := q.seen, seenOf(c)
	if after == before {
		return
	}
	q.seen = after
	if at := s.slot(q, now); at != nil {
		at.puts += uint32(after.put - before.put)
		at.grants += uint32(after.granted - before.granted)
		at.acks += uint32(after.acked - before.acked)
		q.counts.minutes.at(now).count(&before, &after)
	}
}

// CountFirst counts the first attempt of a job that was due at the given time and is leased now.
func (s *Shard) CountFirst(q *Queue, due, now fsm.Time) {
	at := s.slot(q, now)
	if at == nil {
		return
	}
	late := max(0, now.Sub(due))
	bucket := min(fsm.LateBuckets-1, bits.Len64(uint64(late/time.Millisecond)))
	at.late[bucket]++
	q.counts.minutes.at(now)
	q.counts.minutes.late[bucket]++
	at.lateMax = max(at.lateMax, late)
}

// Len returns how many queues are counted.
func (s *Shard) Len() int { return len(s.counted) }

// Drop drops the counts of a queue that is deleted.
func (s *Shard) Drop(q *Queue) {
	if q.counts == nil {
		return
	}
	q.counts = nil
	i := slices.Index(s.counted, q)
	s.counted = slices.Delete(s.counted, i, i+1)
}

// Restart drops all counts and counts from now on: what was counted has the times of another clock,
// or is that of another machine.
func (s *Shard) Restart(now fsm.Time) {
	for _, q := range s.counted {
		q.counts = nil
	}
	*s = Shard{since: now}
}

// slot returns the present slot of a queue, or nil if too many queues are counted.
func (s *Shard) slot(q *Queue, now fsm.Time) *slot {
	number := now / slotLength
	if q.counts == nil && !s.admit(q, now) {
		return nil
	}
	at := &q.counts.slots[int(number%fsm.Time(slots))]
	if at.number != number {
		*at = slot{number: number}
	}
	return at
}

// admit gives a queue counts. It reports false if there is no room.
func (s *Shard) admit(q *Queue, now fsm.Time) bool {
	number := now / slotLength
	if len(s.counted) >= QueuesMax {
		s.sweep(number)
	}
	if len(s.counted) >= QueuesMax {
		s.refused = number
		return false
	}
	q.counts = &counts{minutes: minutes{since: s.since}}
	if s.swept != 0 { // the queue may have had counts before
		q.counts.minutes.since = now
	}
	s.counted = append(s.counted, q)
	return true
}

// sweep drops the counts of queues that were idle for a window, at most once a slot.
func (s *Shard) sweep(number fsm.Time) {
	if s.swept == number {
		return
	}
	s.swept = number
	s.counted = slices.DeleteFunc(s.counted, func(q *Queue) bool {
		if q.counts.activeAt(number) {
			return false
		}
		q.counts = nil
		return true
	})
}
