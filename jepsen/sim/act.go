package sim

import (
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/sim/tally"
)

// act lets a client do something.
func (c *crowd) act() {
	w := c.w
	if w.keyed != nil && w.chance(60) {
		c.actOnKeys()
		return
	}
	switch n := w.r.IntN(100); {
	case n < 27:
		c.put(pick(w.r, w.queues...), 1)
	case n < 31:
		n := 2 + w.r.IntN(4)
		c.put(pick(w.r, w.queues...), n)
	case n < 52:
		c.reserve(w.queues)
	case n < 76:
		c.work()
	case n < 79:
		c.useStale()
	case n < 82:
		c.cancel(w.queues)
	case n < 85:
		c.reschedule(w.queues)
	case n < 87:
		c.redrive(w.queues)
	case n < 88:
		c.purge(w.queues)
	case n < 90:
		c.administer()
	case n < 96:
		c.askAgain()
	default:
		c.duplicate()
	}
}

// durations are few, so that times meet.
func (c *crowd) duration() time.Duration {
	return pick(c.w.r, 1, time.Millisecond-1, time.Millisecond, 10*time.Millisecond, 250*time.Millisecond, time.Second,
		5*time.Second, 30*time.Second,
		time.Minute, 10*time.Minute)
}

// put sends so many puts to a queue, in one request to one shard.
func (c *crowd) put(q *queue, n int) {
	partitions := q.believed
	if c.w.chance(6) {
		partitions = 1 // a node that has not heard of it
		c.w.tally[tally.Misrouted] += one(q.believed > 1)
	}
	var s *shard
	var list []fsm.Command
	for range n {
		p := c.newPut(q)
		if q.keyed {
			c.addKey(q, p)
		}
		p.Partition, p.Partitions = uint32(c.w.r.IntN(int(partitions))), partitions
		if name := routedBy(p); name != "" {
			p.Partition = q.partitionOf(name, partitions)
		}
		if s == nil || s == c.w.shardOf(q, p.Partition) {
			s = c.w.shardOf(q, p.Partition)
			list = append(list, p)
		}
	}
	c.ask(s, "producer", list...)
}

// newPut makes a put: of a generated id, of a chosen one, often for the second time.
func (c *crowd) newPut(q *queue) *fsm.Put {
	w := c.w
	p := &fsm.Put{Queue: q.name}
	if w.chance(60) {
		p.ID = "j" + strconv.Itoa(w.r.IntN(q.idsMost))
		if first := q.puts[p.ID]; first != nil && w.chance(60) {
			again := *first
			again.Again = w.chance(10)
			return &again
		}
		p.Again = w.chance(15)
	}
	switch w.r.IntN(8) {
	case 0, 1:
	case 2:
		p.Given, p.DueAt = fsm.GivenDueAt, max(1, w.now+fsm.Time(c.duration())-fsm.Time(pick(w.r, 0, 0, c.duration())))
	default:
		p.Given, p.Delay = fsm.GivenDelay, c.duration()
	}
	if w.chance(30) {
		p.Given, p.TTR = p.Given|fsm.GivenTTR, c.duration()
	}
	if w.chance(12) {
		p.Given, p.TTL = p.Given|fsm.GivenTTL, c.duration()
	}
	if w.chance(30) {
		p.Given, p.Priority = p.Given|fsm.GivenPriority, pick[int64](w.r, -128, -1, 0, 1, 127)
	}
	if w.chance(30) {
		p.Given, p.MaxAttempts = p.Given|fsm.GivenMaxAttempts, uint32(w.r.IntN(4))
	}
	if w.chance(20) {
		p.Given, p.RetryDelays = p.Given|fsm.GivenRetryDelays, []time.Duration{c.duration(), c.duration()}[:w.r.IntN(3)]
	}
	if w.chance(10) {
		p.Headers = []fsm.Header{{Name: "h", Value: strconv.Itoa(w.r.IntN(9))}}
	}
	p.Body = binary.LittleEndian.AppendUint64(nil, w.r.Uint64())[:w.r.IntN(9)]
	if p.ID != "" {
		if q.puts[p.ID] == nil {
			q.ids = append(q.ids, p.ID)
		}
		q.puts[p.ID] = p
	}
	return p
}

