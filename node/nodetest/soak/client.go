package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

const (
	// perseverance is how long a client repeats what was refused or has an unknown outcome.
	perseverance = 30 * time.Second
	callTimeout  = 12 * time.Second
	delayMax     = 15 * time.Second
)

// door is where a client's calls arrive: a node, or a node that does something wrong on purpose.
type door interface {
	Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error)
	Reserve(ctx context.Context, shard uint32, req *fsm.Request, wait node.Wait) (node.Reply, error)
}

// client does one thing after the other and writes down what it was told.
type client struct {
	world   *World
	name    string
	number  uint64
	random  *rand.Rand
	serial  int
	guess   int  // which member to ask first
	patient bool // it never gives up, and hears every answer
	// leases are what it holds, or held.
	leases []fsm.Grant
}

// chance is true in one of n cases.
func (c *client) chance(n int) bool { return c.random.IntN(n) == 0 }

// upTo returns a duration below d in whole milliseconds.
func (c *client) upTo(d time.Duration) time.Duration {
	return time.Duration(c.random.Int64N(int64(d/time.Millisecond))) * time.Millisecond
}

// pause waits, and reports false if the clients are to stop.
func (c *client) pause(ctx context.Context, d time.Duration) bool { return wait(ctx, d) }

// do carries out one command at member after member until its outcome is known, or the client gives
// up. ok says that it was applied.
func (c *client) do(ctx context.Context, command fsm.Command, wait time.Duration) (fsm.Result, bool) {
	c.serial++
	o := &operation{
		client: c.name, invoked: c.world.history.now(),
		request: &fsm.Request{Caller: c.name, ID: fmt.Sprintf("%s-%d", c.name, c.serial), Commands: []fsm.Command{command}},
	}
	unknown := false
	for begun := time.Now(); ; {
		reply, err := c.attempt(o.request, wait)
		if outcome := node.OutcomeOf(err); outcome == node.Applied {
			o.outcome, o.reply, o.returned = outcome, reply, c.world.history.now()
			break
		} else if outcome == node.Unknown {
			unknown = true
		}
		o.outcome, o.returned = node.NotApplied, c.world.history.now()
		if unknown {
			o.outcome = node.Unknown
		}
		gaveUp := !c.patient && (time.Since(begun) > perseverance || c.chance(12)) // or its process died
		if gaveUp || !c.pause(ctx, 5*time.Millisecond+c.upTo(200*time.Millisecond)) {
			break
		}
	}
	c.world.history.add(o)
	if o.outcome != node.Applied || len(o.reply.Results) == 0 {
		return fsm.Result{}, false
	}
	return o.reply.Results[0], true
}

// attempt makes one call. The answer of a node that died before it could be heard is an unknown
// outcome.
func (c *client) attempt(req *fsm.Request, wait time.Duration) (node.Reply, error) {
	l := c.world.lifeNumber(c.guess)
	if l == nil {
		c.guess = c.random.IntN(8)
		return node.Reply{}, node.ErrNoLeader
	}
	ctx, cancel := context.WithTimeout(l.ctx, callTimeout)
	defer cancel()
	l.gate.pass(ctx.Done())
	var at door = l.node
	if c.world.plan.wrapDoor != nil {
		at = c.world.plan.wrapDoor(l.node, c.world)
	}
	var reply node.Reply
	var err error
	if _, ok := req.Commands[0].(*fsm.Reserve); ok {
		reply, err = at.Reserve(ctx, 0, req, node.Wait{For: wait})
	} else {
		reply, err = at.Do(ctx, 0, req)
	}
	l.gate.pass(ctx.Done())
	if err == nil && (!c.world.history.heard(l) || !c.patient && c.chance(50)) {
		return node.Reply{}, fmt.Errorf("%w: the answer was lost", node.ErrUnknownOutcome)
	}
	if err != nil {
		c.guess = c.random.IntN(8)
		if !c.world.history.heard(l) {
			return node.Reply{}, fmt.Errorf("%w: %w", node.ErrUnknownOutcome, errCut)
		}
	}
	return reply, err
}

// retryDelays are short, so that a drain need not wait long.
func retryDelays() []fsm.Duration { return []fsm.Duration{time.Second, 5 * time.Second} }

// queue returns the name of one of the queues.
func (c *client) queue() string {
	return queues()[c.random.IntN(len(queues()))]
}

// queues returns the names of the queues without keys, allQueues of all that clients use.
func queues() []string    { return []string{"orders", "mails"} }
func allQueues() []string { return append(queues(), keyedQueue) }

