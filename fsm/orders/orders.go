// Package orders keeps the jobs of a queue in the orders of their states.
package orders

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/listing"
	"github.com/belfrydb/belfry/fsm/rule"
	"github.com/belfrydb/belfry/fsm/store"
)

// Queue has the held jobs of a queue, by their state. All of it is derived.
type Queue struct {
	store *store.Store
	// FIFO is how many FIFO jobs there are.
	FIFO int

	Delayed store.Order // by due
	Ready   store.Order // without a key, by priority, due
	Keyed   store.Order // READY jobs with a key, by priority, due
	Leases  store.Order // by until
	Working store.Order // RESERVED jobs by due, for listing
	Dead    store.Order // by due, FIFO jobs by death
	TTLs    store.Order // DELAYED and READY jobs by ttl
}

// New returns the orders of a queue without jobs.
func New(s *store.Store) Queue {
	return Queue{
		store: s, Delayed: s.Order(store.ByDue), Ready: s.Order(store.ByPriority), Keyed: s.Order(store.ByPriority),
		Leases: s.Order(store.ByUntil), Working: s.Order(store.ByDue), Dead: s.Order(store.ByDeath),
		TTLs: s.Order(store.ByTTL),
	}
}

// Insert adds a job to the orders of its state.
func (q *Queue) Insert(job uint32) {
	s := q.store.Slot(job)
	switch s.State() {
	case fsm.Delayed:
		q.Delayed.Insert(job)
	case fsm.Ready:
		q.readyOf(s).Insert(job)
	case fsm.Reserved:
		q.Leases.Insert(job)
		q.Working.Insert(job)
	case fsm.Dead:
		q.Dead.Insert(job)
	default:
		panic("fsm: a job is set to a state in which none is held")
	}
	if s.HasTTL() && (s.State() == fsm.Delayed || s.State() == fsm.Ready) {
		q.TTLs.Insert(job)
	}
}

// Remove removes a job from the orders of its state, before it changes.
func (q *Queue) Remove(job uint32) {
	s := q.store.Slot(job)
	switch s.State() {
	case fsm.Delayed:
		q.Delayed.Remove(job)
	case fsm.Ready:
		q.readyOf(s).Remove(job)
	case fsm.Reserved:
		q.Leases.Remove(job)
		q.Working.Remove(job)
	case fsm.Dead:
		q.Dead.Remove(job)
	default:
		panic("fsm: a job that is not held is lifted")
	}
	if s.HasTTL() && (s.State() == fsm.Delayed || s.State() == fsm.Ready) {
		q.TTLs.Remove(job)
	}
}

// readyOf returns the order that a READY job is in.
func (q *Queue) readyOf(s *store.Slot) *store.Order {
	if s.HasKey() {
		return &q.Keyed
	}
	return &q.Ready
}

// FirstReady returns the first READY job, whether or not it may be handed out.
func (q *Queue) FirstReady() (store.Key, bool) {
	k, ok := q.Ready.Min()
	if keyed, more := q.Keyed.Min(); more && (!ok || keyed.Less(k)) {
		return keyed, true
	}
	return k, ok
}

// First returns the first job in the given states: DELAYED before READY before RESERVED before DEAD,
// each in its order. It is 0 if there is none.
func (q *Queue) First(states fsm.StateSet) uint32 {
	var k store.Key
	var ok bool
	if states.Has(fsm.Delayed) {
		k, ok = q.Delayed.Min()
	}
	if !ok && states.Has(fsm.Ready) {
		k, ok = q.FirstReady()
	}
	if !ok && states.Has(fsm.Reserved) {
		k, ok = q.Leases.Min()
	}
	if !ok && states.Has(fsm.Dead) {
		k, _ = q.Dead.Min()
	}
	return k.Index
}

// HasDead reports whether a DEAD job has a place in their list.
func (q *Queue) HasDead(place fsm.Cursor) bool {
	k, ok := q.Dead.From(store.Key{At: place.Due, Serial: place.Serial})
	return ok && k.At == place.Due && k.Serial == place.Serial
}

