package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/rule"
	"github.com/belfrydb/belfry/fsm/store"
)

// reservation is the state of a Reserve in progress.
type reservation struct {
	*fsm.Reserve
	consumer
	grants    []fsm.Grant
	bytes     uint64 // of the jobs granted
	expirable int    // how many jobs it may still expire
	full      bool   // the next job would be one too many
}

// reserve leases ready jobs of the queues, in the order of the queues.
func (m *Machine) reserve(c *fsm.Reserve, client string) (fsm.Result, bool) {
	r := reservation{Reserve: c, consumer: consumer{name: client}, expirable: fsm.StepMax, full: c.Max == 0}
	for _, name := range c.Queues {
		if r.full {
			break
		}
		if q := m.queues.byName[name]; q != nil {
			m.settleQueue(q)
			m.reserveFrom(q, &r)
		}
	}
	return fsm.Result{Grants: r.grants}, len(r.grants) > 0
}

// reserveFrom leases jobs of one queue until the reservation is full or no job may be leased.
func (m *Machine) reserveFrom(q *queue, r *reservation) {
	record := m.record(q)
	if record.Settings.PausedAt(m.scalars.Clock) {
		return
	}
	if q.keys != nil {
		q.keys.Wake(m.applied, int(r.Max)-len(r.grants))
	}
	inFlight := rule.PartitionLimit(record.Settings.MaxInFlight, record)
	for !r.full && (inFlight == 0 || m.record(q).Counts.Reserved < inFlight) {
		j := q.next()
		if j.index == 0 {
			return
		}
		if m.expiredTTL(j) {
			if r.expirable == 0 {
				return
			}
			r.expirable--
			m.lift(j)
			m.setExpired(j)
			continue
		}
		bytes := m.payload(j).Bytes()
		if r.Bytes > 0 && len(r.grants) > 0 && r.bytes+bytes > r.Bytes {
			r.full = true
			return
		}
		r.bytes += bytes
		if r.grants == nil {
			r.grants = make([]fsm.Grant, 0, min(uint64(r.Max), m.record(q).Counts.Ready))
		}
		r.grants = append(r.grants, m.leaseJob(j, r.TTR, &r.consumer))
		r.full = len(r.grants) >= int(r.Max)
	}
}

// leaseJob puts a job that is not RESERVED under a lease of length ttr. If ttr is 0, the length is the job's own.
func (m *Machine) leaseJob(j job, ttr fsm.Duration, by *consumer) fsm.Grant {
	if ttr == 0 {
		ttr = m.ttrOf(j)
	}
	m.lift(j)
	m.scalars.Serial++
	l := m.store.EditLease(j.index)
	l.Fence, l.Until, l.TTR = m.scalars.Serial, m.scalars.Clock.After(ttr), ttr
	l.Attempt++
	m.noteClient(l, by)
	s, r := m.slot(j), m.touch(j.q)
	due := min(s.Due, m.scalars.Clock.After(0)) // it may be leased before its time
	r.Counters.Granted++
	if l.Attempt == 1 {
		m.activity.CountFirst(&j.q.activity, due, m.scalars.Clock)
	}
	grant := fsm.Grant{
		Queue: j.q.name, Partition: r.Partition, Serial: s.Serial, Fence: l.Fence, Attempt: l.Attempt,
		Due: due, Until: l.Until,
	}
	if j.q.keys != nil {
		j.q.keys.Grant(j.index)
	}
	m.used(j, func(u *fsm.Uses) { u.Reserves++ })
	m.set(j, fsm.Reserved, due)
	return grant
}

// ttrOf returns the length of a lease if the Reserve names none: the length of the job, else of the
// queue, else the default.
func (m *Machine) ttrOf(j job) fsm.Duration {
	var v fsm.Job
	if b := m.payload(j); b.Given().Has(fsm.GivenTTR) {
		b.Read(&v)
	}
	return rule.LeaseLength(&v, &m.record(j.q).Settings)
}

// leased returns the job under the lease that ref names, if that lease is live.
func (m *Machine) leased(ref fsm.Ref) (job, bool) {
	q := m.queues.byName[ref.Queue]
	if q == nil {
		return job{}, false
	}
	m.settleQueue(q)
	if m.record(q).Partition != ref.Partition {
		return job{}, false
	}
	j := job{m.store.BySerial(q.index, ref.Serial), q}
	if j.index == 0 {
		return job{}, false
	}
	s, l := m.slot(j), m.leaseOf(j)
	return j, s.Queue == q.index && s.State() == fsm.Reserved && l.Fence == ref.Fence && m.scalars.Clock < l.Until
}

