package machine

import (
	"slices"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/store"
)

// List returns up to Max jobs as they are at time now, which must not be before Clock, and whether
// there are more. It looks one by one at jobs that fell due, lapsed or expired since the last
// entry, and at ready jobs once for each priority in use.
func (m *Machine) List(query *fsm.ListQuery, now fsm.Time) (jobs []fsm.Job, more bool) {
	q := m.queues.byName[query.Queue]
	if q == nil {
		return nil, false
	}
	for _, k := range m.candidates(q, query, query.Max+fsm.StepMax, now).keys {
		v := m.view(job{k.Index, q})
		if !m.at(q, &v, now) || v.State != query.State || v.Due != k.At {
			continue
		}
		if len(jobs) >= query.Max {
			return jobs, true
		}
		jobs = append(jobs, v)
	}
	return jobs, false
}

// causeCost is how much longer than a search for a text it takes to compute the cause of an error.
const causeCost = 32

// answerSearch answers a search as List answers a list, from no more than Scan jobs.
func (m *Machine) answerSearch(query *fsm.SearchQuery, now fsm.Time) (r fsm.Reading) {
	q := m.queues.byName[query.Queue]
	if q == nil {
		return r
	}
	bytes := uint64(0)
	page := m.candidates(q, &query.ListQuery, query.Scan, now)
	for _, k := range page.keys {
		if page.cut && page.end.Less(k) { // an order was not read up to here
			break
		}
		v := m.view(job{k.Index, q})
		if !m.at(q, &v, now) || v.State != query.State || v.Due != k.At {
			continue
		}
		if len(r.Jobs) >= query.Max || int(r.Scanned) >= query.Scan || bytes >= fsm.ScanBytes {
			r.More = true
			break
		}
		r.Scanned, r.Last = r.Scanned+1, fsm.Cursor{Due: v.Due, Serial: v.Serial}
		bytes += uint64(len(v.Body))
		if query.Match.Cause != "" {
			bytes += causeCost * uint64(len(v.LastError))
		}
		if query.Match.Fits(&v) {
			v.Body = nil
			r.Jobs = append(r.Jobs, v)
		}
	}
	if page.cut && !r.More {
		r.More, r.Last = true, fsm.Cursor{Due: page.end.At, Serial: page.end.Serial}
	}
	m.complete(r.Jobs)
	return r
}

// candidates returns the first jobs from the cursor on, as keys in listing order, at most most+1 of
// each order and priority. It may add some that are in another state at time now.
func (m *Machine) candidates(q *queue, query *fsm.ListQuery, most int, now fsm.Time) page {
	from := store.Key{At: query.DueAfter}
	if query.After != (fsm.Cursor{}) {
		if after := (store.Key{At: query.After.Due, Serial: query.After.Serial + 1}); from.Less(after) {
			from = after
		}
	}
	p := page{query: query, from: from, now: now, most: most}
	switch query.State {
	case fsm.Delayed:
		from := from
		if r := m.record(q); r.OverdueTo != 0 && r.Settings.Overdue == fsm.SpreadOverdue {
			p.upTo(m, q, &q.delayed)
		}
		if start := (store.Key{At: now + 1}); from.Less(start) {
			from = start
		}
		p.ordered(&q.delayed, from)
	case fsm.Dead:
		p.ordered(&q.dead, from)
		p.upTo(m, q, &q.leases)
		p.upTo(m, q, &q.ttls)
	case fsm.Ready:
		p.ready(q)
		p.ordered(&q.delayed, from)
		p.upTo(m, q, &q.leases)
		if r := m.record(q); r.OverdueTo != 0 && r.Settings.Overdue == fsm.SpreadOverdue {
			p.upTo(m, q, &q.delayed)
		}
	case fsm.Reserved:
		p.ordered(&q.working, from)
	default: // no job is held in any other state
	}
	slices.SortFunc(p.keys, store.Key.Compare)
	p.keys = slices.Compact(p.keys)
	return p
}

// page gathers the keys of one page of a listing.
type page struct {
	query *fsm.ListQuery
	from  store.Key
	now   fsm.Time
	keys  []store.Key
	// most is how many keys of an order are gathered. If an order has more, cut is set: keys are
	// complete up to end.
	most int
	cut  bool
	end  store.Key
}

// cutAt notes that an order is gathered up to a key only.
func (p *page) cutAt(k store.Key) {
	if !p.cut || k.Less(p.end) {
		p.cut, p.end = true, k
	}
}

func (p *page) within(k store.Key) bool {
	return !k.Less(p.from) && (p.query.DueBefore == 0 || k.At < p.query.DueBefore)
}

func (p *page) add(k store.Key) {
	if p.within(k) {
		p.keys = append(p.keys, k)
	}
}

// ordered adds keys of an order by due. Keys of jobs that are in another state at time now take no
// room on the page, so only those from the present on are counted.
func (p *page) ordered(order *store.Order, from store.Key) {
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

// ready adds the first keys of each priority, the fewer the more priorities have jobs.
func (p *page) ready(q *queue) {
	seen := 0
	for next, more := -128, true; more && next <= 127; {
		priority, n := next, 0
		more = false
		q.ready.Ascend(store.Key{At: p.from.At, Serial: p.from.Serial, Priority: int8(next)}, func(k store.Key) bool {
			if int(k.Priority) != priority {
				priority, n = int(k.Priority), 0
				seen++
			}
			k.Priority = 0
			switch {
			case k.Less(p.from):
				next, more = priority, true
			case !p.within(k):
				next, more = priority+1, true
			default:
				p.keys = append(p.keys, k)
				if n++; n > p.most/max(1, seen) {
					p.cutAt(k)
					next, more = priority+1, true
				}
			}
			return !more
		})
	}
}

// upTo adds the jobs of an order whose time has come by now, as they are then: lapsed, expired or
// spread.
func (p *page) upTo(m *Machine, q *queue, order *store.Order) {
	order.Ascend(store.Key{}, func(k store.Key) bool {
		if k.At > p.now {
			return false
		}
		v := m.view(job{k.Index, q})
		if m.at(q, &v, p.now) {
			p.add(store.Key{At: v.Due, Serial: k.Serial, Index: k.Index})
		}
		return true
	})
}
