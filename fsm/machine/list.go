package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"slices"
)

// List returns up to Max jobs as they are at time now, which must not be before Clock, and whether
// there are more. It looks one by one at jobs that fell due, lapsed or expired since the last
// entry, and at ready jobs once for each priority in use.
func (m *Machine) List(query *fsm.ListQuery, now fsm.Time) (jobs []fsm.Job, more bool) {
	q := m.queues.byName[query.Queue]
	if q == nil {
		return nil, false
	}
	for _, k := range m.candidates(q, query, now) {
		v := m.view(job{k.index, q})
		if !m.at(q, &v, now) || v.State != query.State || v.Due != k.at {
			continue
		}
		if len(jobs) >= query.Max {
			return jobs, true
		}
		jobs = append(jobs, v)
	}
	return jobs, false
}

// candidates returns at least the first Max+1 jobs of the page, as keys in listing order. It may
// add some that are in another state at time now.
func (m *Machine) candidates(q *queue, query *fsm.ListQuery, now fsm.Time) []key {
	from := key{at: query.DueAfter}
	if query.After != (fsm.Cursor{}) {
		if after := (key{at: query.After.Due, serial: query.After.Serial + 1}); from.less(after) {
			from = after
		}
	}
	p := page{query: query, from: from, now: now}
	switch query.State {
	case fsm.Delayed:
		from := from
		if r := m.record(q); r.OverdueTo != 0 && r.Settings.Overdue == fsm.SpreadOverdue {
			p.upTo(m, q, &q.delayed)
		}
		if start := (key{at: now + 1}); from.less(start) {
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
	slices.SortFunc(p.keys, key.compare)
	return slices.Compact(p.keys)
}

// page gathers the keys of one page of a listing.
type page struct {
	query *fsm.ListQuery
	from  key
	now   fsm.Time
	keys  []key
}

func (p *page) within(k key) bool {
	return !k.less(p.from) && (p.query.DueBefore == 0 || k.at < p.query.DueBefore)
}

func (p *page) add(k key) {
	if p.within(k) {
		p.keys = append(p.keys, k)
	}
}

// ordered adds keys of an order by due. Keys of jobs that are in another state at time now take no
// room on the page, so only those from the present on are counted.
func (p *page) ordered(order *order, from key) {
	n := 0
	order.ascend(from, func(k key) bool {
		if !p.within(k) {
			return false
		}
		p.keys = append(p.keys, k)
		n++
		return n <= p.query.Max+fsm.StepMax
	})
}

// ready adds the first keys of each priority.
func (p *page) ready(q *queue) {
	for next, more := -128, true; more && next <= 127; {
		priority, n := next, 0
		more = false
		q.ready.ascend(key{at: p.from.at, serial: p.from.serial, priority: int8(next)}, func(k key) bool {
			if int(k.priority) != priority {
				priority, n = int(k.priority), 0
			}
			k.priority = 0
			switch {
			case k.less(p.from):
				next, more = priority, true
			case n > p.query.Max+fsm.StepMax || !p.within(k):
				next, more = priority+1, true
			default:
				p.keys = append(p.keys, k)
				n++
			}
			return !more
		})
	}
}

// upTo adds the jobs of an order whose time has come by now, as they are then: lapsed, expired or
// spread.
func (p *page) upTo(m *Machine, q *queue, order *order) {
	order.ascend(key{}, func(k key) bool {
		if k.at > p.now {
			return false
		}
		v := m.view(job{k.index, q})
		if m.at(q, &v, p.now) {
			p.add(key{at: v.Due, serial: k.serial, index: k.index})
		}
		return true
	})
}
