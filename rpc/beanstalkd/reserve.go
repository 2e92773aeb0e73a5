package beanstalkd

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/beanstalkd/protocol"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

const (
	// forever is the timeout of a reserve without one.
	forever = time.Duration(math.MaxInt64)
	// pollMax bounds one wait for a job; a longer timeout takes several.
	pollMax = time.Minute
	// readAheadAfter is how long a reserve waits before a goroutine looks whether its client has gone.
	readAheadAfter = 50 * time.Millisecond
)

// reserve reserves a job of the watched tubes, and waits for one.
func (c *conn) reserve(ctx context.Context, timeout time.Duration) *fault.Error {
	c.worker.Store(true)
	for _, queue := range c.queues {
		if f := c.door.cfg.Queues.Allow(ctx, tokens.Consume, queue); f != nil {
			return f
		}
	}
	queues := c.byFirstJob(ctx)
	began := time.Now()
	for wait := time.Duration(0); ; { // a job that is there costs less without waiting
		grant, f := c.take(ctx, queues, wait)
		now := time.Now()
		left, answer := timeout-now.Sub(began), protocol.TimedOut
		if first, ok := c.firstDeadline(now); ok && first.Sub(now)-deadlineMargin < left {
			left, answer = first.Sub(now)-deadlineMargin, protocol.DeadlineSoon
		}
		switch {
		case grant != nil:
			c.out = protocol.AppendReserved(c.out, c.holdGrant(grant), grant.Body)
			return nil
		case c.isInterrupted() || c.in.ended:
			c.answer(protocol.TimedOut)
			return nil
		case f != nil && !repeats(f):
			return f
		case left <= 0 && wait <= 0: // it has looked after the end: a job may fall due just then
			c.answer(answer)
			return nil
		case f != nil && !c.sleep(ctx, max(0, min(max(f.RetryAfter, retryPause), left))):
			c.answer(protocol.TimedOut)
			return nil
		}
		wait = max(0, min(left, pollMax))
	}
}

// byFirstJob returns the queues of the watched tubes in the order of their first READY jobs:
// beanstalkd reserves the job of the lowest priority in all tubes, and of those the one that was put
// first. Queues whose shard does not answer, and those without a job, come last.
func (c *conn) byFirstJob(ctx context.Context) []string {
	if len(c.queues) == 1 {
		return c.queues
	}
	queues := slices.Clone(c.queues)
	firsts := make(map[string]*fsm.Job, len(queues))
	for _, queue := range queues {
		for _, shard := range c.door.cfg.Router.Shards(queue) {
			r, _, err := c.door.cfg.Router.Node.Query(ctx, shard, &fsm.FirstQuery{Queue: queue, State: fsm.Ready})
			if err != nil || len(r.Jobs) == 0 {
				continue
			}
			if first := firsts[queue]; first == nil || precedes(&r.Jobs[0], first, fsm.Ready) {
				firsts[queue] = &r.Jobs[0]
			}
		}
	}
	slices.SortStableFunc(queues, func(a, b string) int {
		x, y := firsts[a], firsts[b]
		switch {
		case x != nil && (y == nil || precedes(x, y, fsm.Ready)):
			return -1
		case y != nil && (x == nil || precedes(y, x, fsm.Ready)):
			return 1
		default:
			return 0
		}
	})
	return queues
}

// take reserves a job, and waits for one if wait is positive.
func (c *conn) take(ctx context.Context, queues []string, wait time.Duration) (*wire.Grant, *fault.Error) {
	if wait <= 0 {
		grant, err := c.door.cfg.Queues.TakeJob(ctx, queues, 0)
		return grant, faultOf(err)
	}
	if c.flush() != nil { // reading fails too
		wait = 0
	}
	ctx, done := c.waiting(ctx)
	defer done()
	c.door.tubes.wait(c.watched, 1)
	defer c.door.tubes.wait(c.watched, -1)
	grant, err := c.door.cfg.Queues.TakeJob(ctx, queues, wait)
	return grant, faultOf(err)
}

func faultOf(err error) *fault.Error {
	if err == nil {
		return nil
	}
	return fault.Of(err)
}

// sleep waits. It reports false if the connection ends.
func (c *conn) sleep(ctx context.Context, d time.Duration) bool {
	ctx, done := c.waiting(ctx)
	defer done()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// waiting returns a context that ends when the client closes its side, or the door closes. After a
// moment a goroutine reads what the client sends meanwhile. done ends that; no other read may be
// under way before.
func (c *conn) waiting(ctx context.Context) (waiting context.Context, done func()) {
	waiting, cancel := context.WithCancel(ctx)
	c.setWait(cancel)
	ended := make(chan struct{})
	timer := time.AfterFunc(readAheadAfter, func() {
		defer close(ended)
		c.readAhead()
		if c.in.ended {
			cancel()
		}
	})
	return waiting, func() {
		if !timer.Stop() {
			c.stopReading(true)
			<-ended
			c.stopReading(false)
			c.in.limited = true
		}
		c.setWait(nil)
		cancel()
	}
}

// readAhead reads until the client closes its side, the buffer is full, or the deadline for reads is
// set to the past.
func (c *conn) readAhead() {
	if c.setReadDeadline(time.Time{}) != nil {
		return
	}
	for len(c.in.data) < bufferBytes && !c.in.ended {
		if c.in.read(c.net) != nil {
			return
		}
	}
}

// reserveJob reserves one job, whatever its state.
func (c *conn) reserveJob(ctx context.Context, id uint64) *fault.Error {
	c.worker.Store(true)
	job, f := c.find(ctx, id, tokens.Consume)
	if job == nil {
		return f
	}
	shard, serial := protocol.SplitID(id)
	a := c.propose(ctx, shard, &fsm.ReserveJob{Queue: job.Queue, Serial: serial})
	switch {
	case a.Fault != nil && absent(a.Fault):
		c.answer(protocol.NotFound)
		return nil
	case a.Fault != nil:
		return a.Fault
	case len(a.Result.Grants) == 0 || a.Request == nil: // it is the answer to an attempt whose lease has ended
		c.answer(protocol.NotFound)
		return nil
	}
	grant := a.Result.Grants[0]
	ref := fsm.Ref{Queue: grant.Queue, Partition: grant.Partition, Serial: grant.Serial, Fence: grant.Fence}
	c.hold(ref, grant.Until.Sub(a.Request.Time))
	c.out = protocol.AppendReserved(c.out, id, job.Body)
	return nil
}
