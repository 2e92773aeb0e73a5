// Package keys decides which keys of a queue may have a job handed out, and which comes next.
package keys

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/store"
)

// Shard is what the queues of a shard have in common.
type Shard struct {
	Store   *store.Store
	Scalars *fsm.Scalars
	// Sum is the digest of the records of the shard, which the memories of keys are part of.
	Sum *uint64
	// Paused counts the paused keys.
	Paused int
	// Loading is set while a snapshot is read: then jobs are counted, and Load does the rest.
	Loading bool
	// WakeMax bounds the keys of a queue that the first Reserve of an entry wakes.
	WakeMax int
}

// Queue has the keys of a queue in the order in which jobs may be handed out. A key with a READY job
// is in one of two lists: it is eligible, or it waits for a token of its bucket. Or it is in none: it
// has as many leases as it may have, is paused, or is held.
type Queue struct {
	shard    *Shard
	keys     *store.Keys
	index    uint32
	name     string
	ready    *store.Order // the READY jobs without a key
	settings fsm.KeySettings
	order    store.KeyOrder
	eligible heap
	waiting  heap
	memories store.Order // of its keys, by serial
	// room is how many jobs of eligible keys may be handed out at once.
	room uint64
	// woken is the index of the entry that woke keys last.
	woken uint64
}

// New returns the keys of a queue that has none. ready are its READY jobs without a key.
func New(shard *Shard, index uint32, name string, ready *store.Order, settings *fsm.KeySettings) *Queue {
	q := &Queue{shard: shard, keys: &shard.Store.Keys, index: index, name: name, ready: ready}
	q.memories = shard.Store.Order(store.ByMemory)
	q.eligible = heap{list: inEligible, keys: q.keys}
	q.waiting = heap{list: inWaiting, keys: q.keys, less: q.tokenBefore}
	q.use(settings)
	if settings.Fair {
		q.PlainChanged()
	}
	return q
}

func (q *Queue) use(settings *fsm.KeySettings) {
	q.settings, q.order, q.eligible.less = *settings, store.ByRank, q.rankBefore
	if settings.Ordered {
		q.order = store.ByPlace
	}
	if settings.Fair {
		q.eligible.less = q.roundBefore
	}
}

// takesRounds reports whether each eligible key has a round. In a fair queue it is the order of the
// keys. In a queue with a rate it also says that a key is awake: a token alone does not.
func (q *Queue) takesRounds() bool { return q.settings.Fair || q.settings.Rate.Count > 0 }

// rankBefore is the order of eligible keys: by their first jobs.
func (q *Queue) rankBefore(a, b uint32) bool {
	return q.keys.Rank(q.keys.At(a).Head).Less(q.keys.Rank(q.keys.At(b).Head))
}

// roundBefore is the order of eligible keys of a fair queue.
func (q *Queue) roundBefore(a, b uint32) bool { return q.round(a) < q.round(b) }

func (q *Queue) round(group uint32) uint64 {
	if index := q.keys.At(group).Memory; index != 0 {
		return q.keys.Memory(index).Round
	}
	return 0
}

// tokenBefore is the order of keys that wait for a token.
func (q *Queue) tokenBefore(a, b uint32) bool {
	if at, other := q.tokenAt(a), q.tokenAt(b); at != other {
		return at < other
	}
	return q.keys.Rank(q.keys.At(a).Head).Serial < q.keys.Rank(q.keys.At(b).Head).Serial
}

// tokenAt returns when the bucket of a key has a token.
func (q *Queue) tokenAt(group uint32) fsm.Time {
	index := q.keys.At(group).Memory
	if index == 0 {
		return 0
	}
	return q.tokenOf(q.keys.Memory(index))
}

// tokenOf returns when the bucket of the key with a memory has a token.
func (q *Queue) tokenOf(m *store.KeyMemory) fsm.Time {
	if q.settings.Rate.Count == 0 {
		return 0
	}
	return tokenAt(&q.settings.Rate, m.RateAt)
}

// plain returns the group that the jobs without a key of a fair queue make up, 0 if there is none.
func (q *Queue) plain() uint32 { return q.keys.Find(q.index, "") }

// Lift takes out a job that is about to change, while it still has its state.
func (q *Queue) Lift(job uint32) {
	group := q.keys.GroupOf(job)
	g := q.keys.At(group)
	q.uncount(g)
	*q.count(g, job)--
	q.keys.Remove(q.order, job)
}

// Set takes in a job that was lifted, or is new, in its new state.
func (q *Queue) Set(job uint32) {
	group := q.keys.GroupOf(job)
	g := q.keys.At(group)
	q.uncount(g)
	*q.count(g, job)++
	q.keys.Insert(q.order, job)
	q.refresh(group)
}

