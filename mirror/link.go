package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/redisconn"
)

// shareDefault is the part of Redis' time that scripts take if nothing else is said.
const shareDefault = 0.25

const (
	// batchMax and batchMin bound how many entries a script takes, scriptGoal how long it should take: what takes longer takes fewer the next time.
	batchMax   = 500
	batchMin   = 16
	scriptGoal = 10 * time.Millisecond
)

// nextBatch is how many entries the next script should take.
func nextBatch(last int, took time.Duration) int {
	switch {
	case took > scriptGoal:
		return max(batchMin, last/2)
	case took < scriptGoal/2:
		return min(batchMax, last+batchMin)
	default:
		return last
	}
}

// atOnce is how many single calls to Belfry are on their way at a time: it makes batches of them.
const atOnce = 64

// link is one process's way to one Redis queue and to the queue of Belfry that it belongs to, while it has the hold.
type link struct {
	redis      redis.UniversalClient
	belfry     *client.Client
	redisQueue string
	queue      string
	control    string
	keys       keys
	share      float64
	lease      time.Duration // of the hold
	replicas   int           // how many of them must have what a script did
	notice     func(error)
	held       error // what is told while another process has the hold

	cluster string // of Belfry; set by check
	fence   uint64
	way     way
	epoch   int
	slowest time.Duration
	rest    time.Time // until when Redis is left alone
}

// A way is a direction, "in" or "out", whose scripts come one after the other. Copies of it go on counting together.
type way struct {
	name string
	last *uint64
}

func newWay(name string) way { return way{name, new(uint64)} }

// turn returns what the guard takes for the next script: one that arrives after it with an earlier turn was held back, its answer is awaited by nobody, and it was sent again since.
func (w way) turn(fence uint64) string {
	*w.last++
	return fmt.Sprint(fence, " ", w.name, " ", *w.last)
}

// newLink returns a link without the hold. What is zero or out of range has its default.
func newLink(r redis.UniversalClient, c *client.Client, redisQueue, queue string, share float64, lease time.Duration, notice func(error)) link {
	if queue == "" {
		queue = redisQueue
	}
	if share <= 0 || share > 1 {
		share = shareDefault
	}
	if lease < HoldMin || lease > HoldMax {
		lease = HoldDefault
	}
	if notice == nil {
		notice = func(error) {}
	}
	return link{
		redis: r, belfry: c, redisQueue: redisQueue, queue: queue, control: controlQueue(redisQueue, queue), keys: keysOf(redisQueue), share: share, lease: lease,
		notice: notice, held: errHeld, way: newWay("in"),
	}
}

// open asks what scripts and ids need to know.
func (l *link) open(ctx context.Context, fence uint64) (err error) {
	l.fence = fence
	l.epoch, err = currentEpoch(ctx, l.belfry, l.control)
	return err
}

// withHold has work done while this process, and no other, may change what belongs to the link. It comes after check.
func (l *link) withHold(ctx context.Context, work func(ctx context.Context) error) error {
	return hold(ctx, l.belfry, l.control, l.lease, func() { l.notice(l.held) }, func(ctx context.Context, fence uint64) error {
		if err := l.open(ctx, fence); err != nil {
			return err
		}
		return work(ctx)
	})
}

// begin carries out a check, again while Redis is not reached.
func (l *link) begin(ctx context.Context, check func(ctx context.Context) error) error {
	return l.repeat(ctx, check, redisconn.Fleeting)
}

// persist repeats work that fails with what may pass, as a Redis that restarts.
func (l *link) persist(ctx context.Context, work func(ctx context.Context) error) error {
	return l.repeat(ctx, work, passing)
}

// repeat repeats work while it fails with what passes.
func (l *link) repeat(ctx context.Context, work func(ctx context.Context) error, passes func(error) bool) error {
	for retry := (backoff{}); ; {
		err := work(ctx)
		if err == nil {
			return nil
		}
		if err := l.wait(ctx, err, &retry, passes); err != nil {
			return err
		}
	}
}

