package sim

import (
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/jepsen/sim/tally"
)

// opState is what a client knows of an operation.
type opState uint8

const (
	asked    opState = iota // on its way
	answered                // applied
	refused                 // not applied, by no attempt
	unknown                 // applied or not
)

// op is an operation of a client: a request and what became of it, over all attempts.
type op struct {
	s       *shard
	request fsm.Request
	encoded []byte
	sent    uint64   // length of the log when it was asked first
	uuid    fsm.Time // that its id tells, 0 if it tells none
	state   opState
	doubt   bool // an attempt ended unknown
	results []fsm.Result
	index   uint64 // of the entry that answered
	// again is the operation that took the place of one that was refused since its queue has another
	// number of partitions.
	again  *op
	holder *lease // that the operation is about

	// What the books know.
	logged   int // how often it is in the log
	effect   bool
	effectAt fsm.Time
	first    []fsm.Result
}

// lease is what a worker believes that it holds.
type lease struct {
	s      *shard
	worker int
	grant  fsm.Grant
	length time.Duration
	asking bool
}

// crowd are the clients: producers, workers and administrators. They share what they know, so that
// their calls meet.
type crowd struct {
	w      *world
	number int
	ops    []*op // the last ones
	all    []*op
	doubts []*op // unknown, to be asked again
	leases []*lease
	stale  []*lease // that are no longer believed in
}

// recentMax is how many operations and old leases are kept in mind.
const recentMax = 24

func (c *crowd) keep(o *op) {
	c.all = append(c.all, o)
	c.ops = append(c.ops, o)
	if len(c.ops) > recentMax {
		c.ops = slices.Delete(c.ops, 0, recentMax/2)
	}
}

// ask sends a new request to a shard, mostly with a request id.
func (c *crowd) ask(s *shard, caller string, commands ...fsm.Command) *op {
	request, created := fsm.Request{Caller: caller, Commands: commands}, fsm.Time(0)
	if c.w.chance(70) {
		c.number++
		request.ID = "r" + strconv.Itoa(c.number)
		if c.w.chance(40) {
			request.ID, created = c.uuid7()
		}
	}
	o := c.newOp(s, request)
	o.uuid = created
	c.send(o)
	return o
}

func (c *crowd) newOp(s *shard, request fsm.Request) *op {
	o := &op{s: s, request: request, encoded: codec.AppendRequestIn(nil, s.w.format, &request), sent: uint64(len(s.log))}
	c.keep(o)
	return o
}

// uuid7 makes a UUID of version 7 of true time, as the SDK does.
func (c *crowd) uuid7() (string, fsm.Time) {
	ms := uint64(c.w.now) / uint64(time.Millisecond)
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], ms<<16|0x7000|uint64(c.number)&0xfff)
	binary.BigEndian.PutUint64(b[8:], 1<<63|uint64(c.number))
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:],
		fsm.Time(ms) * fsm.Time(time.Millisecond)
}

// send makes an attempt at an operation. It may be lost on its way, or reach a node that does not
// know yet that it leads no more.
func (c *crowd) send(o *op) {
	w := c.w
	o.state = asked
	switch n := w.r.IntN(100); {
	case o.s.leader < 0:
		c.refuse(&call{op: o})
	case n < 3:
		w.tally[tally.Lost]++
		c.giveUp(&call{op: o})
	default:
		o.s.pending = append(o.s.pending, &call{op: o})
	}
}

// refuse ends an attempt that was never handed to a log.
func (c *crowd) refuse(attempt *call) {
	if attempt.givenUp {
		return
	}
	if attempt.op.doubt {
		c.giveUp(attempt)
		return
	}
	c.w.tally[tally.Refused]++
	attempt.givenUp = true
	c.endOp(attempt.op, refused)
}

// giveUp ends an attempt whose outcome the client does not hear.
func (c *crowd) giveUp(attempt *call) {
	if attempt.givenUp {
		return
	}
	attempt.givenUp = true
	o := attempt.op
	c.w.tally[tally.Unknowns]++
	o.doubt = true
	c.endOp(o, c.w.wrong.told(c.w, unknown))
	if c.safe(o) {
		c.doubts = append(c.doubts, o)
	}
}