// Dropped takes note that a job of a group is gone that was lifted before.
func (q *Queue) Dropped(group uint32) {
	q.refresh(group)
	q.keys.Trim(group)
}

// count returns the count that a job belongs to.
func (q *Queue) count(g *store.KeyGroup, job uint32) *uint32 {
	switch q.shard.Store.Slot(job).State() {
	case fsm.Delayed:
		return &g.Delayed
	case fsm.Ready:
		return &g.Ready
	case fsm.Reserved:
		return &g.Reserved
	default:
		return &g.Dead
	}
}

// PlainChanged takes note that the READY jobs without a key have changed.
func (q *Queue) PlainChanged() {
	if !q.settings.Fair || q.shard.Loading {
		return
	}
	group := q.plain()
	if q.ready.Len() == 0 {
		if group != 0 {
			q.leave(group)
			q.keys.Trim(group)
		}
		return
	}
	if group == 0 {
		group = q.keys.Add(q.index, "")
	}
	if q.keys.At(group).List == inNone {
		q.enter(group)
	}
}

// refresh puts a key into the list that it belongs to.
func (q *Queue) refresh(group uint32) {
	if q.shard.Loading {
		return
	}
	g := q.keys.At(group)
	list := q.listOf(g, group)
	switch {
	case g.List == list && list == inEligible:
		q.eligible.fix(group)
	case g.List == list && list == inWaiting:
		q.waiting.fix(group)
	default:
		q.leave(group)
		switch list {
		case inEligible:
			q.enter(group)
		case inWaiting:
			q.waiting.push(group)
		default:
			mark(q.keys, group, list)
		}
	}
	q.recount(group)
}

// Holds reports whether a key may not have a job handed out now, whichever it is: because of its pause, a
// DEAD job, its limit or its rate.
func (q *Queue) Holds(job uint32) bool {
	group := q.keys.GroupOf(job)
	return q.holder(q.keys.At(group)) != inNone || q.tokenAt(group) > q.shard.Scalars.Clock
}

// holder returns what holds a key back whichever its jobs are, inNone if nothing does.
func (q *Queue) holder(g *store.KeyGroup) uint8 {
	limit := q.settings.Limit()
	switch {
	case g.Memory != 0 && q.keys.Memory(g.Memory).Paused:
		return heldByPause
	case q.settings.HoldOnDead && g.Dead > 0:
		return heldByDead
	case limit > 0 && g.Reserved >= limit:
		return heldByLimit
	default:
		return inNone
	}
}

// listOf decides which list a key belongs to.
func (q *Queue) listOf(g *store.KeyGroup, group uint32) uint8 {
	held := q.holder(g)
	switch {
	case g.Ready == 0:
		return inNone
	case held != inNone:
		return held
	case q.shard.Store.Slot(g.Head).State() != fsm.Ready:
		return heldByOrder
	case q.tokenAt(group) > q.shard.Scalars.Clock:
		return inWaiting
	default:
		return inEligible
	}
}

// enter makes a key eligible: in a fair queue after all others.
func (q *Queue) enter(group uint32) {
	if q.takesRounds() {
		q.edit(group, func(m store.KeyMemory) store.KeyMemory {
			q.shard.Scalars.Serial++
			m.Round = q.shard.Scalars.Serial
			return m
		})
	}
	q.eligible.push(group)
}

// leave takes a key out of its list.
func (q *Queue) leave(group uint32) {
	g := q.keys.At(group)
	switch g.List {
	case inEligible:
		q.uncount(g)
		q.eligible.remove(group)
		if q.round(group) != 0 {
			q.edit(group, func(m store.KeyMemory) store.KeyMemory {
				m.Round = 0
				return m
			})
		}
	case inWaiting:
		q.waiting.remove(group)
	default:
		mark(q.keys, group, inNone)
	}
}

// edit changes the memory of a key, and the digest with it. The memory lasts as long as it says
// something.
func (q *Queue) edit(group uint32, change func(store.KeyMemory) store.KeyMemory) {
	*q.shard.Sum -= q.keys.Hash(group, q.name)
	g := q.keys.At(group)
	if g.Memory == 0 {
		q.shard.Scalars.Serial++
		q.keys.Remember(group, q.shard.Scalars.Serial)
		q.memories.Insert(g.Memory)
	}
	m := q.keys.EditMemory(g.Memory)
	changed := change(*m)
	moved := changed.RateAt != m.RateAt
	if moved && m.RateAt != 0 {
		q.keys.Rates.Remove(g.Memory)
	}
	*m = changed
	if moved && m.RateAt != 0 {
		q.keys.Rates.Insert(g.Memory)
	}
	if m.RateAt == 0 && m.Round == 0 && !m.Paused {
		q.memories.Remove(g.Memory)
		q.keys.Forget(group)
	}
	*q.shard.Sum += q.keys.Hash(group, q.name)
}

