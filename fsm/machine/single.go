package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/rule"
)

// serialJob settles a queue and finds the job that has a serial in it. The index is 0 if none has.
func (m *Machine) serialJob(name string, serial uint64) job {
	q := m.queues.byName[name]
	if q == nil {
		return job{}
	}
	m.settleQueue(q)
	return job{m.store.BySerial(q.index, serial), q}
}

// kick makes DEAD or DELAYED jobs ready.
func (m *Machine) kick(c *fsm.Kick) (fsm.Result, bool) {
	if c.Serial != 0 {
		return m.kickJob(c)
	}
	q := m.queues.byName[c.Queue]
	if q == nil {
		return fsm.Result{Code: fsm.QueueNotFound}, false
	}
	m.settleQueue(q)
	order := &q.Dead
	if q.Dead.Len() == 0 {
		order = &q.Delayed
	}
	var n uint64
	for limit := stepLimit(c.Max); n < limit; n++ {
		k, ok := order.Min()
		if !ok {
			break
		}
		m.wakeEarly(job{k.Index, q})
	}
	return fsm.Result{Count: n, More: order.Len() > 0}, n > 0
}

// kickJob is kick for one job.
func (m *Machine) kickJob(c *fsm.Kick) (fsm.Result, bool) {
	j := m.serialJob(c.Queue, c.Serial)
	if j.index == 0 {
		return fsm.Result{Code: fsm.JobNotFound}, false
	}
	switch state := m.slot(j).State(); state {
	case fsm.Reserved:
		return fsm.Result{Code: fsm.JobReserved, State: state}, false
	case fsm.Ready:
		return fsm.Result{Code: fsm.JobNotFound, State: state}, false
	default:
		m.wakeEarly(j)
		return fsm.Result{Count: 1}, true
	}
}

// wakeEarly makes a DEAD job ready as a redrive does, and a DELAYED one as if it were due.
func (m *Machine) wakeEarly(j job) {
	dead := m.slot(j).State() == fsm.Dead
	m.lift(j)
	m.used(j, func(u *fsm.Uses) { u.Kicks++ })
	if dead {
		m.revive(j)
		return
	}
	m.touch(j.q).Counters.Rescheduled++
	m.set(j, fsm.Ready, m.scalars.Clock.After(0))
}

// reserveJob puts one job under a lease, whether or not it is due, its queue is paused or others come
// before it.
func (m *Machine) reserveJob(c *fsm.ReserveJob, client string) (fsm.Result, bool) {
	j := m.serialJob(c.Queue, c.Serial)
	if j.index == 0 {
		return fsm.Result{Code: fsm.JobNotFound}, false
	}
	state := m.slot(j).State()
	switch {
	case state == fsm.Reserved:
		return fsm.Result{Code: fsm.JobReserved, State: state}, false
	case state != fsm.Dead && m.expiredTTL(j):
		m.lift(j)
		return fsm.Result{Code: fsm.JobNotFound, State: m.setExpired(j)}, false
	case m.withheld(j):
		return fsm.Result{Code: fsm.RateLimited, State: state}, false
	case state == fsm.Dead:
		m.forgiveTTL(j)
	}
	by := consumer{name: client}
	return fsm.Result{Grants: []fsm.Grant{m.leaseJob(j, c.TTR, &by)}}, true
}

// withheld reports whether the queue has as many jobs RESERVED as it may, or the key of the job is held
// back.
func (m *Machine) withheld(j job) bool {
	r := m.record(j.q)
	limit := rule.PartitionLimit(r.Settings.MaxInFlight, r)
	return limit > 0 && r.Counts.Reserved >= limit || m.slot(j).HasKey() && j.q.keys.Holds(j.index)
}

// forgiveTTL clears the ttl of a DEAD job, which would end it when its lease ends.
func (m *Machine) forgiveTTL(j job) {
	m.sum -= m.hash(j)
	m.store.EditSlot(j.index).ClearTTL()
	m.sum += m.hash(j)
}
