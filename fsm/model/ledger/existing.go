package ledger

import "github.com/belfrydb/belfry/fsm"

// successor is a job that begins when another one of its id ends.
type successor struct {
	put          *fsm.Put
	created, due fsm.Time
	ttl          fsm.Time
	version      uint64
	bytes        uint64
}

// newest is the version of the last content that was put for the id of a job.
func (a *Job) newest() uint64 {
	if a.next != nil {
		return a.next.version
	}
	return max(a.Version, 1)
}

// whole is what a job counts against the limit of bytes, with its successor.
func (a *Job) whole() uint64 {
	if a.next != nil {
		return a.bytes + a.next.bytes
	}
	return a.bytes
}

// putHeld records a put of an id that a held job has.
func (b *Shard) putHeld(held *Job, c *fsm.Put, r *fsm.Result) {
	b.look(5)
	switch {
	case c.OnExisting >= fsm.ReplaceExisting && held.Put.Key != c.Key:
		b.expect(5, r.Code, fsm.JobExists)
		return
	case c.IfVersion != 0 && c.IfVersion != held.newest():
		b.look(contents)
		b.expect(contents, r.Code, fsm.VersionChanged)
		b.version(held, c, r, held.newest())
		return
	case c.OnExisting < fsm.ReplaceExisting:
		b.repeat(held, c, r)
		return
	}
	b.look(contents)
	b.now.Job = held
	switch {
	case held.State != fsm.Reserved:
		b.replace(held, c, r)
	case c.OnExisting == fsm.ReplaceExisting:
		b.expect(contents, r.Code, fsm.JobReserved)
		b.version(held, c, r, held.newest())
	default:
		b.putNext(held, c, r)
	}
}

// version holds a version that was answered against the ledger.
func (b *Shard) version(a *Job, c *fsm.Put, r *fsm.Result, want uint64) {
	if r.Version != want {
		b.violated(contents, "a put of %s %q (job %d) was answered with version %d, should be %d", c.Queue, c.ID, a.Serial,
			r.Version, want)
	}
}

// dueOf is the due time of a content whose first was put at a time.
func (b *Shard) dueOf(c *fsm.Put, first fsm.Time) fsm.Time {
	due := b.clock.After(0)
	switch {
	case c.Given.Has(fsm.GivenDelay):
		due = b.clock.After(c.Delay)
	case c.Given.Has(fsm.GivenDueAt):
		due = c.DueAt.Ceil()
	}
	if c.MaxWait > 0 {
		due = min(due, first.After(c.MaxWait))
	}
	return due
}

// ttlOf is when a job of a put expires, 0 for never.
func (b *Shard) ttlOf(c *fsm.Put) fsm.Time {
	if c.Given.Has(fsm.GivenTTL) {
		return b.clock.After(c.TTL)
	}
	return 0
}

// stateAt is the state of a waiting job by its due time.
func (b *Shard) stateAt(due fsm.Time) fsm.State {
	if due <= b.clock {
		return fsm.Ready
	}
	return fsm.Delayed
}

// grows reports whether the limit of bytes forbids a content in the place of another.
func (q *Queue) grows(before, bytes uint64) bool {
	limit := q.partOf(q.Settings.MaxBytes)
	return limit > 0 && bytes > before && q.counts.Bytes-before+bytes > limit
}

// replace records that a put gave a job that nobody works on its content.
func (b *Shard) replace(a *Job, c *fsm.Put, r *fsm.Result) {
	q, before := a.Queue, a.whole()
	if q.grows(before, bytesOf(c)) {
		b.expect(37, r.Code, fsm.QueueFull)
		return
	}
	if !b.expect(contents, r.Code, fsm.OK) {
		return
	}
	b.effect(a)
	q.counters.Duplicate++
	if a.State == fsm.Dead {
		q.counters.Redriven++
		a.redrives++
		if a.Put.Key != "" && !q.Settings.Keys.HoldOnDead {
			a.place = b.take()
		}
	}
	if a.State == fsm.Dead || a.attempt > 0 || a.died > a.Created {
		a.Created = b.clock // its failure ends what was put off so far
	}
	a.lift()
	q.counts.Bytes += bytesOf(c) - before
	due := b.dueOf(c, a.Created)
	a.Version, a.Put, a.bytes, a.FirstDue, a.TTL, a.next = a.newest()+1, c, bytesOf(c), due, b.ttlOf(c), nil
	a.attempt, a.left, a.Adopted, a.reprioritized = 0, b.clock, false, false
	b.set(a, b.stateAt(due), due)
	b.count("jobs replaced", 1)
	if !r.Replaced || r.Created || r.Serial != a.Serial || r.Due != due || r.State != a.State {
		b.violated(contents, "a put that replaced job %d, due %d, state %d, was answered %+v", a.Serial, due, a.State, *r)
	}
	b.version(a, c, r, a.Version)
}

// putNext records that a put became the successor of a RESERVED job.
func (b *Shard) putNext(a *Job, c *fsm.Put, r *fsm.Result) {
	q, first, before := a.Queue, b.clock, uint64(0)
	if a.next != nil {
		first, before = a.next.created, a.next.bytes
	}
	size := bytesOf(c) - uint64(len(c.ID)+len(c.Key)) // it has the id and the key of the job, which count once
	if q.grows(before, size) {
		b.expect(37, r.Code, fsm.QueueFull)
		return
	}
	if !b.expect(contents, r.Code, fsm.OK) {
		return
	}
	b.effect(a)
	q.counters.Duplicate++
	due := b.dueOf(c, first)
	a.next = &successor{put: c, created: first, due: due, ttl: b.ttlOf(c), version: a.newest() + 1, bytes: size}
	q.counts.Bytes += size - before
	b.count("successors put", 1)
	if !r.Replaced || r.Created || r.Serial != a.Serial || r.Due != due || r.State != fsm.Reserved {
		b.violated(contents, "a put that follows job %d, due %d, was answered %+v", a.Serial, due, *r)
	}
	b.version(a, c, r, a.next.version)
}

// succeed makes a job of the successor of one that has just ended.
func (b *Shard) succeed(ended *Job) {
	next, q := ended.next, ended.Queue
	ended.next = nil
	a := &Job{
		Queue: q, Put: next.put, ID: ended.ID, Index: b.entry.Index, Serial: b.take(), Created: next.created, Due: next.due,
		FirstDue: next.due, TTL: next.ttl, left: b.clock, Version: next.version, bytes: bytesOf(next.put), PutAt: b.entry.At,
	}
	q.counters.Put++
	q.counts.Bytes += a.bytes
	q.forget(ended)
	q.name(a)
	b.keep(a)
	b.set(a, b.stateAt(a.Due), a.Due)
	b.count("successors begun", 1)
}