// uncount takes what an eligible key adds to room out of it.
func (q *Queue) uncount(g *store.KeyGroup) {
	if g.Counted {
		g.Counted = false
		q.room -= q.grants(g)
	}
}

// recount adds what an eligible key may have handed out to room.
func (q *Queue) recount(group uint32) {
	g := q.keys.At(group)
	q.uncount(g)
	if g.List == inEligible {
		g.Counted = true
		q.room += q.grants(g)
	}
}

// grants returns how many jobs of an eligible key may be handed out now. A key with a bucket counts
// as one, since the number of its tokens changes with time.
func (q *Queue) grants(g *store.KeyGroup) uint64 {
	n := uint64(g.Ready)
	if q.settings.Ordered || q.settings.Rate.Count > 0 {
		n = min(n, 1)
	}
	if limit := q.settings.Limit(); limit > 0 {
		n = min(n, uint64(limit-min(limit, g.Reserved)))
	}
	return n
}

// Wake makes keys eligible whose bucket has a token by now, for a Reserve of an entry that asks for so
// many jobs. Each key is woken once for a token. The first Reserve of an entry wakes at most WakeMax
// keys, each later one at most as many as it asks for.
func (q *Queue) Wake(entry uint64, asked int) {
	most := asked
	if q.woken != entry {
		q.woken, most = entry, q.shard.WakeMax
	}
	for ; most > 0; most-- {
		group := q.waiting.first()
		if group == 0 || q.tokenAt(group) > q.shard.Scalars.Clock {
			return
		}
		q.refresh(group)
	}
}

// Next returns the job to hand out next, 0 if there is none.
func (q *Queue) Next() uint32 {
	group := q.eligible.first()
	plain, ok := q.ready.Min()
	switch {
	case group == 0 && !ok:
		return 0
	case group == 0:
		return plain.Index
	}
	head := q.keys.At(group).Head
	if head == 0 || // the jobs without a key of a fair queue
		!q.settings.Fair && ok && plain.Less(q.keys.Rank(head)) {
		return plain.Index
	}
	return head
}

// Grant takes note that a lifted job is about to be leased: its key gives a token, and its round
// ends, if it has one. The job need not be the next one.
func (q *Queue) Grant(job uint32) {
	if !q.takesRounds() {
		return
	}
	var group uint32
	keyed := q.shard.Store.Slot(job).HasKey()
	if keyed {
		group = q.keys.GroupOf(job)
	} else if group = q.plain(); group == 0 { // the queue is not fair
		return
	}
	rated := keyed && q.settings.Rate.Count > 0
	switch g := q.keys.At(group); g.List {
	case inEligible:
		q.uncount(g)
		q.eligible.remove(group)
	case inWaiting:
		q.waiting.remove(group)
	default:
		mark(q.keys, group, inNone)
	}
	if !rated && q.round(group) == 0 {
		return
	}
	q.edit(group, func(m store.KeyMemory) store.KeyMemory {
		m.Round = 0
		if rate := &q.settings.Rate; rated {
			m.RateAt = max(m.RateAt, q.shard.Scalars.Clock).Add(period(rate))
		}
		return m
	})
}

// Available returns how many jobs could be handed out at a time that is not before the clock, and
// when that may change because a key gets a token; 0 if it does not.
func (q *Queue) Available(now fsm.Time) (n uint64, next fsm.Time) {
	n = uint64(q.ready.Len()) + q.room
	stack := []int{0}
	for visits := 0; len(stack) > 0 && visits < fsm.StepMax; visits++ {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if i >= len(q.waiting.groups) {
			continue
		}
		group := q.waiting.groups[i]
		if at := q.tokenAt(group); at > now {
			if next == 0 || at < next {
				next = at
			}
			continue
		}
		n += q.grants(q.keys.At(group))
		stack = append(stack, 2*i+1, 2*i+2)
	}
	return n, next
}

// Group returns the group of a key, 0 if there is none. A nil queue has none.
func (q *Queue) Group(key string) uint32 {
	if q == nil {
		return 0
	}
	return q.keys.Find(q.index, key)
}

// Jobs returns the first jobs of a group in the given states, in the order of the key, at most so many.
func (q *Queue) Jobs(group uint32, states fsm.StateSet, most int) (jobs []uint32) {
	job := q.keys.After(q.order, group, 0, states)
	for ; job != 0 && len(jobs) < most; job = q.keys.After(q.order, group, job, states) {
		jobs = append(jobs, job)
	}
	return jobs
}
