package ledger

import (
	"slices"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
)

// present returns the queue of a command that takes one which is there, settled; nil if it is not,
// or the answer is not what it must be.
func (b *Shard) present(i Rule, queue string, code fsm.Code) *Queue {
	q := b.queues[queue]
	if q == nil {
		b.expect(i, code, fsm.QueueNotFound)
		return nil
	}
	b.settleQueue(q)
	if !b.expect(i, code, fsm.OK) {
		return nil
	}
	return q
}

// redrive records that dead jobs were made ready.
func (b *Shard) redrive(c *fsm.Redrive, r *fsm.Result) {
	q := b.present(22, c.Queue, r.Code)
	if q == nil {
		return
	}
	var n uint64
	for _, id := range c.IDs {
		if a := b.dead(q, id); a != nil {
			b.revive(a)
			n++
		}
	}
	for limit := stepLimit(c.Max); len(c.IDs) == 0 && n < limit; n++ {
		t := q.dead.first()
		if t == nil {
			break
		}
		b.revive(t.account)
	}
	if n > 0 {
		b.effect(nil)
	}
	b.look(22)
	if r.Count != n {
		b.violated(22, "%d dead jobs of %s were redriven, should be %d", r.Count, c.Queue, n)
	}
}

// dead finds the first dead job with an id, whatever its key.
func (b *Shard) dead(q *Queue, id string) *Job {
	if _, _, generated := fsm.ParseID(id); !generated {
		return q.find(id, func(a *Job) bool { return a.State == fsm.Dead })
	}
	if a := b.held(q, id, ""); a != nil && a.State == fsm.Dead {
		return a
	}
	return nil
}

func (b *Shard) revive(a *Job) {
	a.Queue.counters.Redriven++
	a.lift()
	a.attempt, a.TTL, a.left = 0, 0, b.clock
	a.redrives++
	if a.Put.Key != "" && !a.Queue.Settings.Keys.HoldOnDead {
		a.place = b.take()
	}
	b.set(a, fsm.Ready, b.clock.After(0))
}

func stepLimit(most uint32) uint64 {
	if most == 0 || most > fsm.StepMax {
		return fsm.StepMax
	}
	return uint64(most)
}

// orders are the orders in which jobs are purged, with the state of each.
func (q *Queue) orders() [4]struct {
	state fsm.State
	order *agenda
} {
	return [4]struct {
		state fsm.State
		order *agenda
	}{{fsm.Delayed, &q.delayed}, {fsm.Ready, &q.ready}, {fsm.Reserved, &q.leases}, {fsm.Dead, &q.dead}}
}

// remove ends up to limit jobs in the given states, and says how many, and whether there are more.
func (b *Shard) remove(q *Queue, states fsm.StateSet, limit uint64, state fsm.State) (n uint64, more bool) {
	for _, o := range q.orders() {
		if !states.Has(o.state) {
			continue
		}
		for t := o.order.first(); t != nil; t = o.order.first() {
			if n == limit {
				return n, true
			}
			a := t.account
			q.counters.Purged++
			a.lift()
			a.why, a.gone = purged, state == fsm.StateNone
			b.endJob(a, state)
			if a.gone {
				q.forget(a)
			}
			n++
		}
	}
	return n, false
}

// purge records that jobs were removed.
func (b *Shard) purge(c *fsm.Purge, r *fsm.Result) {
	q := b.present(24, c.Queue, r.Code)
	if q == nil {
		return
	}
	n, more := b.remove(q, c.States, stepLimit(c.Max), fsm.Cancelled)
	if n > 0 {
		b.effect(nil)
	}
	b.look(24)
	b.count("jobs purged", int64(n))
	if r.Count != n || r.More != more {
		b.violated(24, "%d jobs of %s were purged (more: %v), should be %d (%v)", r.Count, c.Queue, r.More, n, more)
	}
}

// configure records new settings.
func (b *Shard) configure(c *fsm.Configure, r *fsm.Result) {
	if r.Code == fsm.Quota {
		return
	}
	known := b.queues[c.Queue] != nil
	q, code := b.home(c.Queue, c.Partition, c.Partitions)
	b.look(24)
	if !b.expect(24, r.Code, code) || code != fsm.OK {
		return
	}
	if c.Version <= q.version {
		b.now.Effect = !known
		return
	}
	b.forgetOld(q)
	restart := q.Settings.Keys != c.Settings.Keys
	q.version, q.Settings = c.Version, c.Settings
	q.Withheld = q.Withheld || c.Settings.Paused || c.Settings.MaxInFlight > 0 || c.Settings.Keys != fsm.KeySettings{}
	b.effect(nil)
	if restart {
		b.startKeys(q)
		b.restartRounds(q)
	}
}

// forgetOld forgets the ids that were forgotten with the entry before: they stay so if the window grows.
func (b *Shard) forgetOld(q *Queue) {
	window, forever := dedupWindow(&q.Settings)
	if forever || q.configured == b.entry.Index {
		return
	}
	q.configured = b.entry.Index
	for id, jobs := range q.byID {
		q.byID[id] = slices.DeleteFunc(jobs, func(a *Job) bool {
			return !a.State.Held() && a.left.Add(window) <= b.before
		})
		if len(q.byID[id]) == 0 {
			delete(q.byID, id)
		}
	}
}