func (m *Machine) ack(c *fsm.Ack) (fsm.Result, bool) {
	j, ok := m.leased(c.Ref)
	if !ok {
		if m.store.Finished.Has(c.Serial, c.Fence, m.scalars.Clock) {
			return fsm.Result{State: fsm.Acked}, false
		}
		return fsm.Result{Code: fsm.StaleLease}, false
	}
	// An older fence may have been given out by two of the shards that were restored into this one.
	if c.Fence > m.restored.Floor {
		m.remembered.Finish(c.Serial, c.Fence, m.leaseOf(j).Until.Add(fsm.FinishedWindow))
	}
	m.touch(j.q).Counters.Acked++
	m.lift(j)
	m.noteEnding(j, fsm.Acked)
	m.end(j, fsm.Acked)
	return fsm.Result{State: fsm.Acked}, true
}

func (m *Machine) nack(c *fsm.Nack) (fsm.Result, bool) {
	j, ok := m.leased(c.Ref)
	if !ok {
		return fsm.Result{Code: fsm.StaleLease}, false
	}
	m.touch(j.q).Counters.Nacked++
	m.lift(j)
	m.noteFailure(j, m.scalars.Clock, false, c.Error)
	delay := c.Delay
	if !c.DelayGiven {
		delay = m.retryDelay(j)
	}
	m.reprioritize(j, c.PriorityGiven, c.Priority)
	if c.Dead {
		m.used(j, func(u *fsm.Uses) { u.Buries++ })
	}
	switch {
	case c.Dead || m.exhausted(j):
		m.setDead(j)
		return fsm.Result{State: fsm.Dead}, true
	case m.expiredTTL(j):
		return fsm.Result{State: m.setExpired(j)}, true
	}
	due := m.scalars.Clock.After(delay)
	return fsm.Result{State: m.setDue(j, due), Due: due}, true
}

// retryDelay returns the delay that the retry schedule gives after the present attempt.
func (m *Machine) retryDelay(j job) fsm.Duration {
	var v fsm.Job
	m.payload(j).Read(&v)
	l := m.leaseOf(j)
	v.Attempt, v.Fence = l.Attempt, l.Fence
	return rule.RetryDelay(&v, m.record(j.q))
}

func (m *Machine) release(c *fsm.Release) (fsm.Result, bool) {
	j, ok := m.leased(c.Ref)
	if !ok {
		return fsm.Result{Code: fsm.StaleLease}, false
	}
	m.touch(j.q).Counters.Released++
	m.lift(j)
	m.noteRelease(j)
	m.reprioritize(j, c.PriorityGiven, c.Priority)
	m.used(j, func(u *fsm.Uses) { u.Releases++ })
	if m.expiredTTL(j) {
		return fsm.Result{State: m.setExpired(j)}, true
	}
	due := m.slot(j).Due
	if c.Delay > 0 {
		due = m.scalars.Clock.After(c.Delay)
		m.set(j, fsm.Delayed, due)
		return fsm.Result{State: fsm.Delayed, Due: due}, true
	}
	m.set(j, fsm.Ready, due)
	return fsm.Result{State: fsm.Ready, Due: due}, true
}

func (m *Machine) extend(c *fsm.Extend) (fsm.Result, bool) {
	j, ok := m.leased(c.Ref)
	if !ok {
		return fsm.Result{Code: fsm.StaleLease}, false
	}
	m.touch(j.q).Counters.Extended++
	m.extendLease(j, func(l *store.Lease) {
		if c.TTR > 0 {
			l.TTR = c.TTR
		}
		l.Until = max(l.Until, m.scalars.Clock.After(l.TTR))
	})
	return fsm.Result{Until: m.leaseOf(j).Until}, true
}

// extendLease changes the length of the lease of a RESERVED job.
func (m *Machine) extendLease(j job, change func(*store.Lease)) {
	m.touch(j.q)
	m.sum -= m.hash(j)
	j.q.Leases.Remove(j.index)
	change(m.store.EditLease(j.index))
	j.q.Leases.Insert(j.index)
	m.sum += m.hash(j)
}