// produce puts jobs.
func (c *client) produce(ctx context.Context) {
	for c.pause(ctx, c.upTo(c.world.plan.clientPauseMax)) {
		if c.world.plan.keyed && c.chance(2) {
			c.useKeys(ctx)
			continue
		}
		put := &fsm.Put{
			Queue: c.queue(), Partitions: 1, Given: fsm.GivenDelay | fsm.GivenTTR | fsm.GivenRetryDelays,
			Delay: c.upTo(delayMax), TTR: time.Second + c.upTo(6*time.Second), RetryDelays: retryDelays(),
			Body: fmt.Appendf(nil, "%s %d", c.name, c.serial),
		}
		if !c.chance(4) {
			put.ID = fmt.Sprintf("%s-%d", c.name, c.serial)
		}
		if c.chance(5) {
			put.Given |= fsm.GivenMaxAttempts
			put.MaxAttempts = 1 + uint32(c.random.IntN(3))
		}
		if c.chance(10) {
			put.Given |= fsm.GivenPriority
			put.Priority = int64(c.random.IntN(5))
		}
		if c.chance(20) {
			put.Given |= fsm.GivenTTL
			put.TTL = put.Delay + c.upTo(30*time.Second)
		}
		if c.chance(8) {
			put.Body = make([]byte, c.random.IntN(2<<10))
		}
		c.do(ctx, put, 0)
		if put.ID != "" && c.chance(20) {
			c.do(ctx, &fsm.Cancel{Queue: put.Queue, ID: put.ID, Force: c.chance(2)}, 0)
		} else if put.ID != "" && c.chance(20) {
			c.do(ctx, &fsm.Reschedule{Queue: put.Queue, ID: put.ID, Given: fsm.GivenDelay, Delay: c.upTo(delayMax)}, 0)
		} else if put.ID != "" && c.chance(10) {
			c.do(ctx, put, 0) // under another request id: the content decides
		}
	}
}

// consume takes jobs and does with them what workers do, good ones and bad ones.
func (c *client) consume(ctx context.Context) {
	for c.pause(ctx, c.upTo(c.world.plan.clientPauseMax)) {
		reserve := &fsm.Reserve{Queues: allQueues(), Max: 1 + uint32(c.random.IntN(5))}
		if c.chance(3) {
			reserve.TTR = 500*time.Millisecond + c.upTo(5*time.Second)
		}
		result, ok := c.do(ctx, reserve, c.upTo(3*time.Second))
		if !ok {
			continue
		}
		for _, g := range result.Grants {
			c.leases = append(c.leases, g)
			c.work(ctx, g)
		}
		if len(c.leases) > 0 && c.chance(4) { // an ack that may be too late
			c.do(ctx, &fsm.Ack{Ref: refOf(c.leases[c.random.IntN(len(c.leases))])}, 0)
		}
		if len(c.leases) > 50 {
			c.leases = c.leases[25:]
		}
	}
}

// work ends one lease in one of the ways there are.
func (c *client) work(ctx context.Context, g fsm.Grant) {
	ref := refOf(g)
	switch c.random.IntN(16) {
	case 0: // dies
	case 1:
		c.do(ctx, &fsm.Nack{Ref: ref, Delay: c.upTo(5 * time.Second), DelayGiven: true, Error: "no"}, 0)
	case 2:
		c.do(ctx, &fsm.Nack{Ref: ref, Dead: c.chance(3)}, 0)
	case 3:
		c.do(ctx, &fsm.Release{Ref: ref, Delay: c.upTo(3 * time.Second)}, 0)
	case 4, 5:
		c.do(ctx, &fsm.Extend{Ref: ref, TTR: c.upTo(8 * time.Second)}, 0)
		if c.pause(ctx, c.upTo(4*time.Second)) {
			c.do(ctx, &fsm.Ack{Ref: ref}, 0)
		}
	case 6: // slow, perhaps too slow
		if c.pause(ctx, c.upTo(6*time.Second)) {
			c.do(ctx, &fsm.Ack{Ref: ref}, 0)
		}
	default:
		c.do(ctx, &fsm.Ack{Ref: ref}, 0)
	}
}

// propose logs tokens in the catalog.
func (c *client) propose(ctx context.Context) {
	for c.pause(ctx, c.upTo(2*c.world.plan.clientPauseMax)) {
		l := c.world.lifeNumber(c.guess)
		if l == nil {
			c.guess = c.random.IntN(8)
			continue
		}
		c.serial++
		t := token{value: c.number<<32 | uint64(c.serial)}
		call, cancel := context.WithTimeout(l.ctx, callTimeout)
		reply, err := l.catalog.Propose(call, entryOf(t.value))
		cancel()
		t.outcome, t.index = node.OutcomeOf(err), reply.Index
		if !c.world.history.heard(l) {
			t.outcome = node.Unknown
		}
		if err != nil {
			c.guess = c.random.IntN(8)
		}
		c.world.history.addToken(t)
	}
}

func refOf(g fsm.Grant) fsm.Ref {
	return fsm.Ref{Queue: g.Queue, Partition: g.Partition, Serial: g.Serial, Fence: g.Fence}
}
