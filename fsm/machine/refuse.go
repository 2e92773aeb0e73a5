package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/rule"
	"github.com/belfrydb/belfry/fsm/store"
)

// Refuses returns the results of a request of puts, if all of them are refused at time now because
// their queues are full or take no more puts for the moment. It reports false for any other
// request, also if one of the puts may be let in or gets another answer. It reports false as well
// if what has fallen due may yet make room: then only an entry can decide. Like every read it
// changes nothing. now must not be before Clock.
func (m *Machine) Refuses(req *fsm.Request, now fsm.Time) ([]fsm.Result, bool) {
	if m.restored.Open() || req.ID != "" && m.answersRepeat(req, now) {
		return nil, false
	}
	results := make([]fsm.Result, len(req.Commands))
	for i, c := range req.Commands {
		put, ok := c.(*fsm.Put)
		if !ok {
			return nil, false
		}
		if results[i], ok = m.refusesPut(put, now); !ok {
			return nil, false
		}
	}
	return results, len(results) > 0
}

// answersRepeat reports whether a request has an id that is remembered, or too old to be.
func (m *Machine) answersRepeat(req *fsm.Request, now fsm.Time) bool {
	if m.store.Answers.Find(req.Caller, req.ID) != 0 {
		return true
	}
	return m.tooOld(req.ID, now)
}

// tooOld reports whether a request id was made before all that is remembered for sure.
func (m *Machine) tooOld(id string, now fsm.Time) bool {
	at, ok := rule.RequestTime(id)
	return ok && (at.Add(fsm.RequestWindow) < now || at <= m.scalars.LowWater)
}

// refusesPut is Refuses for one put.
func (m *Machine) refusesPut(c *fsm.Put, now fsm.Time) (fsm.Result, bool) {
	q := m.queues.byName[c.Queue]
	if q == nil {
		return fsm.Result{}, false
	}
	r := m.record(q)
	if r.Partition != c.Partition || r.Partitions != c.Partitions || m.mayFree(q, now) {
		return fsm.Result{}, false
	}
	if c.IfVersion != 0 || c.Key != "" && r.Settings.Keys.Refused {
		return fsm.Result{}, false
	}
	if c.ID != "" {
		if held, tombstone := m.store.ByPutID(q.index, c.ID, c.Key); held != 0 || tombstone != 0 {
			return fsm.Result{}, false
		}
	}
	if wait := rule.RateWait(m.record(q), now); wait > 0 {
		return fsm.Result{Code: fsm.RateLimited, Wait: wait}, true
	}
	if rule.Full(m.record(q), fsm.PutBytes(c)) {
		return fsm.Result{Code: fsm.QueueFull}, true
	}
	return fsm.Result{}, false
}

// mayFree reports whether settling the queue at time now may end jobs: by their ttl, or by the
// overdue policy.
func (m *Machine) mayFree(q *queue, now fsm.Time) bool {
	due := func(o *store.Order) bool {
		at := o.FirstAt()
		return at != 0 && at <= now
	}
	return due(&q.Leases) || due(&q.TTLs) || m.record(q).Settings.Overdue == fsm.DropOverdue && due(&q.Delayed)
}
