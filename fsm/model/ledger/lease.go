package ledger

import "github.com/belfrydb/belfry/fsm"

// leased finds the job under the lease that a command names. It complains if the command was
// answered otherwise than the lease allows; the job is nil if the command did nothing. repeated
// tells that it is an ack of an acked lease.
func (b *Shard) leased(ref fsm.Ref, r *fsm.Result) (a *Job, repeated bool) {
	q := b.queues[ref.Queue]
	if q != nil {
		b.settleQueue(q)
	}
	a = b.jobs[ref.Serial]
	b.now.Job = a
	live := a != nil && a.Queue == q && q.Partition == ref.Partition && a.State == fsm.Reserved && a.fence == ref.Fence &&
		b.clock < a.Until
	b.look(16)
	if _, acks := b.now.Command.(*fsm.Ack); acks && !live && b.finished(a, ref.Fence) {
		if b.expect(16, r.Code, fsm.OK) {
			b.count("acks repeated", 1)
		}
		return nil, true
	}
	switch {
	case !live && r.Code == fsm.OK && a == nil:
		b.violated(2, "%T of job %d with fence %d was taken, which was never put", b.now.Command, ref.Serial, ref.Fence)
		return nil, false
	case !live && r.Code == fsm.OK:
		b.violated(16, "%T of job %d with fence %d was taken at %d; the job has state %d, fence %d until %d", b.now.Command,
			ref.Serial, ref.Fence, b.clock, a.State, a.fence, a.Until)
		if !a.State.Held() {
			return nil, false
		}
		return a, false
	case live && r.Code == fsm.StaleLease:
		b.violated(18, "%T of job %d with fence %d was called stale at %d, which is leased until %d", b.now.Command,
			ref.Serial, ref.Fence, b.clock, a.Until)
		return nil, false
	case !live:
		b.count("stale leases refused", 1)
		b.expect(16, r.Code, fsm.StaleLease)
		return nil, false
	}
	if !b.expect(16, r.Code, fsm.OK) {
		return nil, false
	}
	return a, false
}

// finished reports whether an ack is the repeat of one that is remembered.
func (b *Shard) finished(a *Job, fence uint64) bool {
	return a != nil && a.State == fsm.Acked && a.fence == fence && fence > b.floor &&
		b.clock <= a.Until.Add(fsm.FinishedWindow)
}

// ack records an ack.
func (b *Shard) ack(c *fsm.Ack, r *fsm.Result) {
	a, repeated := b.leased(c.Ref, r)
	if r.Code == fsm.OK && r.State != fsm.Acked {
		b.violated(16, "an ack of job %d was answered with state %d", c.Serial, r.State)
	}
	if a == nil || repeated {
		return
	}
	b.effect(a)
	a.Queue.counters.Acked++
	a.lift()
	a.why = acked
	b.endJob(a, fsm.Acked)
	b.count("jobs acked", 1)
}

// nack records a nack.
func (b *Shard) nack(c *fsm.Nack, r *fsm.Result) {
	a, _ := b.leased(c.Ref, r)
	if a == nil {
		return
	}
	b.effect(a)
	a.Queue.counters.Nacked++
	a.lift()
	a.why, a.left = nacked, b.clock
	a.reprioritize(c.PriorityGiven, c.Priority)
	if c.Error != "" {
		a.lastError = c.Error
	}
	least, most := c.Delay, c.Delay
	if !c.DelayGiven {
		least, most = retryDelayOf(a)
	}
	switch {
	case c.Dead || b.exhausted(a):
		b.die(a)
		b.becomes(22, a, r, fsm.Dead, 0)
	case b.overTTL(a):
		b.becomes(24, a, r, b.expireJob(a), 0)
	default:
		due := min(max(r.Due, b.clock.After(least)), b.clock.After(most))
		b.set(a, b.stateAt(due), due)
		b.becomes(24, a, r, a.State, due)
	}
}

// becomes holds what a command says that became of a job against the ledger.
func (b *Shard) becomes(i Rule, a *Job, r *fsm.Result, state fsm.State, due fsm.Time) {
	b.look(24)
	if r.State == state && r.Due == due {
		return
	}
	b.violated(i, "%T of job %d: it has state %d and is due at %d, should have state %d and be due at %d", b.now.Command,
		a.Serial, r.State, r.Due, state, due)
}