// Deadline returns when the first job lapses, expires or falls due, 0 if none does.
func (q *Queue) Deadline() fsm.Time {
	next := q.Delayed.FirstAt()
	for _, o := range [...]*store.Order{&q.Leases, &q.TTLs} {
		if at := o.FirstAt(); at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	return next
}

// Urgent counts the READY jobs with a priority below fsm.UrgentBelow.
func (q *Queue) Urgent() uint64 {
	rank := fsm.RankOf(fsm.UrgentBelow)
	return q.Ready.Below(rank) + q.Keyed.Below(rank)
}

// ranksMax bounds the ranks that OldestReady looks at.
const ranksMax = 256

// OldestReady returns the due time of the job that has been ready longest, 0 if none is. It looks at
// the first job of each of the first ranksMax priorities: of FIFO jobs that is the one put first, and
// another one may be due before it.
func (q *Queue) OldestReady(now fsm.Time) fsm.Time {
	var oldest fsm.Time
	for _, order := range [...]*store.Order{&q.Ready, &q.Keyed} {
		after := store.Key{At: fsm.TimeMax, Serial: 1<<64 - 1} // all keys of its priority
		k, ok := order.Min()
		for n := 0; ok && n < ranksMax; n++ {
			if due := q.store.Slot(k.Index).Due; oldest == 0 || due < oldest {
				oldest = due
			}
			after.Rank = k.Rank
			k, ok = order.From(after)
		}
	}
	if at := q.Delayed.FirstAt(); at != 0 && at <= now && (oldest == 0 || at < oldest) {
		oldest = at
	}
	return oldest
}

// NextDue returns when the first job falls due after a time, 0 if none does.
func (q *Queue) NextDue(now fsm.Time) fsm.Time {
	next := q.Delayed.FirstAt()
	if next != 0 && next <= now {
		later, _ := q.Delayed.From(store.Key{At: now + 1})
		next = later.At
	}
	return next
}

// Available returns how many jobs a Reserve at time now could get at most, of which so many are READY, and
// when that may change: when a key gets a token, or earlier.
func (q *Queue) Available(r *fsm.QueueRecord, ready uint64, token, now fsm.Time) (n uint64, next fsm.Time) {
	due, next := q.Delayed.UpTo(now, fsm.StepMax)
	lapsed, nextUntil := q.Leases.UpTo(now, fsm.StepMax)
	n = ready + due + lapsed
	for _, at := range [...]fsm.Time{nextUntil, token} {
		if at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	if limit := rule.PartitionLimit(r.Settings.MaxInFlight, r); limit > 0 {
		held := r.Counts.Reserved - lapsed
		if held >= limit {
			return 0, next
		}
		n = min(n, limit-held)
	}
	return n, next
}

// FirstReadyAt returns the job that leaves first at time now, of those without a key and one that is next as
// things stand; nil if there is none. ready returns a job as it is then, nil if it is not READY or the job is
// 0. It looks at fsm.StepMax jobs of each order at most.
func (q *Queue) FirstReadyAt(now fsm.Time, next uint32, ready func(job uint32) *fsm.Job) *fsm.Job {
	first := ready(next)
	var rank store.Key
	if first != nil {
		rank = rankOf(first)
	}
	look := func(order *store.Order, enough func(store.Key) bool) {
		n := 0
		order.Ascend(store.Key{}, func(k store.Key) bool {
			if n++; n > fsm.StepMax || enough(k) {
				return false
			}
			if q.store.Slot(k.Index).HasKey() {
				return true
			}
			if v := ready(k.Index); v != nil {
				if at := rankOf(v); first == nil || at.Less(rank) {
					first, rank = v, at
				}
			}
			return true
		})
	}
	look(&q.Ready, func(k store.Key) bool { return first != nil && !k.Less(rank) })
	late := func(k store.Key) bool { return k.At > now }
	look(&q.Delayed, late)
	look(&q.Leases, late)
	return first
}

// rankOf returns the key of a READY job among the others.
func rankOf(v *fsm.Job) store.Key {
	at := v.ListPlace()
	return store.Key{Rank: fsm.RankOf(v.Priority), At: at.Due, Serial: at.Serial}
}

// Candidates returns the first jobs of a list from its cursor on, at most most+1 of each order and
// priority. It may add some that are in another state at time now. place returns the place in its list
// that a job has then; false if it is not held. r is the record of the queue.
func (q *Queue) Candidates(r *fsm.QueueRecord, query *fsm.ListQuery, most int, now fsm.Time,
	place listing.Place) *listing.Page {
	p := listing.New(query, most, now)
	spreads := r.OverdueTo != 0 && r.Settings.Overdue == fsm.SpreadOverdue // due times may change
	switch query.State {
	case fsm.Delayed:
		if spreads {
			p.AddDue(&q.Delayed, place)
		}
		p.AddLater(&q.Delayed)
	case fsm.Dead:
		p.Add(&q.Dead)
		p.AddDue(&q.Leases, place)
		p.AddDue(&q.TTLs, place)
	case fsm.Ready:
		p.AddByPriority(&q.Ready)
		p.AddByPriority(&q.Keyed)
		p.Add(&q.Delayed)
		p.AddDue(&q.Leases, place)
		if spreads || q.FIFO > 0 { // the place of a FIFO job changes when it falls due
			p.AddDue(&q.Delayed, place)
		}
	case fsm.Reserved:
		p.Add(&q.Working)
	default: // no job is held in any other state
	}
	return p
}

// Discard frees the orders of a queue without jobs that is not used any more.
func (q *Queue) Discard() {
	for _, o := range [...]*store.Order{&q.Delayed, &q.Ready, &q.Keyed, &q.Leases, &q.Working, &q.Dead, &q.TTLs} {
		o.Discard()
	}
}
