package keys

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/store"
)

// Load puts a key that a snapshot brought into its list. Where keys take rounds, its round says
// whether it was eligible.
func (q *Queue) Load(group uint32) {
	g := q.keys.At(group)
	list := q.listOf(g, group)
	if q.takesRounds() && list == inEligible {
		list = inWaiting // it has a token, and no Reserve has woken it yet
	}
	if q.round(group) != 0 {
		list = inEligible
	}
	switch list {
	case inEligible:
		q.eligible.push(group)
	case inWaiting:
		q.waiting.push(group)
	default:
		mark(q.keys, group, list)
	}
	q.recount(group)
}

// Hold pauses a key that a backup has as paused, however many are. It reports false if the key is
// paused already.
func (q *Queue) Hold(key string) bool {
	group := q.keys.Add(q.index, key)
	if q.paused(group) {
		return false
	}
	q.setPaused(group, true)
	q.Dropped(group)
	return true
}

// Adopt takes in the memory of a key that was read from a record.
func (q *Queue) Adopt(k *fsm.KeyMemory) {
	group := q.keys.Add(q.index, k.Key)
	m := q.keys.Remember(group, k.Serial)
	m.RateAt, m.Round, m.Paused = k.RateAt, k.Round, k.Paused
	q.memories.Insert(q.keys.At(group).Memory)
	if k.RateAt != 0 {
		q.keys.Rates.Insert(q.keys.At(group).Memory)
	}
	if k.Paused {
		q.shard.Paused++
	}
	*q.shard.Sum += q.keys.Hash(group, q.name)
}

// SetRateAt changes the time at which the bucket of a key is full; 0 if it is full now.
func (q *Queue) SetRateAt(group uint32, full fsm.Time) {
	q.edit(group, func(m store.KeyMemory) store.KeyMemory {
		m.RateAt = full
		return m
	})
	if q.keys.At(group).List == inWaiting {
		q.waiting.fix(group)
	}
	q.keys.Trim(group)
}
