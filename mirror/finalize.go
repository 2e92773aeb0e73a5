package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
)

// FinalizeOptions say what [Finalize] does. RedisQueue must be set; what else is zero has its default.
type FinalizeOptions struct {
	// RedisQueue is the name that Redisson's processes give the queue, Queue that of Belfry. Default: RedisQueue.
	RedisQueue, Queue string
	// Share is the part of Redis' time that scripts may take: above 0, up to 1, default 0.25.
	Share float64
	// Hold is for how long no other process may do the work after this one was killed: 1 s to 5 min, default 15 s.
	Hold time.Duration
	// Notice is told what it waits for, that the queue is paused, and how many orphans go. May be nil; it must not block.
	Notice func(error)
}

// Finalize ends a migration: it removes the mirror's keys from Redis, and the queue remembers the ids of ended jobs for its dedup window again, if it did so before the first import. It refuses if anything of the queue
// is left in Redis or a process of Redisson listens, unless a rollback took the jobs back: then only what the mirror itself has must be gone. It returns what it checked, and waits for a process that mirrors the queue.
// Repeating it changes nothing. The error is [ErrNoQueue] if nobody ever worked on this pair of queues and nothing is left either.
func Finalize(ctx context.Context, r redis.UniversalClient, c *client.Client, o FinalizeOptions) ([]Check, error) {
	l := newLink(r, c, o.RedisQueue, o.Queue, o.Share, o.Hold, o.Notice)
	var done bool
	if err := l.begin(ctx, func(ctx context.Context) (err error) {
		if err = l.check(ctx); err == nil {
			done, err = l.finalized(ctx, l.queue)
		}
		return err
	}); err != nil {
		return nil, err
	}
	var checks []Check
	if done {
		err := l.persist(ctx, func(ctx context.Context) (err error) {
			if l.epoch, err = currentEpoch(ctx, c, l.control); err == nil {
				checks, err = l.ended(ctx)
			}
			if err == nil {
				err = l.began(ctx)
			}
			return err
		})
		return checks, err
	}
	end := func(ctx context.Context) (err error) {
		if err := l.settle(ctx); err != nil { // nobody else moves anything from here on
			return err
		}
		if checks, err = l.ended(ctx); err != nil {
			return err
		}
		if err := errors.Join(l.warnPaused(ctx), l.restoreDedup(ctx, l.queue)); err != nil {
			return err
		}
		k := l.keys
		if orphans, err := r.LLen(ctx, k.orphans).Result(); err != nil {
			return err
		} else if orphans > 0 {
			l.notice(fmt.Errorf("%d places of Redisson's list that would never have rung are removed with %s", orphans, k.orphans))
		}
		if _, _, err := l.script(ctx, endScript, []string{k.state, k.orphans, k.handover, k.aside, k.returned, k.rung, k.readyHand}); err != nil {
			return err
		}
		return nil
	}
	err := l.withHold(ctx, func(ctx context.Context) error { return l.persist(ctx, end) })
	return checks, err
}

// finalized reports whether there is nothing to end: neither Redis nor a queue of Belfry has a note that something is under way. Redis alone may have lost its own.
func (l *link) finalized(ctx context.Context, queues ...string) (bool, error) {
	owner, err := l.redis.HMGet(ctx, l.keys.state, "cluster").Result()
	if err != nil {
		return false, explain(err)
	}
	if owner[0] != nil {
		return false, nil
	}
	marked, err := l.markedDedup(ctx, queues...)
	return !marked, err
}

// began refuses a pair of queues that nobody ever worked on: a name is wrong.
func (l *link) began(ctx context.Context) error {
	n, err := l.redis.Exists(ctx, l.keys.state).Result()
	if err != nil || n > 0 {
		return err
	}
	if _, err = l.belfry.Get(ctx, l.control, holdID); isGone(err) {
		return fmt.Errorf("%w %q that was ever brought to the queue %s of Belfry; 'belfry mirror inspect' shows those that there are", ErrNoQueue, l.redisQueue, l.queue)
	}
	if err != nil {
		return fmt.Errorf("looking whether the queue was ever mirrored: %w", err)
	}
	return nil
}

// ended looks whether a migration can be ended; the error says what is left. Of one that was taken back only what the mirror has counts.
func (l *link) ended(ctx context.Context) (checks []Check, err error) {
	back, err := l.takenBack(ctx, l.epoch)
	if err != nil {
		return nil, err
	}
	if back {
		checks, err = sizesOf(ctx, l.redis, l.keys.endsEmpty())
		checks = append([]Check{{What: "the jobs are Redisson's again", Found: fmt.Sprintf("epoch %d", l.epoch), OK: true}}, checks...)
	} else {
		checks, err = Drained(ctx, l.redis, l.redisQueue)
	}
	if err != nil {
		return nil, err
	}
	if err := failed(checks); err != nil {
		return checks, fmt.Errorf("the migration of %s cannot be ended yet: %w", l.redisQueue, err)
	}
	return checks, nil
}
