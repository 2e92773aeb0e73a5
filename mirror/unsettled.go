package mirror

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
)

// SettleOptions say what [Settle] does. RedisQueue must be set; what else is zero has its default.
type SettleOptions struct {
	// RedisQueue is the name that Redisson's processes give the queue, Queue that of Belfry.
	// Default: RedisQueue.
	RedisQueue, Queue string
	// Codec says how payloads become bodies, as for the run that claimed them. Default: as they are.
	Codec redisson.Codec
	// Share is the part of Redis' time that scripts may take: above 0, up to 1, default 0.25.
	Share float64
	// Hold is for how long no other process may do the work after this one was killed: 1 s to 5
	// min, default 15 s.
	Hold time.Duration
	// Notice is told what it waits for. May be nil; it must not block.
	Notice func(error)
}

// Unsettled is what runs that were stopped or killed left half done.
type Unsettled struct {
	// Claimed are entries, and payloads of the ready list, that were taken out of Redisson's reach
	// and may not be in Belfry.
	Claimed int64 `json:"claimed"`
	// InBoth are jobs that Redis has and that may still be in Belfry: an export wrote them back, or
	// a bridge put them on the ready list.
	InBoth int64 `json:"inBoth"`
	// Held says that a process mirrors the queue now. What is claimed then is on its way.
	Held bool `json:"held"`
}

// Settled is what [Settle] did.
type Settled struct {
	// Before is what there was when it began.
	Before Unsettled `json:"before"`
	// BroughtOver are claimed entries that are in Belfry and gone from Redis. GivenBack are those
	// that Belfry cannot take: they are Redisson's again.
	BroughtOver int64 `json:"broughtOver"`
	GivenBack   int64 `json:"givenBack"`
}

// LookUnsettled counts what is half done. It changes nothing. The error is [ErrNoQueue] if this
// pair of queues was never mirrored.
func LookUnsettled(ctx context.Context, r redis.UniversalClient, c *client.Client, o SettleOptions) (Unsettled, error) {
	l := newLink(r, c, pair.Options{RedisQueue: o.RedisQueue, Queue: o.Queue, Share: o.Share, Hold: o.Hold,
		Notice: o.Notice})
	if err := l.Begin(ctx, l.checkMirrored); err != nil {
		return Unsettled{}, err
	}
	found, err := l.unsettled(ctx)
	if err != nil {
		return Unsettled{}, pair.Explain(err)
	}
	found.Held, _, err = l.Holder(ctx)
	return found, err
}

// Settle finishes the work of stopped or killed runs, and claims nothing new. It puts claimed
// entries into Belfry, or returns them to Redisson if Belfry cannot take them. It removes jobs from
// Belfry that Redis has. A bridge, and an import that follows, release the queue for it and
// continue afterwards. Settle waits for any other process. It may be interrupted at any point and
// repeated. If no work is left, it changes nothing.
//
// Errors: [ErrNoQueue] if this pair of queues was never mirrored; a permanent refusal of Redis or
// Belfry; the error of ctx.
func Settle(ctx context.Context, r redis.UniversalClient, c *client.Client, o SettleOptions) (Settled, error) {
	l := newLink(r, c, pair.Options{RedisQueue: o.RedisQueue, Queue: o.Queue, Share: o.Share, Hold: o.Hold,
		Notice: o.Notice})
	var done Settled
	if err := l.Begin(ctx, l.checkMirrored); err != nil {
		return done, err
	}
	err := l.WithWish(ctx, func(ctx context.Context) error {
		if err := l.Persist(ctx, func(ctx context.Context) (err error) {
			done.Before, err = l.unsettled(ctx)
			return err
		}); err != nil {
			return err
		}
		return l.Persist(ctx, func(ctx context.Context) error {
			counts, err := l.putClaimed(ctx, o.Codec)
			done.BroughtOver += counts.Acked
			if err == nil {
				done.GivenBack = max(0, done.Before.Claimed-done.BroughtOver)
			}
			return err
		})
	})
	return done, err
}

// checkMirrored is check for a pair of queues that was mirrored before.
func (l *link) checkMirrored(ctx context.Context) error {
	if err := l.Identify(ctx); err != nil {
		return err
	}
	if err := l.Began(ctx); err != nil {
		return pair.Explain(err)
	}
	return l.check(ctx)
}

// unsettled counts what is half done in Redis.
func (l *link) unsettled(ctx context.Context) (Unsettled, error) {
	var entries, payloads, returned, delivered *redis.IntCmd
	_, err := l.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		entries, payloads = p.ZCard(ctx, l.keys.handover), p.HLen(ctx, l.keys.readyHand)
		returned, delivered = p.SCard(ctx, l.keys.returned), p.SCard(ctx, l.keys.delivered)
		return nil
	})
	if err != nil {
		return Unsettled{}, err
	}
	return Unsettled{Claimed: entries.Val() + payloads.Val(), InBoth: returned.Val() + delivered.Val()}, nil
}

// putClaimed makes Redis refuse earlier holders, and puts claimed entries into Belfry. Entries that
// Belfry cannot take go back to Redisson.
func (l *link) putClaimed(ctx context.Context, codec redisson.Codec) (ImportCounts, error) {
	if err := l.settleLeftovers(ctx); err != nil {
		return ImportCounts{}, err
	}
	i := newImporter(*l, ImportOptions{Codec: codec})
	err := i.importClaimed(ctx)
	return i.counts, err
}

// importClaimed is catchUp that goes on at what Belfry cannot take, which is given back or set
// aside.
func (i *importer) importClaimed(ctx context.Context) error {
	var bad *BadEntry
	for {
		if err := i.catchUp(ctx); !errors.As(err, &bad) {
			return err
		}
	}
}

// windUp brings over what is claimed when ctx has ended, so that a follower that is stopped leaves
// nothing behind. It first has Redis refuse a claim that is still on its way. What it cannot do
// within pair.LingerMax stays claimed.
func (i *importer) windUp(ctx context.Context) {
	if errors.Is(context.Cause(ctx), client.ErrStaleLease) {
		return // another process may have the hold
	}
	ctx, end := pair.Outliving(ctx, pair.LingerMax)
	defer end()
	if err := i.RefuseEarlier(ctx); err == nil {
		_ = i.importClaimed(ctx) // what stays is counted afterwards
	}
}

// countStranded notes what stays claimed when a run that had the hold ends with an error.
func (i *importer) countStranded(ctx context.Context, err error) {
	if err == nil || !i.worked {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pair.LingerMax)
	defer cancel()
	found, err := i.unsettled(ctx)
	i.counts.Stranded, i.counts.StrandedUnknown = found.Claimed, err != nil
}
