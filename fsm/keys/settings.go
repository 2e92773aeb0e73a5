package keys

import (
	"slices"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/store"
)

// Configure takes new settings.
func (q *Queue) Configure(settings *fsm.KeySettings) {
	if *settings != q.settings {
		others := func(group uint32) bool { return q.keys.At(group).Queue != q.index }
		q.Rebuild(settings, slices.DeleteFunc(slices.Collect(q.keys.All()), others))
	}
}

// Rebuild puts every key where the settings want it, and wakes all that have a token. Rounds begin
// anew, in the order of the first jobs of the keys. groups are all that the queue has.
func (q *Queue) Rebuild(settings *fsm.KeySettings, groups []uint32) {
	all := slices.Clone(groups)
	for _, group := range groups {
		q.leave(group)
	}
	reorder := settings.Ordered != q.settings.Ordered
	q.use(settings)
	if reorder {
		q.reorder(groups)
	}
	groups = slices.DeleteFunc(groups, func(group uint32) bool { return q.keys.At(group).Head == 0 })
	slices.SortFunc(groups, func(a, b uint32) int {
		return q.keys.Rank(q.keys.At(a).Head).Compare(q.keys.Rank(q.keys.At(b).Head))
	})
	for _, group := range groups {
		q.refresh(group)
	}
	for _, group := range all {
		q.keys.Trim(group)
	}
	q.PlainChanged()
}

// reorder makes the trees of groups anew.
func (q *Queue) reorder(groups []uint32) {
	for _, group := range groups {
		q.keys.Clear(group)
	}
	for job := range q.shard.Store.Jobs() {
		if s := q.shard.Store.Slot(job); s.Queue == q.index && s.HasKey() {
			q.keys.Insert(q.order, job)
		}
	}
}

// Pause keeps the jobs of a key back, or ends that. It reports whether anything changed, and false
// for ok if too many keys are paused.
func (q *Queue) Pause(c *fsm.PauseKey) (changed, ok bool) {
	group := q.keys.Find(q.index, c.Key)
	paused := group != 0 && q.paused(group)
	switch {
	case paused != c.Resume: // already as asked
		return false, true
	case !c.Resume && q.shard.Paused >= fsm.PausedKeysMax:
		return false, false
	case group == 0:
		group = q.keys.Add(q.index, c.Key)
	}
	q.setPaused(group, !c.Resume)
	q.Dropped(group)
	return true, true
}

func (q *Queue) paused(group uint32) bool {
	index := q.keys.At(group).Memory
	return index != 0 && q.keys.Memory(index).Paused
}

func (q *Queue) setPaused(group uint32, paused bool) {
	q.shard.Paused--
	if paused {
		q.shard.Paused += 2
	}
	q.edit(group, func(m store.KeyMemory) store.KeyMemory {
		m.Paused = paused
		return m
	})
}

// DropMemories forgets the keys of a queue that has no jobs, in the order of the serials of their
// memories and at most so many, and returns how many are left. A nil queue has none.
func (q *Queue) DropMemories(most uint64) (left int) {
	if q == nil {
		return 0
	}
	for ; most > 0 && q.memories.Len() > 0; most-- {
		first, _ := q.memories.Min()
		group := q.keys.Memory(first.Index).Group()
		if q.paused(group) {
			q.shard.Paused--
		}
		q.edit(group, func(m store.KeyMemory) store.KeyMemory {
			m.RateAt, m.Paused = 0, false
			return m
		})
		q.keys.Trim(group)
	}
	if q.memories.Len() == 0 {
		q.memories.Discard()
	}
	return q.memories.Len()
}
