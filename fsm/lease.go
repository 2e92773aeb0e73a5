package fsm

// reservation is a Reserve under way.
type reservation struct {
	*Reserve
	grants    []Grant
	bytes     uint64 // of the jobs granted
	expirable int    // how many jobs it may still expire on its way
	full      bool   // the next job would be one too many
}

// reserve hands out ready jobs of the queues, in the order of the queues.
func (m *Machine) reserve(c *Reserve) Result {
	r := reservation{Reserve: c, expirable: StepMax, full: c.Max == 0}
	for _, name := range c.Queues {
		if r.full {
			break
		}
		if q := m.queues.byName[name]; q != nil {
			m.settle(q)
			m.reserveFrom(q, &r)
		}
	}
	return Result{Grants: r.grants, changed: len(r.grants) > 0}
}

func (m *Machine) reserveFrom(q *queue, r *reservation) {
	record := m.record(q)
	if record.Settings.PausedAt(m.scalars.Clock) {
		return
	}
	inFlight := share(record.Settings.MaxInFlight, record)
	for !r.full && (inFlight == 0 || m.record(q).Counts.Reserved < inFlight) {
		k, ok := q.ready.min()
		if !ok {
			return
		}
		j := job{k.place, q}
		if m.expiredTTL(j) {
			if r.expirable == 0 {
				return
			}
			r.expirable--
			m.lift(j)
			m.setExpired(j)
			continue
		}
		bytes := m.born(j).bytes()
		if r.Bytes > 0 && len(r.grants) > 0 && r.bytes+bytes > r.Bytes {
			r.full = true
			return
		}
		r.bytes += bytes
		if r.grants == nil {
			r.grants = make([]Grant, 0, min(uint64(r.Max), m.record(q).Counts.Ready))
		}
		r.grants = append(r.grants, m.grantJob(j, r.TTR))
		r.full = len(r.grants) >= int(r.Max)
	}
}

// grantJob puts a ready job under a lease of the given length, or of the job's own if that is 0.
func (m *Machine) grantJob(j job, ttr Duration) Grant {
	if ttr == 0 {
		ttr = m.ttrOf(j)
	}
	m.lift(j)
	m.scalars.Serial++
	g := m.grantPlace(j)
	g.fence, g.until, g.ttr = m.scalars.Serial, m.scalars.Clock.After(ttr), ttr
	g.attempt++
	s, r := m.slot(j), m.touch(j.q)
	r.Counters.Granted++
	if g.attempt == 1 {
		m.countLate(j.q, s.due)
	}
	grant := Grant{
		Queue: j.q.name, Partition: r.Partition, Serial: s.serial, Fence: g.fence, Attempt: g.attempt, Due: s.due, Until: g.until,
	}
	m.set(j, Reserved, s.due)
	return grant
}

// ttrOf is the length of a lease where the reserve names none: the job's, else the queue's, else the default.
func (m *Machine) ttrOf(j job) Duration {
	var v Job
	if b := m.born(j); b.given().Has(GivenTTR) {
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
	m.settle(q)
	if m.record(q).Partition != ref.Partition {
		return job{}, false
	}
	j := job{m.store.bySerial(q.place, ref.Serial), q}
	if j.place == 0 {
		return job{}, false
	}
	s, g := m.slot(j), m.grantOf(j)
	return j, s.queue == q.place && s.state() == Reserved && g.fence == ref.Fence && m.scalars.Clock < g.until
}

func (m *Machine) ack(c *Ack) Result {
	j, ok := m.leased(c.Ref)
	if !ok {
		if m.finished.has(c.Serial, c.Fence, m.scalars.Clock) {
			return Result{State: Acked}
		}
		return Result{Code: StaleLease}
	}
	if c.Fence > m.restored.Floor { // an older fence may have been granted in two of the shards that were restored into this one
		m.finish(c.Serial, c.Fence, m.grantOf(j).until.Add(FinishedWindow))
	}
	m.touch(j.q).Counters.Acked++
	m.lift(j)
	m.ends(j, Acked)
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
		m.setNote(m.slot(j).grant, c.Error)
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

// retryDelay is what the schedule says after the job's present attempt.
func (m *Machine) retryDelay(j job) Duration {
	var v Job
	m.born(j).read(&v)
	delays, r, g, jitter := v.RetryDelays, m.record(j.q), m.grantOf(j), false
	if !v.Given.Has(GivenRetryDelays) {
		delays, jitter = r.retryDelays()
	}
	if len(delays) == 0 {
		return 0
	}
	delay := delays[min(int(g.attempt), len(delays))-1]
	if jitter {
		delay = Jitter(delay, g.fence)
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
	m.grantPlace(j).attempt--
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
	g := m.grantPlace(j)
	if c.TTR > 0 {
		g.ttr = c.TTR
	}
	g.until = max(g.until, m.scalars.Clock.After(g.ttr))
	until := g.until
	m.set(j, Reserved, m.slot(j).due)
	return Result{Until: until, changed: true}
}
