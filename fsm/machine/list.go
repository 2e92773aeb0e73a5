package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/listing"
	"github.com/belfrydb/belfry/fsm/rule"
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
	for _, k := range m.candidates(q, query, query.Max+fsm.StepMax, now).Keys() {
		v := m.view(job{k.Index, q})
		if !m.at(q, &v, now) || v.State != query.State || !isAt(&v, k) {
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
	end, cut := page.Cut()
	for _, k := range page.Keys() {
		if cut && end.Less(k) { // an order was not read up to here
			break
		}
		v := m.view(job{k.Index, q})
		if !m.at(q, &v, now) || v.State != query.State || !isAt(&v, k) {
			continue
		}
		if len(r.Jobs) >= query.Max || int(r.Scanned) >= query.Scan || bytes >= fsm.ScanBytes {
			r.More = true
			break
		}
		r.Scanned, r.Last = r.Scanned+1, rule.ListPlace(&v)
		bytes += uint64(len(v.Body))
		if query.Match.Cause != "" {
			bytes += causeCost * uint64(len(v.LastError))
		}
		if query.Match.Fits(&v) {
			v.Body = nil
			r.Jobs = append(r.Jobs, v)
		}
	}
	if cut && !r.More {
		r.More, r.Last = true, fsm.Cursor{Due: end.At, Serial: end.Serial}
	}
	m.complete(r.Jobs)
	return r
}

// isAt reports whether the place of a job in its list is that of a key.
func isAt(v *fsm.Job, k store.Key) bool {
	return rule.ListPlace(v) == fsm.Cursor{Due: k.At, Serial: k.Serial}
}

// candidates returns the first jobs from the cursor on, at most most+1 of each order and priority. It
// may add some that are in another state at time now.
func (m *Machine) candidates(q *queue, query *fsm.ListQuery, most int, now fsm.Time) *listing.Page {
	p := listing.New(query, most, now)
	place := func(index uint32) (fsm.Cursor, bool) {
		v := m.view(job{index, q})
		held := m.at(q, &v, now)
		return rule.ListPlace(&v), held
	}
	r := m.record(q)
	spreads := r.OverdueTo != 0 && r.Settings.Overdue == fsm.SpreadOverdue
	switch query.State {
	case fsm.Delayed:
		if spreads {
			p.AddDue(&q.delayed, place)
		}
		p.AddLater(&q.delayed)
	case fsm.Dead:
		p.Add(&q.dead)
		p.AddDue(&q.leases, place)
		p.AddDue(&q.ttls, place)
	case fsm.Ready:
		p.AddByPriority(&q.ready)
		p.AddByPriority(&q.keyed)
		p.Add(&q.delayed)
		p.AddDue(&q.leases, place)
		if spreads || q.fifo > 0 { // the place of a FIFO job changes when it falls due
			p.AddDue(&q.delayed, place)
		}
	case fsm.Reserved:
		p.Add(&q.working)
	default: // no job is held in any other state
	}
	return p
}