// outlast waits until another try makes sense after an error that may pass. Any other it returns, explained.
func (l *link) outlast(ctx context.Context, err error, retry *backoff) error {
	return l.wait(ctx, err, retry, passing)
}

// wait is outlast for what passes.
func (l *link) wait(ctx context.Context, err error, retry *backoff, passes func(error) bool) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !passes(err):
		return explain(err)
	}
	l.notice(explain(err))
	return retry.wait(ctx)
}

// script runs a script that begins with the guard, after it has left Redis alone for as long as the share asks. It returns how long the script took, as seen from here.
func (l *link) script(ctx context.Context, s *redis.Script, keys []string, args ...any) (*redis.Cmd, time.Duration, error) {
	if err := sleep(ctx, time.Until(l.rest)); err != nil {
		return nil, 0, err
	}
	reply, took := l.on(ctx, s, keys, append([]any{l.cluster, l.queue, l.way.turn(l.fence)}, args...)...)
	if err := reply.Err(); err != nil {
		return nil, took, err
	}
	l.slowest = max(l.slowest, took)
	l.rest = time.Now().Add(time.Duration(float64(took) * (1/l.share - 1)))
	return reply, took, nil
}

// settle has Redis refuse the scripts of whoever had the hold before, and cancels the jobs that an export wrote back or a bridge put on the ready list and did not come to remove. Afterwards no job is in both.
func (l *link) settle(ctx context.Context) error {
	if _, _, err := l.script(ctx, fenceScript, []string{l.keys.state}); err != nil {
		return err
	}
	for _, key := range []string{l.keys.returned, l.keys.rung} {
		if err := l.settleTags(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// settleTags is settle for the tags of one key.
func (l *link) settleTags(ctx context.Context, key string) error {
	for {
		tags, err := l.redis.SRandMemberN(ctx, key, returnJobs).Result()
		if err != nil || len(tags) == 0 {
			return err
		}
		left, gone := make([]string, 0, len(tags)), make([]any, 0, len(tags))
		var mu sync.Mutex
		err = each(ctx, tags, func(ctx context.Context, tag string) error {
			_, id := untag(tag)
			job, err := l.belfry.Get(ctx, l.queue, id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && tagOf(job) == tag:
				left = append(left, tag)
			case err == nil, isGone(err):
				gone = append(gone, tag)
			default:
				return fmt.Errorf("looking for job %s, which Redis has: %w", id, err)
			}
			return nil
		})
		if err == nil && len(gone) > 0 {
			_, _, err = l.script(ctx, forgetScript, []string{l.keys.state, key}, gone...)
		}
		if err == nil && len(left) > 0 {
			err = l.cancel(ctx, key, left)
		}
		if err != nil {
			return err
		}
	}
}

// isGone reports whether an error says that there is no such job.
func isGone(err error) bool {
	return errors.Is(err, client.ErrJobNotFound) || errors.Is(err, client.Reason("QUEUE_NOT_FOUND"))
}

// cancel removes jobs from Belfry that Redis has, and forgets their tags, which a key keeps. One that is reserved is taken from its consumer.
func (l *link) cancel(ctx context.Context, key string, tags []string) error {
	if err := each(ctx, tags, func(ctx context.Context, tag string) error {
		_, id := untag(tag)
		if _, err := l.belfry.ForceCancel(ctx, l.queue, id); err != nil && !isGone(err) {
			return fmt.Errorf("removing job %s, which Redis has: %w", id, err)
		}
		return nil
	}); err != nil {
		return err
	}
	args := make([]any, len(tags))
	for n, tag := range tags {
		args[n] = tag
	}
	_, _, err := l.script(ctx, forgetScript, []string{l.keys.state, key}, args...)
	return err
}

// each calls f for all of a list, some at a time, and returns the first error.
func each[T any](ctx context.Context, all []T, f func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, one := range all {
		group.Go(func() error { return f(ctx, one) })
	}
	return group.Wait()
}
