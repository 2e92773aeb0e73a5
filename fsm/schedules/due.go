package schedules

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/store"
)

// walkMax bounds the schedules that one call of Due looks at, listed or not: well under a millisecond,
// during which the shard is locked.
const walkMax = 4096

// Place is where a schedule stands in the order of the next firings. The zero Place is the beginning.
type Place struct {
	at     fsm.Time
	serial uint64
}

// PlaceOf returns the place of a schedule.
func PlaceOf(s *fsm.Schedule) Place { return Place{s.Next, s.Serial} }

// DueQuery asks for schedules whose firing has come at time Now.
type DueQuery struct {
	Now fsm.Time
	// From is where to begin. Most bounds those that are listed.
	From Place
	Most int
	// Skip passes over schedules; nil for none.
	Skip func(queue string, name []byte) bool
}

// Due is the answer to a DueQuery.
type Due struct {
	// List are schedules in the order of their firings. They do not alias the store, and have no body.
	List []fsm.Schedule
	// Bytes are about how many bytes each has, and at least as many as a job of it.
	Bytes []uint64
	// More says that there may be more from Rest on.
	More bool
	Rest Place
	// Next, without More, is when the first later one fires that is not passed over, 0 if none does.
	Next fsm.Time
}

// Due answers a query. queue returns the schedules of a queue by its index.
func (s *Shard) Due(query *DueQuery, queue func(index uint32) *Queue) (d Due) {
	looked, all := 0, &s.Store.Schedules
	all.Due.Ascend(store.Key{At: query.From.at, Serial: query.From.serial}, func(k store.Key) bool {
		if looked == walkMax || len(d.List) == query.Most {
			d.More, d.Rest = true, Place{k.At, k.Serial}
			return false
		}
		looked++
		q := queue(all.Record(k.Index).Queue)
		switch {
		case query.Skip != nil && query.Skip(q.name, all.Name(k.Index)):
			return true
		case k.At > query.Now:
			d.Next = k.At
			return false
		}
		v := q.Get(k.Index)
		v.Job.Body = nil
		d.List, d.Bytes = append(d.List, v), append(d.Bytes, jobBytes(all, k.Index))
		return true
	})
	return d
}