// reserve asks one shard for jobs of those of the queues that it has, in some order.
func (c *crowd) reserve(queues []*queue) {
	w := c.w
	s := pick(w.r, w.shards...)
	r := &fsm.Reserve{Max: uint32(1 + w.r.IntN(4)), TTR: pick(w.r, 0, 0, c.duration())}
	for _, i := range w.r.Perm(len(queues)) {
		q := queues[i]
		if slices.Contains(q.ranked[:q.believed], s.number) && (len(r.Queues) == 0 || w.chance(30)) {
			r.Queues = append(r.Queues, q.name)
		}
	}
	if len(r.Queues) > 0 {
		c.ask(s, "worker", r)
	}
}

// work lets a worker do something with a lease that it believes to hold, or stall beyond its end,
// or die with all that it holds.
func (c *crowd) work() {
	w := c.w
	var free []*lease
	for _, l := range c.leases {
		if !l.asking {
			free = append(free, l)
		}
	}
	if len(free) == 0 {
		c.reserve(slices.Concat(w.queues, w.keyed))
		return
	}
	l := pick(w.r, free...)
	ref := refOf(l.grant)
	switch n := w.r.IntN(100); {
	case n < 45:
		c.about(l, c.acks(l, free)...)
	case n < 62:
		c.about(l, &fsm.Nack{Ref: ref, Delay: c.duration(), DelayGiven: w.chance(40), Error: pick(w.r, "", "smtp 421"),
			Dead: w.chance(12)})
	case n < 74:
		c.about(l, &fsm.Release{Ref: ref, Delay: pick(w.r, 0, 0, c.duration())})
	case n < 86:
		c.about(l, &fsm.Extend{Ref: ref, TTR: pick(w.r, 0, c.duration())})
	case n < 94:
		w.tally[tally.Stalls]++
		w.now = max(w.now, l.grant.Until+fsm.Time(c.duration()))
		w.mark("stall", uint64(w.now))
		c.drop(l)
		c.reserve(slices.Concat(w.queues, w.keyed))
	default:
		w.tally[tally.Deaths]++
		worker := l.worker
		for _, l := range slices.Clone(c.leases) {
			if l.worker == worker && !l.asking {
				c.drop(l)
			}
		}
		w.mark("dead", uint64(worker))
	}
}

// acks makes one ack, or a batch of them for one shard.
func (c *crowd) acks(l *lease, free []*lease) []fsm.Command {
	list := []fsm.Command{&fsm.Ack{Ref: refOf(l.grant)}}
	for _, other := range free {
		if other != l && other.s == l.s && c.w.chance(15) {
			list = append(list, &fsm.Ack{Ref: refOf(other.grant)})
		}
	}
	return list
}

func refOf(g fsm.Grant) fsm.Ref {
	return fsm.Ref{Queue: g.Queue, Partition: g.Partition, Serial: g.Serial, Fence: g.Fence}
}

// about asks something of a lease. While it is asked, the worker does nothing else with it.
func (c *crowd) about(l *lease, commands ...fsm.Command) {
	l.asking = true
	o := c.ask(l.s, "worker", commands...)
	o.holder = l
	l.asking = o.state == asked
}

// useStale uses a lease that ended, or never was.
func (c *crowd) useStale() {
	if len(c.stale) == 0 {
		return
	}
	l := pick(c.w.r, c.stale...)
	ref := refOf(l.grant)
	switch c.w.r.IntN(12) {
	case 0:
		ref.Fence++
	case 1:
		ref.Serial++
	case 2:
		ref.Partition++
	case 3:
		ref.Queue = pick(c.w.r, c.w.queues...).name
	}
	switch c.w.r.IntN(6) {
	case 0:
		c.ask(l.s, "worker", &fsm.Nack{Ref: ref})
	case 1:
		c.ask(l.s, "worker", &fsm.Release{Ref: ref})
	case 2:
		c.ask(l.s, "worker", &fsm.Extend{Ref: ref, TTR: time.Minute})
	default:
		c.ask(l.s, "worker", &fsm.Ack{Ref: ref})
	}
}

