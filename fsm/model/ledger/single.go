package ledger

import (
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// position is by what a job has its place among the jobs of its state: its due time and serial. A FIFO job
// has the time of its put instead while it is READY, and the time and the fence of its death once DEAD.
func (a *Job) position() (at fsm.Time, serial uint64) {
	switch {
	case a.Put.FIFO && a.State == fsm.Ready:
		return a.Created, a.Serial
	case a.Put.FIFO && a.State == fsm.Dead:
		return a.died, a.fence
	default:
		return a.Due, a.Serial
	}
}

// Priority returns the priority of the job: the last one that a nack or a release gave it, else that of its
// put.
func (a *Job) Priority() int64 {
	switch {
	case a.reprioritized:
		return a.priority
	case a.Put.Given.Has(fsm.GivenPriority):
		return fsm.PriorityOf(fsm.RankOf(a.Put.Priority))
	default:
		return 0
	}
}

// reprioritize gives a lifted job another priority, if one is given.
func (a *Job) reprioritize(given bool, priority int64) {
	if given {
		a.reprioritized, a.priority = true, fsm.PriorityOf(fsm.RankOf(priority))
	}
}

// fenceDeath gives a FIFO job that dies the next serial as its fence.
func (b *Shard) fenceDeath(a *Job) {
	if !a.Put.FIFO {
		return
	}
	if a.fence = b.take(); a.why == unended {
		a.why = lapsed // it never had a lease
	}
}

// kick records that jobs were made ready before their time.
func (b *Shard) kick(c *fsm.Kick, r *fsm.Result) {
	if c.Serial != 0 {
		b.kickOne(c, r)
		return
	}
	q := b.present(24, c.Queue, r.Code)
	if q == nil {
		return
	}
	order := &q.dead
	if order.first() == nil {
		order = &q.delayed
	}
	n := uint64(0)
	for limit := stepLimit(c.Max); n < limit; n++ {
		t := order.first()
		if t == nil {
			break
		}
		b.wakeEarly(t.account)
	}
	if n > 0 {
		b.effect(nil)
	}
	b.look(24)
	if more := order.first() != nil; r.Count != n || r.More != more {
		b.violated(24, "%d jobs of %s were kicked (more: %v), should be %d (%v)", r.Count, c.Queue, r.More, n, more)
	}
}

func (b *Shard) kickOne(c *fsm.Kick, r *fsm.Result) {
	b.look(24)
	a := b.bySerial(c.Queue, c.Serial)
	switch {
	case a == nil, a.State == fsm.Ready:
		b.expect(24, r.Code, fsm.JobNotFound)
	case a.State == fsm.Reserved:
		b.expect(24, r.Code, fsm.JobReserved)
	default:
		if b.expect(24, r.Code, fsm.OK) {
			b.effect(a)
			b.wakeEarly(a)
		}
	}
}

// bySerial settles a queue and finds its held job of a serial, nil if there is none.
func (b *Shard) bySerial(queue string, serial uint64) *Job {
	q := b.queues[queue]
	if q == nil {
		return nil
	}
	b.settleQueue(q)
	if a := b.jobs[serial]; a != nil && a.Queue == q && a.State.Held() {
		return a
	}
	return nil
}

// wakeEarly makes a DEAD job ready as a redrive does, and a DELAYED one as if it were due.
func (b *Shard) wakeEarly(a *Job) {
	b.count("jobs kicked", 1)
	if a.State == fsm.Dead {
		b.revive(a)
		return
	}
	a.Queue.counters.Rescheduled++
	a.lift()
	a.left = b.clock
	b.set(a, fsm.Ready, b.clock.After(0))
}

// reserveJob records the lease of one job that need not be the next one, nor due.
func (b *Shard) reserveJob(c *fsm.ReserveJob, r *fsm.Result) {
	b.look(24)
	a := b.bySerial(c.Queue, c.Serial)
	switch {
	case a == nil:
		b.expect(24, r.Code, fsm.JobNotFound)
		return
	case a.State == fsm.Reserved:
		b.expect(24, r.Code, fsm.JobReserved)
		return
	case a.State != fsm.Dead && b.overTTL(a):
		b.expect(24, r.Code, fsm.JobNotFound)
		a.lift()
		b.expireJob(a)
		return
	case b.withheld(a):
		b.expect(37, r.Code, fsm.RateLimited)
		return
	case a.Queue.unsure && r.Code == fsm.RateLimited: // how full its bucket is, is not known
		return
	}
	if !b.expect(24, r.Code, fsm.OK) {
		return
	}
	if len(r.Grants) != 1 || r.Grants[0].Serial != a.Serial {
		b.violated(37, "job %d was asked for, and %+v was granted", a.Serial, r.Grants)
		return
	}
	if a.State == fsm.Dead {
		a.TTL = 0
	}
	a.Due = min(a.Due, b.clock.After(0))
	b.grant(&r.Grants[0], c.TTR)
	b.effect(a)
}

// withheld reports whether a job may not be leased, because of the limit of its queue or of its key.
func (b *Shard) withheld(a *Job) bool {
	q := a.Queue
	limit := q.partOf(q.Settings.MaxInFlight)
	if limit != 0 && q.counts.Reserved >= limit {
		return true
	}
	if a.Put.Key == "" || q.keys == nil {
		return false
	}
	k := q.keyOf(a.Put.Key)
	return q.held(k) != "" || !q.unsure && q.tokenAt(k) > b.clock
}

// ttrOf returns the length of a lease that asks for one, 0 for that of the job.
func ttrOf(a *Job, asked time.Duration) time.Duration {
	if asked == 0 {
		return lengthOf(a)
	}
	return asked
}

// oneJob reports whether the current command asks for one job, which need not be READY or the next one.
func (b *Shard) oneJob() bool { return b.now.Command.Kind() == fsm.KindReserveJob }
