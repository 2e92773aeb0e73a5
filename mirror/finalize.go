package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/pair"
)

// FinalizeOptions say what [Finalize] does. RedisQueue must be set; what else is zero has its
// default.
type FinalizeOptions struct {
	// RedisQueue is the name that Redisson's processes give the queue, Queue that of Belfry.
	// Default: RedisQueue.
	RedisQueue, Queue string
	// Share is the part of Redis' time that scripts may take: above 0, up to 1, default 0.25.
	Share float64
	// Hold is for how long no other process may do the work after this one was killed: 1 s to 5
	// min, default 15 s.
	Hold time.Duration
	// Notice is told what it waits for, that the queue is paused, and how many orphans go. May be
	// nil; it must not block.
	Notice func(error)
}

// Finalize ends a migration. It removes the mirror's keys from Redis. The queue remembers the ids
// of ended jobs for its dedup window again, if it did so before the first import. It refuses if an
// entry of the queue is left in Redis or a process of Redisson listens. After a rollback it
// requires only that the mirror's own keys have no entries. It waits for a process that mirrors the
// queue, and returns its checks. Repeating it changes nothing. The error is [ErrNoQueue] if no
// process ever worked on this pair of queues and nothing is left.
func Finalize(ctx context.Context, r redis.UniversalClient, c *client.Client, o FinalizeOptions) ([]pair.Check, error) {
	l := newLink(r, c, pair.Options{RedisQueue: o.RedisQueue, Queue: o.Queue, Share: o.Share, Hold: o.Hold,
		Notice: o.Notice})
	var done bool
	if err := l.Begin(ctx, func(ctx context.Context) (err error) {
		if err = l.check(ctx); err == nil {
			done, err = l.Finalized(ctx, l.Queue)
		}
		return err
	}); err != nil {
		return nil, err
	}
	var checks []pair.Check
	if done {
		err := l.Persist(ctx, func(ctx context.Context) (err error) {
			var epoch int
			if epoch, err = l.CurrentEpoch(ctx); err == nil {
				checks, err = l.ended(ctx, epoch)
			}
			if err == nil {
				err = l.Began(ctx)
			}
			return err
		})
		return checks, err
	}
	end := func(ctx context.Context) (err error) {
		if err := l.settleLeftovers(ctx); err != nil { // no other process moves entries from here on
			return err
		}
		if checks, err = l.ended(ctx, l.Epoch()); err != nil {
			return err
		}
		if err := errors.Join(l.warnPaused(ctx), l.RestoreDedup(ctx, l.Queue)); err != nil {
			return err
		}
		k := l.keys
		if orphans, err := r.LLen(ctx, k.orphans).Result(); err != nil {
			return err
		} else if orphans > 0 {
			l.Notice(fmt.Errorf("%d places of Redisson's list that would never have been delivered are removed with %s", orphans,
				k.orphans))
		}
		return l.RemoveKeys(ctx, k.orphans, k.handover, k.aside, k.returned, k.delivered, k.readyHand)
	}
	err := l.WithHold(ctx, func(ctx context.Context) error { return l.Persist(ctx, end) })
	return checks, err
}

// ended looks whether a migration can be ended; the error says what is left. Of one that was taken
// back only what the mirror has counts.
func (l *link) ended(ctx context.Context, epoch int) (checks []pair.Check, err error) {
	back, err := l.TakenBack(ctx, epoch)
	if err != nil {
		return nil, err
	}
	if back {
		checks, err = sizesOf(ctx, l.Redis, l.keys.endsEmpty())
		checks = append([]pair.Check{{What: "the jobs are Redisson's again", Found: fmt.Sprintf("epoch %d", epoch),
			OK: true}}, checks...)
	} else {
		checks, err = Drained(ctx, l.Redis, l.RedisQueue)
	}
	if err != nil {
		return nil, err
	}
	if err := pair.Failed(checks); err != nil {
		return checks, fmt.Errorf("the migration of %s cannot be ended yet: %w", l.RedisQueue, err)
	}
	return checks, nil
}
