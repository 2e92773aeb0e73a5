package activity

import (
	"time"

	"github.com/belfrydb/belfry/fsm"
)

const (
	slotLength = fsm.Time(10 * time.Second)
	// slots are those of a window and the one under way.
	slots = int(fsm.Time(fsm.RecentWindow)/slotLength) + 1
)

// slot counts what happened in one stretch of shard time.
type slot struct {
	number             fsm.Time
	puts, grants, acks uint32
	late               [fsm.LateBuckets]uint32
	lateMax            fsm.Duration
}

// activeAt reports whether there was activity in the window that ends in the slot of this number.
func (c *counts) activeAt(number fsm.Time) bool {
	for i := range c.slots {
		if s := &c.slots[i]; s.number > number-fsm.Time(slots) && *s != (slot{number: s.number}) {
			return true
		}
	}
	return false
}

// Recent returns the activity of a queue within the last minute up to now, or nil if it is not
// known.
func (s *Shard) Recent(q *Queue, now fsm.Time) *fsm.Recent {
	v := &fsm.Recent{Window: min(fsm.RecentWindow, now.Sub(s.since))}
	number := now / slotLength
	if v.Window <= 0 || q.counts == nil && s.refused != 0 && s.refused > number-fsm.Time(slots) {
		return nil
	}
	if q.counts == nil {
		return v
	}
	for i := range q.counts.slots {
		if at := &q.counts.slots[i]; at.number > number-fsm.Time(slots) && at.number <= number {
			addSlot(v, at, now)
		}
	}
	return v
}

// addSlot adds a slot. The window cuts the oldest slot: of that one it adds the same part of the
// events as of the time.
func addSlot(v *fsm.Recent, s *slot, now fsm.Time) {
	left := (s.number+1)*slotLength - max(0, now-fsm.Time(fsm.RecentWindow))
	part := func(n uint32) uint64 {
		if left >= slotLength {
			return uint64(n)
		}
		return uint64(n) * uint64(left) / uint64(slotLength)
	}
	v.Puts += part(s.puts)
	v.Grants += part(s.grants)
	v.Acks += part(s.acks)
	for i, n := range s.late {
		v.Late[i] += uint64(n)
	}
	v.LateMax = max(v.LateMax, s.lateMax)
}
