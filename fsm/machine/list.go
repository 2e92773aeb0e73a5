package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/listing"
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
		r.Scanned, r.Last = r.Scanned+1, v.ListPlace()
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
	return v.ListPlace() == fsm.Cursor{Due: k.At, Serial: k.Serial}
}

// candidates returns jobs that may be in a list, at most most+1 of each order and priority.
func (m *Machine) candidates(q *queue, query *fsm.ListQuery, most int, now fsm.Time) *listing.Page {
	return q.Candidates(m.record(q), query, most, now, func(index uint32) (fsm.Cursor, bool) {
		v := m.view(job{index, q})
		held := m.at(q, &v, now)
		return v.ListPlace(), held
	})
}

// answerSerial answers a SerialQuery. Of several jobs it takes the one that was put last, and of those
// the one of the queue that was created last.
func (m *Machine) answerSerial(query *fsm.SerialQuery, now fsm.Time) fsm.Reading {
	var newest *fsm.Job
	var createSeq uint64
	for _, index := range m.store.WithSerial(query.Serial) {
		q := m.queues.byIndex[m.store.Slot(index).Queue]
		v := m.view(job{index, q})
		if !m.at(q, &v, now) {
			continue
		}
		if newest == nil || v.Created > newest.Created || v.Created == newest.Created && q.createSeq > createSeq {
			newest, createSeq = &v, q.createSeq
		}
	}
	return m.readingOf(newest)
}

// answerFirst answers a FirstQuery.
func (m *Machine) answerFirst(query *fsm.FirstQuery, now fsm.Time) fsm.Reading {
	q := m.queues.byName[query.Queue]
	if q == nil {
		return fsm.Reading{}
	}
	if query.State == fsm.Ready {
		return m.readingOf(m.firstReady(q, now))
	}
	jobs, _ := m.List(&fsm.ListQuery{Queue: query.Queue, State: query.State, Max: 1}, now)
	if len(jobs) == 0 {
		return fsm.Reading{}
	}
	return m.readingOf(&jobs[0])
}

// readingOf returns the reading of a job with its body; v may be nil.
func (m *Machine) readingOf(v *fsm.Job) fsm.Reading {
	if v == nil {
		return fsm.Reading{}
	}
	jobs := []fsm.Job{*v}
	m.complete(jobs)
	listing.OwnBodies(jobs)
	return fsm.Reading{Jobs: jobs}
}

// firstReady returns the job that a Reserve would be granted next at time now, nil if there is none. A job
// with a key, and any one of a fair queue, counts only if it is next already: what settling does to the
// turns of keys is not known.
func (m *Machine) firstReady(q *queue, now fsm.Time) *fsm.Job {
	next := q.next().index
	if m.record(q).Settings.Keys.Fair {
		return m.readyAt(job{next, q}, now)
	}
	return q.FirstReadyAt(now, next, func(index uint32) *fsm.Job { return m.readyAt(job{index, q}, now) })
}

// readyAt returns a job if it is READY at time now, else nil.
func (m *Machine) readyAt(j job, now fsm.Time) *fsm.Job {
	if j.index == 0 {
		return nil
	}
	v := m.view(j)
	if !m.at(j.q, &v, now) || v.State != fsm.Ready {
		return nil
	}
	return &v
}
