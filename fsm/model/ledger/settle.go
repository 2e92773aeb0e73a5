package ledger

import (
	"math/big"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// settleQueue does for a queue what has fallen due, once an entry, in the order of the rules:
// leases lapse, jobs expire, jobs are moved.
func (b *Shard) settleQueue(q *Queue) {
	if q.settled == b.entry.Index || b.restoring {
		return
	}
	q.settled = b.entry.Index
	b.step(q)
}

// step settles up to fsm.StepMax jobs of each kind and returns how many it touched.
func (b *Shard) step(q *Queue) (n uint64) {
	for k := 0; k < fsm.StepMax; k++ {
		a := q.leases.due(b.clock)
		if a == nil {
			break
		}
		b.lapse(a)
		n++
	}
	for k := 0; k < fsm.StepMax; k++ {
		a := q.ttls.due(b.clock)
		if a == nil {
			break
		}
		a.lift()
		b.expireJob(a)
		n++
	}
	for k := 0; k < fsm.StepMax; k++ {
		a := q.delayed.due(b.clock)
		if a == nil {
			break
		}
		b.move(a)
		n++
	}
	return n
}

// lapse ends a lease that no command ended.
func (b *Shard) lapse(a *Job) {
	a.Queue.counters.Lapsed++
	a.lift()
	a.why, a.left = lapsed, a.Until
	switch {
	case b.exhausted(a):
		b.die(a)
	case b.overTTL(a):
		b.expireJob(a)
	default:
		b.set(a, fsm.Ready, a.Until)
	}
}

// exhausted reports whether a job has no attempt left.
func (b *Shard) exhausted(a *Job) bool {
	limit := attemptsOf(a)
	return limit > 0 && a.attempt >= limit
}

// attemptsOf is how many attempts a job may fail; 0 for any number.
func attemptsOf(a *Job) uint32 {
	switch s := &a.Queue.Settings; {
	case a.Put.Given.Has(fsm.GivenMaxAttempts):
		return a.Put.MaxAttempts
	case s.MaxAttemptsSet:
		return s.MaxAttempts
	default:
		return fsm.DefaultMaxAttempts
	}
}

// lengthOf is the length of a lease where the reserve names none.
func lengthOf(a *Job) time.Duration {
	switch s := &a.Queue.Settings; {
	case a.Put.Given.Has(fsm.GivenTTR) && a.Put.TTR > 0:
		return a.Put.TTR
	case s.TTR > 0:
		return s.TTR
	default:
		return fsm.DefaultTTR
	}
}

// retryDelayOf returns the bounds of what follows a job's present attempt, if it fails. Only the
// default delays deviate, by up to a tenth; queues of the first format have none.
func retryDelayOf(a *Job) (least, most time.Duration) {
	delays := a.Queue.Settings.RetryDelays
	if a.Put.Given.Has(fsm.GivenRetryDelays) {
		delays = a.Put.RetryDelays
	} else if len(delays) == 0 && a.Queue.format > fsm.FirstFormat {
		seconds := [...]time.Duration{1, 5, 30, 120, 600, 1800, 3600}
		delay := seconds[min(int(a.attempt), len(seconds))-1] * time.Second
		return delay - delay/10, delay + delay/10
	}
	if len(delays) == 0 {
		return 0, 0
	}
	delay := delays[min(int(a.attempt), len(delays))-1]
	return delay, delay
}

func (b *Shard) overTTL(a *Job) bool { return a.TTL != 0 && a.TTL <= b.clock }

// die puts a lifted job among the dead letters, unless another follows it.
func (b *Shard) die(a *Job) {
	b.look(22)
	a.Queue.counters.Died++
	if a.next != nil {
		a.Queue.counters.Purged++
		a.why = followed
		b.endJob(a, fsm.Cancelled)
		return
	}
	a.died = b.clock
	b.fenceDeath(a)
	b.set(a, fsm.Dead, a.Due)
	b.pauseOnDead(a)
}

// expireJob ends a lifted job whose ttl has passed, or makes it dead.
func (b *Shard) expireJob(a *Job) fsm.State {
	if a.Queue.Settings.ExpireToDead {
		a.TTL = 0
		b.die(a)
		return fsm.Dead
	}
	a.Queue.counters.Expired++
	b.endJob(a, fsm.Expired)
	return fsm.Expired
}

// move makes a job ready that is due, unless it fell due in an outage for which its queue has a
// policy.
func (b *Shard) move(a *Job) {
	q := a.Queue
	a.lift()
	if q.overdueFrom < a.Due && a.Due <= q.overdueTo {
		switch {
		case q.Settings.Overdue == fsm.SpreadOverdue && q.Settings.OverduePeriod > 0:
			b.set(a, fsm.Delayed, spread(a.Due, q.overdueFrom, q.overdueTo, q.Settings.OverduePeriod))
			return
		case q.Settings.Overdue == fsm.DropOverdue:
			q.counters.Expired++
			b.endJob(a, fsm.Expired)
			return
		}
	}
	b.set(a, fsm.Ready, a.Due)
}

// spread maps a due time of the window (from, to] to the period after it, rounded up.
func spread(due, from, to fsm.Time, period time.Duration) fsm.Time {
	product := new(big.Int).Mul(big.NewInt(int64(due-from)), big.NewInt(int64(period)))
	window := big.NewInt(int64(to - from))
	product.Add(product, window).Sub(product, big.NewInt(1)).Div(product, window)
	if !product.IsInt64() {
		return fsm.TimeMax
	}
	return to.Add(time.Duration(product.Int64())).Ceil()
}

// deadline is the next time at which something of a queue falls due, 0 for never.
func (q *Queue) deadline() (next fsm.Time) {
	for _, h := range [...]*agenda{&q.leases, &q.ttls, &q.delayed} {
		if t := h.first(); t != nil && (next == 0 || t.at < next) {
			next = t.at
		}
	}
	return next
}

// overdue returns the queue whose deadline came first, nil if none has come.
func (b *Shard) overdue() (first *Queue) {
	var at fsm.Time
	for _, q := range b.queues {
		d := q.deadline()
		if d != 0 && d <= b.clock && (first == nil || d < at || d == at && q.creation < first.creation) {
			first, at = q, d
		}
	}
	return first
}

// expire records the leader's own step.
func (b *Shard) expire(r *fsm.Result) {
	var n uint64
	for n < fsm.StepMax {
		q := b.overdue()
		if q == nil {
			break
		}
		n += b.step(q)
	}
	b.look(22)
	if more := b.overdue() != nil; r.Count != n || r.More != more {
		b.violated(22, "an expiry touched %d jobs and left more: %v; by the ledger %d, %v", r.Count, r.More, n, more)
	}
}

// lead records the beginning of a term: leases are held on, and an outage is noted.
func (b *Shard) lead(c *fsm.Lead) {
	b.count("terms", 1)
	from, outage := b.clock, time.Duration(0)
	if q := b.overdue(); q != nil && !b.restoring {
		from = max(b.before, q.deadline()-1)
		outage = b.clock.Sub(from)
	}
	floor := b.clock.After(c.Grace)
	for _, q := range b.queues {
		after := q.Settings.OverdueAfter
		if after == 0 {
			after = fsm.DefaultOverdueAfter
		}
		if q.Settings.Overdue != fsm.FireOverdue && outage >= after {
			q.overdueFrom, q.overdueTo = from, b.clock
		}
		for {
			t := q.leases.first()
			if t == nil || t.at >= floor {
				break
			}
			b.prolong(t.account, floor)
		}
	}
}