// open records that a queue's partition was made.
func (b *Shard) open(c *fsm.Open, r *fsm.Result) {
	if r.Code == fsm.Quota {
		return
	}
	b.look(24)
	if q := b.queues[c.Queue]; q != nil {
		b.settleQueue(q)
		if q.Partition != c.Partition || q.Partitions != c.Partitions {
			b.expect(30, r.Code, fsm.QueueExists)
			return
		}
		b.expect(24, r.Code, fsm.OK)
		return
	}
	if b.expect(24, r.Code, fsm.OK) {
		b.createQueue(c.Queue, c.Partition, c.Partitions)
		b.effect(nil)
	}
}

// deleteQueue records that a queue went, or a part of what it holds.
func (b *Shard) deleteQueue(c *fsm.DeleteQueue, r *fsm.Result) {
	b.look(24)
	q := b.present(24, c.Queue, r.Code)
	if q == nil {
		return
	}
	n, _ := b.remove(q, fsm.Set(fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead), fsm.StepMax, fsm.StateNone)
	b.effect(nil)
	b.count("jobs deleted with their queue", int64(n))
	if r.Count != n {
		b.violated(24, "%d jobs went with queue %s, should be %d", r.Count, c.Queue, n)
	}
	if !r.More {
		if q.counts.Jobs() > 0 {
			b.violated(24, "queue %s was deleted with %d jobs in it", c.Queue, q.counts.Jobs())
		}
		delete(b.queues, c.Queue)
	}
}

// Adopt takes the ledger's state over from the machine, after an entry that gave a shard other
// times or other jobs: a clock that was set back, or a restore. What such an entry does is held
// against the model of fsm, not here.
func (b *Shard) Adopt(m *machine.Machine) {
	mark := m.Restored()
	b.restoring, b.floor, b.clock = mark.Open(), mark.Floor, m.Clock()
	b.serial = max(b.serial, mark.Floor)
	b.count("states taken over from the machine", 1)
	for _, v := range m.Queues("", 1<<30) {
		b.adoptQueue(m, &v)
	}
}

// adoptQueue takes one queue over, with its held jobs.
func (b *Shard) adoptQueue(m *machine.Machine, v *fsm.Queue) {
	q := b.queues[v.Name]
	if q == nil {
		q = b.createQueue(v.Name, v.Partition, v.Partitions)
	}
	q.version, q.Settings, q.counters, q.counts = v.Version, v.Settings, v.Counters, fsm.Counts{Bytes: v.Counts.Bytes}
	q.format = v.Format
	q.delayed, q.ready, q.leases, q.ttls, q.dead = agenda{}, agenda{}, agenda{}, agenda{}, agenda{}
	b.adoptKeys(m, q)
	for _, state := range [...]fsm.State{fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead} {
		jobs, _ := m.List(&fsm.ListQuery{Queue: v.Name, State: state, Max: 1 << 30}, b.clock)
		for i := range jobs {
			b.adoptJob(q, &jobs[i])
		}
	}
	b.adoptSchedules(m, q)
}

func (b *Shard) adoptJob(q *Queue, j *fsm.Job) {
	a := b.jobs[j.Serial]
	if a == nil {
		a = &Job{Queue: q, Serial: j.Serial, Index: b.entry.Index, Put: putOf(j), Adopted: true}
		if !j.Generated {
			a.ID = j.ID
			q.name(a)
		}
		b.keep(a)
		a.bytes = bytesOf(a.Put)
	}
	if j.Fence != a.fence {
		a.why = lapsed // before the backup
	}
	a.Created, a.FirstDue, a.TTL, a.fence, a.Until, a.length = j.Created, j.FirstDue, j.TTL, j.Fence, j.Until, j.LeaseTTR
	a.attempt, a.redrives, a.lastError, a.left = j.Attempt, j.Redrives, j.LastError, b.clock
	a.Version, a.place, a.next, a.died = j.Version, j.Place, nil, j.Died
	a.reprioritize(true, j.Priority)
	if n := j.Next; n != nil {
		put := putOf(&n.Job)
		put.Queue, put.ID, put.Key = q.Name, a.ID, a.Put.Key
		a.next = &successor{put: put, created: n.Created, due: n.FirstDue, ttl: n.TTL, version: n.Version,
			bytes: bytesOf(put) - uint64(len(put.ID)+len(put.Key))}
	}
	a.version++
	b.set(a, j.State, j.Due)
	b.serial = max(b.serial, j.Serial, j.Fence)
}

// putOf is the put of a job as far as the job tells. What it was put with is not told, so that
// repeats of it cannot be judged.
func putOf(j *fsm.Job) *fsm.Put {
	p := &fsm.Put{Queue: j.Queue, Key: j.Key, Given: j.Given, TTR: j.TTR, Priority: j.Priority, FIFO: j.FIFO,
		MaxAttempts: j.MaxAttempts, Body: append([]byte(nil), j.Body...)}
	if !j.Generated {
		p.ID = j.ID
	}
	p.RetryDelays = append(p.RetryDelays, j.RetryDelays...)
	p.Headers = append(p.Headers, j.Headers...)
	return p
}
