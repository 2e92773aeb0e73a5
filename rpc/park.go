package rpc

import (
	"context"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// crossingTimeMax bounds how long jobs that were granted wait for what is on its way to the same poll in other shards: their
// leases run, and a shard in trouble must not keep them. It is many times what an entry takes.
const crossingTimeMax = 250 * time.Millisecond

// parked is what one shard answered to a waiting step.
type parked struct {
	shard uint32
	reply node.Reply
	err   error
}

// outcomeTimeMax bounds how long a reservation that was stopped may take to tell its outcome. It is more than a node takes, and
// is reached only if the way to one is cut.
const outcomeTimeMax = 30 * time.Second

// park waits at all shards at once. The first grant ends the poll: the others' waits are stopped, what is on its way to them
// then is added, in the order of arrival, up to the number of jobs asked for, and the rest is given back without counting an
// attempt. What came first is thus never given back in favour of what crosses: somebody may have been told of it already.
// What comes too late is given back: by the node if the poll has no request id, else by rest, since the node keeps it for a repeat.
func (p *poll) park(ctx context.Context, steps []step, wait time.Duration) error {
	lasting := ctx
	if p.requestID != "" {
		lasting = context.WithoutCancel(ctx) // the outcome of every step must be known before a repeat has its turn
	}
	waiting, leave := context.WithCancel(lasting)
	defer func() {
		if p.rest == nil {
			leave()
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
			ended <- p.stay(waiting, st, node.Wait{For: wait, Stop: enough})
		}()
	}
	arrived := make([]parked, 0, len(steps))
	newer, gone, stopped, late := p.newer, ctx.Done(), p.stop, (<-chan time.Time)(nil)
	for len(arrived) < len(steps) && p.rest == nil {
		select {
		case r := <-ended:
			arrived = append(arrived, r)
			if late == nil && (r.err != nil || granted(r.reply)) {
				stop()
				late = time.After(withinDeadline(ctx, crossingTimeMax))
			}
		case <-newer:
			stop() // but what is on its way now is for the repeat to collect: nothing is late
			newer = nil
		case <-gone:
			stop() // likewise
			gone = nil
		case <-stopped:
			stop()
			stopped = nil
		case <-late:
			if late = nil; p.requestID == "" {
				leave()
				continue
			}
			left := len(steps) - len(arrived)
			p.rest = func() {
				defer time.AfterFunc(outcomeTimeMax, leave).Stop()
				p.giveBackLate(lasting, ended, left)
				leave()
			}
		case <-limit:
			leave()
			limit = nil
		}
	}
	err := p.settle(ctx, arrived)
	if err != nil && len(arrived) < len(steps) {
		// A shard that has not answered may have granted jobs, whatever the others refused.
		return graver(err, p.service.faultAt(arrived[0].shard, node.ErrUnknownOutcome))
	}
	return err
}

// againMax is the longest pause before a shard is asked again that answers nobody for now. It starts with what its error says.
const againMax = 2 * time.Second

// stay makes a step that waits. As long as the shard answers nobody, it is asked again.
func (p *poll) stay(ctx context.Context, st step, wait node.Wait) parked {
	over := time.Now().Add(wait.For)
	for pause := time.Duration(0); ; {
		reply, err := p.service.node.Reserve(ctx, st.shard, p.request(st), wait)
		ended := parked{shard: st.shard, reply: reply, err: err}
		if wait.For = time.Until(over); err == nil || wait.For <= 0 || !passes(err) {
			return ended
		}
		pause = min(max(2*pause, faultOfError(err).RetryAfter), againMax, wait.For)
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

// settle collects what the shards answered to a poll that waited.
func (p *poll) settle(ctx context.Context, arrived []parked) error {
	var failed error
	for _, r := range arrived {
		if r.err != nil {
			failed = graver(failed, p.service.faultAt(r.shard, r.err))
		} else {
			failed = graver(failed, p.collect(r.shard, r.reply))
		}
	}
	p.giveBack(ctx)
	if len(p.jobs) > 0 {
		return nil
	}
	return failed
}

// graver returns the one of two errors that a call over several shards ends with: the first, unless only the second says that
// something may have been applied.
func graver(first, second error) error {
	const unknown = belfryv1.Outcome_OUTCOME_UNKNOWN
	if first == nil || second != nil && faultOfError(first).Outcome() != unknown && faultOfError(second).Outcome() == unknown {
		return second
	}
	return first
}

// giveBackLate releases what the shards grant that have not answered yet.
func (p *poll) giveBackLate(ctx context.Context, ended <-chan parked, left int) {
	for range left {
		r := <-ended
		late := poll{service: p.service}
		if r.err == nil && late.collect(r.shard, r.reply) == nil {
			p.service.releaseAll(ctx, refsOf(late.jobs))
		}
	}
}
