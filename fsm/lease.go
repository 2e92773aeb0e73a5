package fsm

// reservation is the state of a Reserve in progress.
type reservation struct {
	*Reserve
	grants    []Grant
	bytes     uint64 // of the jobs granted
	expirable int    // how many jobs it may still expire
	full      bool   // the next job would be one too many
}

// reserve leases ready jobs of the queues, in the order of the queues.
func (m *Machine) reserve(c *Reserve) Result {
	r := reservation{Reserve: c, expirable: StepMax, full: c.Max == 0}
	for _, name := range c.Queues {
		if r.full {
			break
		}
		if q := m.queues.byName[name]; q != nil {
			m.settleQueue(q)
			m.reserveFrom(q, &r)
		}
	}
	return Result{Grants: r.grants, changed: len(r.grants) > 0}
}

// reserveFrom leases jobs of one queue until the reservation is full or no job may be leased.
func (m *Machine) reserveFrom(q *queue, r *reservation) {
	record := m.record(q)
	if record.Settings.PausedAt(m.scalars.Clock) {
		return
	}
	inFlight := partitionLimit(record.Settings.MaxInFlight, record)
	for !r.full && (inFlight == 0 || m.record(q).Counts.Reserved < inFlight) {
		k, ok := q.ready.min()
		if !ok {
			return
		}
		j := job{k.index, q}
		if m.expiredTTL(j) {
			if r.expirable == 0 {
				return
			}
			r.expirable--
			m.lift(j)
			m.setExpired(j)
			continue
		}
		bytes := m.payload(j).bytes()
		if r.Bytes > 0 && len(r.grants) > 0 && r.bytes+bytes > r.Bytes {
			r.full = true
			return
		}
		r.bytes += bytes
		if r.grants == nil {
			r.grants = make([]Grant, 0, min(uint64(r.Max), m.record(q).Counts.Ready))
		}
		r.grants = append(r.grants, m.leaseJob(j, r.TTR))
		r.full = len(r.grants) >= int(r.Max)
	}
}

// leaseJob puts a ready job under a lease of length ttr. If ttr is 0, the length is the job's own.
func (m *Machine) leaseJob(j job, ttr Duration) Grant {
	if ttr == 0 {
		ttr = m.ttrOf(j)
	}
	m.lift(j)
	m.scalars.Serial++
	l := m.editLease(j)
	l.fence, l.until, l.ttr = m.scalars.Serial, m.scalars.Clock.After(ttr), ttr
	l.attempt++
	s, r := m.slot(j), m.touch(j.q)
	r.Counters.Granted++
	if l.attempt == 1 {
		m.countLate(j.q, s.due)
	}
	grant := Grant{
		Queue: j.q.name, Partition: r.Partition, Serial: s.serial, Fence: l.fence, Attempt: l.attempt,
		Due: s.due, Until: l.until,
	}
	m.set(j, Reserved, s.due)
	return grant
}

// ttrOf returns the length of a lease if the Reserve names none: the length of the job, else of the
// queue, else the default.
func (m *Machine) ttrOf(j job) Duration {
	var v Job
	if b := m.payload(j); b.given().Has(GivenTTR) {
		b.read(&v)
	}
	return leaseLength(&v, &m.record(j.q).Settings)
}

// leaseLength is ttrOf for a job and the settings of its queue.
func leaseLength(v *Job, s *Settings) Duration {
	switch {
	case v.TTR > 0:
		return v.TTR
	case s.TTR > 0:
		return s.TTR
	default:
		return DefaultTTR
	}
}

// leased returns the job under the lease that ref names, if that lease is live.
func (m *Machine) leased(ref Ref) (job, bool) {
	q := m.queues.byName[ref.Queue]
	if q == nil {
		return job{}, false
	}
	m.settleQueue(q)
	if m.record(q).Partition != ref.Partition {
		return job{}, false
	}
	j := job{m.store.bySerial(q.index, ref.Serial), q}
	if j.index == 0 {
		return job{}, false
	}
	s, l := m.slot(j), m.leaseOf(j)
	return j, s.queue == q.index && s.state() == Reserved && l.fence == ref.Fence && m.scalars.Clock < l.until
}

func (m *Machine) ack(c *Ack) Result {
	j, ok := m.leased(c.Ref)
	if !ok {
		if m.finished.has(c.Serial, c.Fence, m.scalars.Clock) {
			return Result{State: Acked}
		}
		return Result{Code: StaleLease}
	}
	// An older fence may have been given out by two of the shards that were restored into this one.
	if c.Fence > m.restored.Floor {
		m.finish(c.Serial, c.Fence, m.leaseOf(j).until.Add(FinishedWindow))
	}
	m.touch(j.q).Counters.Acked++
	m.lift(j)
	m.noteEnding(j, Acked)
	m.drop(j, Acked)
	return Result{State: Acked, changed: true}
}

func (m *Machine) nack(c *Nack) Result {
	j, ok := m.leased(c.Ref)
	if !ok {
		return Result{Code: StaleLease}
	}
	m.touch(j.q).Counters.Nacked++
	m.lift(j)
	if c.Error != "" {
		m.setNote(m.slot(j).lease, c.Error)
	}
	delay := c.Delay
	if !c.DelayGiven {
		delay = m.retryDelay(j)
	}
	switch {
	case c.Dead || m.exhausted(j):
		m.setDead(j)
		return Result{State: Dead, changed: true}
	case m.expiredTTL(j):
		return Result{State: m.setExpired(j), changed: true}
	}
	due := m.scalars.Clock.After(delay)
	return Result{State: m.setDue(j, due), Due: due, changed: true}
}

// retryDelay returns the delay that the retry schedule gives after the present attempt.
func (m *Machine) retryDelay(j job) Duration {
	var v Job
	m.payload(j).read(&v)
	delays, r, l, jitter := v.RetryDelays, m.record(j.q), m.leaseOf(j), false
	if !v.Given.Has(GivenRetryDelays) {
		delays, jitter = r.retryDelays()
	}
	if len(delays) == 0 {
		return 0
	}
	delay := delays[min(int(l.attempt), len(delays))-1]
	if jitter {
		delay = Jitter(delay, l.fence)
	}
	return delay
}

func (m *Machine) release(c *Release) Result {
	j, ok := m.leased(c.Ref)
	if !ok {
		return Result{Code: StaleLease}
	}
	m.touch(j.q).Counters.Released++
	m.lift(j)
	m.editLease(j).attempt--
	if m.expiredTTL(j) {
		return Result{State: m.setExpired(j), changed: true}
	}
	due := m.slot(j).due
	if c.Delay > 0 {
		due = m.scalars.Clock.After(c.Delay)
		m.set(j, Delayed, due)
		return Result{State: Delayed, Due: due, changed: true}
	}
	m.set(j, Ready, due)
	return Result{State: Ready, Due: due, changed: true}
}

func (m *Machine) extend(c *Extend) Result {
	j, ok := m.leased(c.Ref)
	if !ok {
		return Result{Code: StaleLease}
	}
	m.touch(j.q).Counters.Extended++
	m.lift(j)
	l := m.editLease(j)
	if c.TTR > 0 {
		l.ttr = c.TTR
	}
	l.until = max(l.until, m.scalars.Clock.After(l.ttr))
	until := l.until
	m.set(j, Reserved, m.slot(j).due)
	return Result{Until: until, changed: true}
}
