package queue

import (
	"context"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// inFlightWaitMax bounds how long granted jobs wait for reservations that are in flight for the
// same poll in other shards. Their leases run meanwhile, and a slow shard must not hold them. It is
// many times the duration of a log entry.
const inFlightWaitMax = 250 * time.Millisecond

// parked is the answer of one shard to a step that waited.
type parked struct {
	shard uint32
	reply node.Reply
	err   error
}

// outcomeTimeMax bounds how long an interrupted reservation may take to report its outcome. It is
// more than a node needs, and is reached only if the node cannot be reached.
const outcomeTimeMax = 30 * time.Second

// park waits in all shards at once. The first grant ends the poll: the waits in the other shards
// are stopped. Jobs that are in flight there are added in the order of arrival, up to the number of
// jobs asked for. The excess is released without counting an attempt. So the jobs that came first
// are never released in favour of later ones: a repeat may have returned them already.
//
// Jobs that come too late are released. The node does so if the poll has no request id. Otherwise
// the node keeps them for a repeat, and afterAnswer releases them.
func (p *poll) park(ctx context.Context, steps []step, wait time.Duration) error {
	lasting := ctx
	if p.requestID != "" {
		lasting = context.WithoutCancel(ctx) // the outcome of every step must be known before a repeat may run
	}
	waiting, cancel := context.WithCancel(lasting)
	defer func() {
		if p.afterAnswer == nil {
			cancel()
		}
	}()
	enough := make(chan struct{})
	var limit <-chan time.Time
	stop := sync.OnceFunc(func() {
		close(enough)
		limit = time.After(outcomeTimeMax)
	})
	ended := make(chan parked, len(steps))
	for _, st := range steps {
		go func() {
			ended <- p.waitInShard(waiting, st, node.Wait{For: wait, Stop: enough})
		}()
	}
	arrived := make([]parked, 0, len(steps))
	newer, gone, stopped, late := p.newer, ctx.Done(), p.stop, (<-chan time.Time)(nil)
	for len(arrived) < len(steps) && p.afterAnswer == nil {
		select {
		case r := <-ended:
			arrived = append(arrived, r)
			if late == nil && (r.err != nil || r.reply.Granted()) {
				stop()
				late = time.After(withinDeadline(ctx, inFlightWaitMax))
			}
		case <-newer:
			stop() // the repeat collects what is in flight now: nothing is late
			newer = nil
		case <-gone:
			stop() // likewise
			gone = nil
		case <-stopped:
			stop()
			stopped = nil
		case <-late:
			if late = nil; p.requestID == "" {
				cancel()
				continue
			}
			left := len(steps) - len(arrived)
			p.afterAnswer = func() {
				defer time.AfterFunc(outcomeTimeMax, cancel).Stop()
				p.giveBackLate(lasting, ended, left)
				cancel()
			}
		case <-limit:
			cancel()
			limit = nil
		}
	}
	err := p.collectParked(ctx, arrived)
	if err != nil && len(arrived) < len(steps) {
		// A shard that has not answered may have granted jobs, whatever the others refused.
		return worseError(err, p.service.router.FaultAt(arrived[0].shard, node.ErrUnknownOutcome))
	}
	return err
}

// againMax is the longest pause before a shard that cannot serve for now is asked again. The first
// pause is the one in its error.
const againMax = 2 * time.Second

// waitInShard makes a step that waits. It asks the shard again while that cannot serve.
func (p *poll) waitInShard(ctx context.Context, st step, wait node.Wait) parked {
	over := time.Now().Add(wait.For)
	for pause := time.Duration(0); ; {
		reply, err := p.service.router.Node.Reserve(ctx, st.shard, p.request(st), wait)
		ended := parked{shard: st.shard, reply: reply, err: err}
		if wait.For = time.Until(over); err == nil || wait.For <= 0 || !passes(err) {
			return ended
		}
		pause = min(max(2*pause, fault.Of(err).RetryAfter), againMax, wait.For)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			wait.For = time.Until(over)
		case <-wait.Stop:
			timer.Stop()
			return ended
		case <-ctx.Done():
			timer.Stop()
			return ended
		}
	}
}

// collectParked collects the answers of the shards to a poll that waited.
func (p *poll) collectParked(ctx context.Context, arrived []parked) error {
	var failed error
	for _, r := range arrived {
		if r.err != nil {
			failed = worseError(failed, p.service.router.FaultAt(r.shard, r.err))
		} else {
			failed = worseError(failed, p.collect(r.shard, r.reply))
		}
	}
	p.giveBack(ctx)
	if len(p.jobs) > 0 {
		return nil
	}
	return failed
}

// worseError returns the error that a call over several shards ends with: the first, unless only
// the second says that something may have been applied.
func worseError(first, second error) error {
	const unknown = belfryv1.Outcome_OUTCOME_UNKNOWN
	if first == nil || second != nil && fault.Of(first).Outcome() != unknown && fault.Of(second).Outcome() == unknown {
		return second
	}
	return first
}

// giveBackLate releases the jobs of the shards that have not answered yet.
func (p *poll) giveBackLate(ctx context.Context, ended <-chan parked, left int) {
	for range left {
		r := <-ended
		late := poll{service: p.service}
		if r.err == nil && late.collect(r.shard, r.reply) == nil {
			p.service.releaseAll(ctx, wire.Refs(late.jobs))
		}
	}
}