// known picks an id that clients know of one of the queues, with the key of its last put, and its
// shard.
func (c *crowd) known(queues []*queue) (q *queue, id, key string, s *shard) {
	q = pick(c.w.r, queues...)
	if len(q.ids) == 0 {
		return q, "", "", nil
	}
	id = pick(c.w.r, q.ids...)
	name := id
	if p := q.puts[id]; p != nil {
		key, name = p.Key, routedBy(p)
	}
	return q, id, key, c.w.shardOf(q, q.partitionOf(name, q.believed))
}

func (c *crowd) cancel(queues []*queue) {
	if q, id, key, s := c.known(queues); s != nil {
		c.ask(s, "producer", &fsm.Cancel{Queue: q.name, ID: id, Key: key, Force: c.w.chance(40)})
	}
}

func (c *crowd) reschedule(queues []*queue) {
	q, id, key, s := c.known(queues)
	if s == nil {
		return
	}
	r := &fsm.Reschedule{Queue: q.name, ID: id, Key: key, Given: fsm.GivenDelay, Delay: pick(c.w.r, 0, c.duration())}
	if c.w.chance(40) {
		r.Given, r.Delay, r.DueAt = fsm.GivenDueAt, 0, c.w.now+fsm.Time(c.duration())
	}
	c.ask(s, "producer", r)
}

// redrive brings dead jobs back, one by its id or all.
func (c *crowd) redrive(queues []*queue) {
	if q, id, _, s := c.known(queues); s != nil {
		r := &fsm.Redrive{Queue: q.name}
		if c.w.chance(40) {
			r.IDs = []string{id}
		}
		c.ask(s, "admin", r)
	}
}

func (c *crowd) purge(queues []*queue) {
	if q, _, _, s := c.known(queues); s != nil {
		states := pick(c.w.r, fsm.Set(fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead), fsm.Set(fsm.Dead),
			fsm.Set(fsm.Delayed), fsm.Set(fsm.Ready))
		c.ask(s, "admin", &fsm.Purge{Queue: q.name, States: states})
	}
}

// administer pauses and resumes queues, sets limits, sends old settings once more, and goes on with
// the creation of one.
func (c *crowd) administer() {
	w := c.w
	q := pick(w.r, w.queues...)
	if q.late && w.chance(70) || q.opened != nil && q.late {
		w.create(q)
		return
	}
	if q.late {
		return
	}
	q.settings.Paused, q.settings.PausedUntil = w.chance(30), 0
	if q.settings.Paused && w.chance(60) {
		q.settings.PausedUntil = w.now + fsm.Time(c.duration())
	}
	q.settings.MaxInFlight = pick[uint64](w.r, 0, 0, 1, 3)
	q.settings.MaxJobs = pick[uint64](w.r, 0, 0, 0, 6)
	q.settings.PutsPerSecond = pick[uint64](w.r, 0, 0, 0, 2)
	if w.chance(15) && q.version > 0 {
		q.version-- // an old catalog leader: ignored
	}
	w.configure(q)
}

// askAgain repeats an operation with an unknown outcome, as the SDK does until it knows.
func (c *crowd) askAgain() {
	if len(c.doubts) == 0 {
		return
	}
	i := c.w.r.IntN(len(c.doubts))
	o := c.doubts[i]
	c.doubts = slices.Delete(c.doubts, i, i+1)
	if o.state == unknown {
		c.w.tally[tally.Retries]++
		c.send(o)
	}
}

// duplicate delivers a second copy of an attempt that was on its way for long. No client waits for
// its answer.
func (c *crowd) duplicate() {
	if len(c.ops) == 0 {
		return
	}
	o := pick(c.w.r, c.ops...)
	if o.state == refused || o.s.leader < 0 || !c.safe(o) {
		return
	}
	c.w.tally[tally.Duplicates]++
	o.s.pending = append(o.s.pending, &call{op: o, givenUp: true})
}
