package ledger

import (
	"bytes"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// home finds the queue that a put or a configuration names, and settles it; an unknown one is made.
// The code says why not.
func (b *Shard) home(name string, partition, partitions uint32) (*Queue, fsm.Code) {
	q := b.queues[name]
	if q == nil {
		if partition != 0 || partitions != 1 {
			return nil, fsm.QueueChanged
		}
		return b.createQueue(name, 0, 1), fsm.OK
	}
	b.settleQueue(q)
	if q.Partition != partition || q.Partitions != partitions {
		return nil, fsm.QueueChanged
	}
	return q, fsm.OK
}

// put records a put.
func (b *Shard) put(c *fsm.Put, r *fsm.Result) {
	if r.Code == fsm.Quota {
		b.count("puts refused by quota", 1)
		return
	}
	q, code := b.home(c.Queue, c.Partition, c.Partitions)
	if code != fsm.OK {
		b.expect(30, r.Code, code)
		return
	}
	if c.Key != "" && q.Settings.Keys.Refused {
		b.expect(37, r.Code, fsm.KeyRefused)
		return
	}
	if b.met(q, c, r) {
		return
	}
	b.look(37)
	size := bytesOf(c)
	wait := b.rateWait(q)
	switch full := b.full(q, size); {
	case wait > 0:
		if b.expect(37, r.Code, fsm.RateLimited); r.Code != fsm.OK {
			return
		}
	case full:
		if b.expect(37, r.Code, fsm.QueueFull); r.Code != fsm.OK {
			return
		}
	case r.Code == fsm.JobExists:
		b.violated(5, "the id %q of %s was said to be taken, and is not", c.ID, c.Queue)
		return
	case r.Code != fsm.OK:
		b.expect(37, r.Code, fsm.OK)
		return
	}
	if !r.Created {
		b.violated(5, "a put of %s %q was answered as a repeat of job %d, and is none", c.Queue, c.ID, r.Serial)
		return
	}
	b.create(q, c, r)
}

// met records a put that meets a job of its id, or that needs one; false if it is to make a job.
func (b *Shard) met(q *Queue, c *fsm.Put, r *fsm.Result) bool {
	var a *Job
	if c.ID != "" {
		a = q.find(c.ID, q.ofPut(c))
	}
	switch {
	case a != nil && a.State.Held():
		b.putHeld(a, c, r)
	case c.IfVersion != 0:
		b.look(contents)
		b.expect(contents, r.Code, fsm.VersionChanged)
	case a != nil && !c.Again && c.OnExisting < fsm.ReplaceExisting && !b.forgotten(a):
		b.repeat(a, c, r)
	default:
		return false
	}
	return true
}

// repeat records a put whose id is taken.
func (b *Shard) repeat(first *Job, c *fsm.Put, r *fsm.Result) {
	b.look(5)
	same := SameContent(first.Put, c) && first.Put.Key == c.Key || first.Adopted && r.Code == fsm.OK
	version := uint64(0)
	if c.OnExisting == fsm.KeepExisting {
		same = first.Put.Key == c.Key
		if first.State.Held() {
			version = first.newest()
		}
	}
	switch {
	case r.Created:
		b.violated(5, "the id %q of %s was put again as job %d; it is that of job %d of entry %d", c.ID, c.Queue, r.Serial,
			first.Serial, first.Index)
		b.create(first.Queue, c, r)
		return
	case same && r.Code != fsm.OK:
		b.violated(5, "a repeat of %s %q was refused with code %d", c.Queue, c.ID, r.Code)
		return
	case !same && r.Code != fsm.JobExists:
		b.violated(5, "a put of %s %q with other content than its first was answered %+v", c.Queue, c.ID, *r)
		return
	case !same:
		return
	}
	first.Queue.counters.Duplicate++
	b.now.Job = first
	if r.Serial != first.Serial || r.Due != first.FirstDue || r.State != first.State {
		b.violated(5, "a repeat of %s %q was answered as job %d, due %d, state %d; it is job %d, due %d, state %d",
			c.Queue, c.ID, r.Serial, r.Due, r.State, first.Serial, first.FirstDue, first.State)
	}
	b.version(first, c, r, version)
}

// create records a job that was made.
func (b *Shard) create(q *Queue, c *fsm.Put, r *fsm.Result) {
	due := b.dueOf(c, b.clock)
	a := &Job{
		Queue: q, Put: c, ID: c.ID, Index: b.entry.Index, Serial: r.Serial, Created: b.clock, Due: due, FirstDue: due,
		left: b.clock, bytes: bytesOf(c), PutAt: b.entry.At, TTL: b.ttlOf(c),
	}
	b.made(r.Serial)
	if r.Due != due {
		b.violated(8, "job %d is due at %d, should be at %d", r.Serial, r.Due, due)
	}
	if q.Settings.PutsPerSecond > 0 {
		period, _ := ratePeriod(q)
		q.rateAt = max(q.rateAt, b.clock).Add(period)
	}
	state := b.stateAt(due)
	if r.State != state || r.Partition != q.Partition {
		b.violated(24, "job %d is created in state %d of partition %d, should be in %d of %d", r.Serial, r.State, r.Partition,
			state, q.Partition)
	}
	q.counters.Put++
	q.counts.Bytes += a.bytes
	q.name(a)
	b.keep(a)
	b.set(a, state, due)
	b.effect(a)
	if c.OnExisting != fsm.ReturnExisting {
		b.version(a, c, r, 1)
	}
	b.count("jobs put", 1)
}

// made notes the serial of a job that was made.
func (b *Shard) made(serial uint64) {
	b.look(6)
	if serial <= b.serial {
		b.violated(6, "job %d was made after serial %d was given out", serial, b.serial)
	}
	b.serial = max(b.serial, serial)
}

// bytesOf is what a job counts against a queue's limit.
func bytesOf(c *fsm.Put) uint64 {
	n := len(c.Body) + len(c.ID) + len(c.Key)
	for _, h := range c.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return uint64(n)
}

// SameContent reports whether two puts ask for the same.
func SameContent(x, y *fsm.Put) bool {
	return x.Given == y.Given && x.Delay == y.Delay && x.DueAt == y.DueAt && x.TTR == y.TTR && x.TTL == y.TTL &&
		fsm.RankOf(x.Priority) == fsm.RankOf(y.Priority) && x.FIFO == y.FIFO &&
		x.MaxAttempts == y.MaxAttempts && slices.Equal(x.RetryDelays, y.RetryDelays) && slices.Equal(x.Headers, y.Headers) &&
		bytes.Equal(x.Body, y.Body)
}

// partOf is a partition's part of a queue's limit.
func (q *Queue) partOf(limit uint64) uint64 {
	if limit == 0 {
		return 0
	}
	return max(1, limit/uint64(max(1, q.Partitions)))
}

func (b *Shard) full(q *Queue, size uint64) bool {
	jobs, most := q.partOf(q.Settings.MaxJobs), q.partOf(q.Settings.MaxBytes)
	return jobs > 0 && q.counts.Jobs() >= jobs || most > 0 && q.counts.Bytes+size > most
}

func ratePeriod(q *Queue) (period, ahead time.Duration) {
	rate := min(q.partOf(q.Settings.PutsPerSecond), 1e9)
	if rate == 0 {
		return 0, 0
	}
	period = time.Duration(1e9 / rate)
	return period, time.Duration(rate-1) * period
}

func (b *Shard) rateWait(q *Queue) time.Duration {
	if q.Settings.PutsPerSecond == 0 {
		return 0
	}
	_, ahead := ratePeriod(q)
	return max(0, q.rateAt.Sub(b.clock)-ahead)
}

// replayed records an answer from memory: it must be the one that was given before. Of grants only
// those that are live are given again.
func (b *Shard) replayed(c *Command) {
	b.look(36)
	b.count("requests answered from memory", 1)
	first := b.remembered[requestName{c.Request.Caller, c.Request.ID}]
	if first == nil {
		b.violated(36, "request %q was answered from memory, and did nothing before", c.Request.ID)
		return
	}
	if c.Command.Kind().Reserves() && len(c.Request.Commands) == 1 {
		b.replayedGrants(c)
		return
	}
	at := int(first.Number) - positionOf(first) + positionOf(c)
	if at >= len(first.Entry.Commands) || first.Entry.Commands[at].Request.ID != c.Request.ID {
		b.violated(36, "request %q was answered from memory with other commands than before", c.Request.ID)
		return
	}
	before := &first.Entry.Commands[at]
	c.Job = before.Job
	was, is := before.Result, c.Result
	is.Replayed = was.Replayed
	if !SameResult(&was, &is) {
		b.violated(36, "request %q was answered %+v from memory, it was %+v at entry %d.%d", c.Request.ID, is, was,
			before.Entry.Index, before.Number)
	}
}

// positionOf is where a command is in its request.
func positionOf(c *Command) int {
	return slices.IndexFunc(c.Request.Commands, func(other fsm.Command) bool { return other == c.Command })
}

// SameResult reports whether two results of a command are equal.
func SameResult(x, y *fsm.Result) bool {
	return x.Code == y.Code && x.State == y.State && x.Created == y.Created && x.More == y.More &&
		x.Partition == y.Partition && x.Serial == y.Serial &&
		x.Due == y.Due && x.Until == y.Until && x.Count == y.Count && x.Wait == y.Wait && slices.Equal(x.Grants, y.Grants)
}

func (b *Shard) replayedGrants(c *Command) {
	for i := range c.Result.Grants {
		g := &c.Result.Grants[i]
		l := b.leases[g.Fence]
		switch {
		case l == nil || l.Job.Serial != g.Serial || l.Command.Request.ID != c.Request.ID:
			b.violated(36, "request %q was answered with the lease %d of job %d from memory, and was not granted it",
				c.Request.ID, g.Fence, g.Serial)
		case l.Job.State != fsm.Reserved || l.Job.fence != g.Fence || l.Job.Until <= b.clock:
			b.violated(15, "request %q was answered with the lease %d of job %d, which is over", c.Request.ID, g.Fence, g.Serial)
		}
	}
}