// release records a release.
func (b *Shard) release(c *fsm.Release, r *fsm.Result) {
	a, _ := b.leased(c.Ref, r)
	if a == nil {
		return
	}
	b.effect(a)
	a.Queue.counters.Released++
	a.lift()
	a.why, a.left = released, b.clock
	a.reprioritize(c.PriorityGiven, c.Priority)
	a.attempt--
	switch {
	case b.overTTL(a):
		b.becomes(24, a, r, b.expireJob(a), 0)
	case c.Delay > 0:
		due := b.clock.After(c.Delay)
		b.set(a, fsm.Delayed, due)
		b.becomes(24, a, r, a.State, due)
	default:
		b.set(a, fsm.Ready, a.Due)
		b.becomes(24, a, r, a.State, a.Due)
	}
}

// extend records a longer lease.
func (b *Shard) extend(c *fsm.Extend, r *fsm.Result) {
	a, _ := b.leased(c.Ref, r)
	if a == nil {
		return
	}
	b.effect(a)
	a.Queue.counters.Extended++
	if c.TTR > 0 {
		a.length = c.TTR
	}
	until := max(a.Until, b.clock.After(a.length))
	b.look(18)
	if r.Until != until {
		b.violated(18, "the lease of job %d was extended until %d, should be until %d", a.Serial, r.Until, until)
	}
	b.prolong(a, r.Until)
}

// prolong gives a lease another end. That is no change of its key, which takes no turn for it.
func (b *Shard) prolong(a *Job, until fsm.Time) {
	a.version++
	a.Until = until
	b.moved(a)
	a.Queue.leases.push(agendaEntry{at: until, serial: a.Serial, account: a, version: a.version})
}

// named finds the held job that a command names, or what it is to be answered without one.
func (b *Shard) named(queue, id, key string) (*Job, fsm.State) {
	q := b.queues[queue]
	if q == nil {
		return nil, fsm.StateNone
	}
	b.settleQueue(q)
	if a := b.held(q, id, key); a != nil {
		return a, fsm.StateNone
	}
	if _, _, generated := fsm.ParseID(id); !generated {
		if a := b.ended(q, id, key); a != nil {
			b.now.Job = a
			return nil, a.State
		}
	}
	return nil, fsm.StateNone
}

// cancel records a cancellation.
func (b *Shard) cancel(c *fsm.Cancel, r *fsm.Result) {
	a, state := b.named(c.Queue, c.ID, c.Key)
	b.look(23)
	switch {
	case a == nil:
		if b.expect(23, r.Code, fsm.JobNotFound) && r.State != state {
			b.violated(36, "a job that is not found, %s %q, was said to have ended in state %d, it was %d", c.Queue, c.ID,
				r.State, state)
		}
		return
	case a.State == fsm.Reserved && !c.Force:
		b.now.Job = a
		b.expect(23, r.Code, fsm.JobReserved)
		if r.Code != fsm.OK {
			return
		}
	default:
		b.now.Job = a
		if !b.expect(23, r.Code, fsm.OK) {
			return
		}
	}
	if r.State != a.State {
		b.violated(23, "job %d was cancelled in state %d, it had %d", a.Serial, r.State, a.State)
	}
	b.effect(a)
	a.Queue.counters.Cancelled++
	a.lift()
	a.why = cancelled
	b.endJob(a, fsm.Cancelled)
	b.count("jobs cancelled", 1)
}

// reschedule records a new due time.
func (b *Shard) reschedule(c *fsm.Reschedule, r *fsm.Result) {
	a, state := b.named(c.Queue, c.ID, c.Key)
	b.look(24)
	switch {
	case a == nil:
		if b.expect(24, r.Code, fsm.JobNotFound) && r.State != state {
			b.violated(36, "a job that is not found, %s %q, was said to have ended in state %d, it was %d", c.Queue, c.ID,
				r.State, state)
		}
		return
	case a.State == fsm.Reserved:
		b.expect(24, r.Code, fsm.JobReserved)
		return
	case a.State == fsm.Dead:
		b.expect(24, r.Code, fsm.JobNotFound)
		return
	}
	if !b.expect(24, r.Code, fsm.OK) {
		return
	}
	due := b.clock.After(c.Delay)
	if c.Given.Has(fsm.GivenDueAt) {
		due = c.DueAt.Ceil()
	}
	b.effect(a)
	a.Queue.counters.Rescheduled++
	a.lift()
	a.left = b.clock
	b.set(a, b.stateAt(due), due)
	b.becomes(24, a, r, a.State, due)
}
