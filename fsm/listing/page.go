package listing

import (
	"slices"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/store"
)

// Page gathers the keys of one page, by time and serial. Orders are added to it, and Keys gives
// what was gathered.
type Page struct {
	from   store.Key // the first that belongs to it
	before fsm.Time  // keys from here on do not belong to it; 0 for no bound
	now    fsm.Time
	keys   []store.Key
	// most is how many keys of an order are gathered. If an order has more, cut is set: keys are
	// complete up to end.
	most int
	cut  bool
	end  store.Key
}

// New returns an empty page of a query at time now. It gathers at most most+1 keys of each order.
func New(query *fsm.ListQuery, most int, now fsm.Time) *Page {
	p := &Page{from: store.Key{At: query.DueAfter}, before: query.DueBefore, now: now, most: most}
	if query.After != (fsm.Cursor{}) {
		if after := (store.Key{At: query.After.Due, Serial: query.After.Serial + 1}); p.from.Less(after) {
			p.from = after
		}
	}
	return p
}

// Keys returns what was gathered, in listing order and each key once.
func (p *Page) Keys() []store.Key {
	slices.SortFunc(p.keys, store.Key.Compare)
	p.keys = slices.Compact(p.keys)
	return p.keys
}

// Cut reports whether an order had more keys than the page gathers. The keys are then complete up
// to end only.
func (p *Page) Cut() (end store.Key, cut bool) { return p.end, p.cut }

// cutAt notes that an order is gathered up to a key only.
func (p *Page) cutAt(k store.Key) {
	if !p.cut || k.Less(p.end) {
		p.cut, p.end = true, k
	}
}

func (p *Page) within(k store.Key) bool {
	return !k.Less(p.from) && (p.before == 0 || k.At < p.before)
}

// Add adds the keys of an order by due.
func (p *Page) Add(order *store.Order) { p.addFrom(order, p.from) }

// AddLater adds the keys of an order by due that are due after now. Keys of jobs that are in another
// state at time now take no room on the page.
func (p *Page) AddLater(order *store.Order) {
	from := p.from
	if start := (store.Key{At: p.now + 1}); from.Less(start) {
		from = start
	}
	p.addFrom(order, from)
}

func (p *Page) addFrom(order *store.Order, from store.Key) {
	n := 0
	order.Ascend(from, func(k store.Key) bool {
		if !p.within(k) {
			return false
		}
		p.keys = append(p.keys, k)
		if n++; n > p.most {
			p.cutAt(k)
			return false
		}
		return true
	})
}

// ranksMax bounds the ranks of an order that AddByPriority looks up one by one.
const ranksMax = 256

// AddByPriority adds the first keys of each rank of an order by priority, the fewer the more ranks have
// jobs. Of an order with more than ranksMax ranks it looks at all keys.
func (p *Page) AddByPriority(order *store.Order) {
	before := *p
	seen := 0
	for k, ok := order.Min(); ok; k, ok = order.From(store.Key{Rank: k.Rank, At: fsm.TimeMax, Serial: 1<<64 - 1}) {
		if seen++; seen > ranksMax {
			*p = before
			p.addAll(order)
			return
		}
		p.addRank(order, k.Rank, p.most/seen)
	}
}

// addRank adds the first keys of a rank, at most so many and one.
func (p *Page) addRank(order *store.Order, rank uint32, most int) {
	n := 0
	order.Ascend(store.Key{Rank: rank, At: p.from.At, Serial: p.from.Serial}, func(k store.Key) bool {
		if k.Rank != rank {
			return false
		}
		if k.Rank = 0; !p.within(k) {
			return false
		}
		p.keys = append(p.keys, k)
		if n++; n > most {
			p.cutAt(k)
			return false
		}
		return true
	})
}

// addAll adds the first keys of an order by priority, whatever their ranks.
func (p *Page) addAll(order *store.Order) {
	var first []store.Key
	trim := func() {
		slices.SortFunc(first, store.Key.Compare)
		if len(first) > p.most+1 {
			first = first[:p.most+1]
			p.cutAt(first[p.most])
		}
	}
	order.Each(func(k store.Key) {
		if k.Rank = 0; !p.within(k) || p.cut && p.end.Less(k) {
			return
		}
		if first = append(first, k); len(first) > 2*(p.most+1) {
			trim()
		}
	})
	trim()
	p.keys = append(p.keys, first...)
}

// A Place returns the place in its list that the job at an index has; false if the job is not held.
type Place func(index uint32) (fsm.Cursor, bool)

// AddDue adds the jobs of an order whose time has come by now, as they are then: lapsed, expired or
// spread. place knows where each then is.
func (p *Page) AddDue(order *store.Order, place Place) {
	order.Ascend(store.Key{}, func(k store.Key) bool {
		if k.At > p.now {
			return false
		}
		if at, held := place(k.Index); held {
			if k := (store.Key{At: at.Due, Serial: at.Serial, Index: k.Index}); p.within(k) {
				p.keys = append(p.keys, k)
			}
		}
		return true
	})
}

// OwnBodies gives jobs copies of their bodies, all in one piece of memory: one allocation while
// readers hold up the shard.
func OwnBodies(jobs []fsm.Job) {
	bytes := 0
	for i := range jobs {
		bytes += len(jobs[i].Body)
	}
	room := make([]byte, 0, bytes)
	for i := range jobs {
		start := len(room)
		room = append(room, jobs[i].Body...)
		jobs[i].Body = room[start:len(room):len(room)]
	}
}