// endOp sets what the client knows of an operation.
func (c *crowd) endOp(o *op, state opState) {
	o.state = state
	if o.holder != nil {
		o.holder.asking = false
	}
}

// safe reports whether an operation may be asked again: it has a request id, or it is such that a
// second one does nothing.
func (c *crowd) safe(o *op) bool {
	if o.request.ID != "" {
		return true
	}
	for _, command := range o.request.Commands {
		switch command := command.(type) {
		case *fsm.Put:
			if command.ID == "" || command.Again {
				return false
			}
		case *fsm.Ack, *fsm.Configure, *fsm.Open:
		default:
			return false
		}
	}
	return true
}

// answer brings the results of an attempt to its client, unless they are lost on the way.
func (c *crowd) answer(attempt *call, e *entry, results []fsm.Result) {
	o := attempt.op
	if attempt.givenUp {
		return
	}
	if c.w.chance(8) {
		c.giveUp(attempt)
		return
	}
	attempt.givenUp = true
	o.results, o.index = results, e.index
	c.endOp(o, answered)
	if e.index <= o.sent {
		c.w.violated("the log's order is that of the calls", "request %q was asked at index %v and answered with index %v",
			o.request.ID, o.sent, e.index)
	}
	for i, command := range o.request.Commands {
		c.learn(o, command, &results[i])
	}
}

// learn is what clients make of an answer.
func (c *crowd) learn(o *op, command fsm.Command, r *fsm.Result) {
	switch command := command.(type) {
	case *fsm.Put:
		q := c.w.queue(command.Queue)
		if r.Code == fsm.OK && command.ID == "" {
			q.ids = append(q.ids, fsm.FormatID(r.Partition, r.Serial))
		}
		if r.Code == fsm.QueueChanged && len(o.request.Commands) == 1 {
			c.reroute(o, q, command)
		}
	case *fsm.Reserve:
		for _, g := range r.Grants {
			known := slices.ContainsFunc(c.leases, func(l *lease) bool { return l.s == o.s && l.grant.Fence == g.Fence })
			if !known {
				c.leases = append(c.leases, &lease{s: o.s, worker: c.w.r.IntN(3), grant: g, length: command.TTR})
			}
		}
	case *fsm.Ack, *fsm.Nack, *fsm.Release:
		c.drop(o.holder)
	case *fsm.Extend:
		if r.Code == fsm.OK && o.holder != nil {
			o.holder.grant.Until = r.Until
		} else {
			c.drop(o.holder)
		}
	}
}

// reroute sends a put where its queue is, under the same request id: nothing was applied.
func (c *crowd) reroute(o *op, q *queue, p *fsm.Put) {
	if p.Partitions == q.believed {
		return // no client was told yet
	}
	again := *p
	again.Partitions, again.Partition = q.believed, uint32(hash(o.request.ID, 2)%uint64(q.believed))
	if name := routedBy(p); name != "" {
		again.Partition = q.partitionOf(name, q.believed)
	}
	o.again = c.newOp(c.w.shardOf(q, again.Partition),
		fsm.Request{Caller: o.request.Caller, ID: o.request.ID, Commands: []fsm.Command{&again}})
	o.again.uuid = o.uuid
	c.w.tally[tally.Rerouted]++
	c.send(o.again)
}

// drop ends the belief in a lease. It is kept in mind, to be used though it is stale.
func (c *crowd) drop(l *lease) {
	i := slices.Index(c.leases, l)
	if l == nil || i < 0 {
		return
	}
	c.leases = slices.Delete(c.leases, i, i+1)
	c.stale = append(c.stale, l)
	if len(c.stale) > recentMax {
		c.stale = slices.Delete(c.stale, 0, recentMax/2)
	}
}

func (w *world) queue(name string) *queue {
	for _, q := range slices.Concat(w.queues, w.keyed) {
		if q.name == name {
			return q
		}
	}
	return nil
}
