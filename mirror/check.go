package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisconn"
)

// check refuses what cannot work, before anything is made in Belfry or written to Redis.
func (l *link) check(ctx context.Context) error {
	if err := l.Identify(ctx); err != nil {
		return err
	}
	if err := l.rights(ctx); err != nil {
		return err
	}
	if err := redisconn.CheckTypes(ctx, l.Redis, l.keys.all()); err != nil {
		return pair.Explain(err)
	}
	if err := l.changes(ctx); err != nil {
		return pair.Explain(err)
	}
	if err := l.CheckReplicas(ctx); err != nil {
		return pair.Explain(err)
	}
	return l.CheckPair(ctx)
}

// nothing is a script without effect. Redis runs it only for a user who may run scripts over its
// keys.
var nothing = redis.NewScript("return 0")

// rights refuses a user who may not run scripts over the keys, and a queue whose keys cannot be
// used together.
func (l *link) rights(ctx context.Context) error {
	if err := nothing.Run(ctx, l.Redis, nil).Err(); err != nil {
		return pair.Explain(err)
	}
	// as where another server takes over, which has no script yet
	if err := nothing.Eval(ctx, l.Redis, nil).Err(); err != nil {
		return pair.Explain(err)
	}
	names := make([]string, 0, len(l.keys.all()))
	for _, key := range l.keys.all() {
		names = append(names, key.Key)
		err := nothing.Run(ctx, l.Redis, []string{key.Key}).Err()
		if redis.HasErrorPrefix(err, "NOPERM") {
			return redisconn.Explained(fmt.Errorf("the Redis user may not read and write the key %s; it needs ~%s: %w",
				key.Key, key.Key, err))
		}
		if err != nil {
			return pair.Explain(err)
		}
	}
	if err := nothing.Run(ctx, l.Redis, names).Err(); err != nil {
		return pair.Explain(err)
	}
	// A time in the past has Redisson's processes look for what is due, which they may do at any time.
	err := l.Redis.Publish(ctx, l.keys.Channel, "0").Err()
	if redis.HasErrorPrefix(err, "NOPERM") {
		return redisconn.Explained(fmt.Errorf("the Redis user may not publish to %s; it needs &%s and +publish: %w",
			l.keys.Channel, l.keys.Channel, err))
	}
	if err != nil {
		return pair.Explain(err)
	}
	if err := l.Redis.PubSubNumSub(ctx, l.keys.Channel).Err(); err != nil {
		return pair.Explain(err)
	}
	return nil
}

// changes tries commands that change, so that they do not: a replica refuses them, and a script
// that is refused one in its midst leaves half of its work.
func (l *link) changes(ctx context.Context) error {
	const nobody = "belfry.mirror: no such member"
	_, err := l.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAddXX(ctx, l.keys.handover, redis.Z{Member: nobody})
		p.ZRem(ctx, l.keys.Timer, nobody)
		p.LTrim(ctx, l.keys.List, 0, -1)
		p.SRem(ctx, l.keys.returned, nobody)
		return nil
	})
	if err != nil {
		return err
	}
	if err := l.Writes(ctx); err != nil {
		return err
	}
	return l.reads(ctx)
}

// reads tries the commands that scripts read with, and those that come late.
func (l *link) reads(ctx context.Context) error {
	_, err := l.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		key := l.keys.trial
		p.Exists(ctx, key)
		p.Expire(ctx, key, time.Hour)
		p.HLen(ctx, key)
		p.HMGet(ctx, key, "x")
		p.HScan(ctx, key, 0, "", 1)
		p.LLen(ctx, key)
		p.LRange(ctx, key, 0, 0)
		p.Persist(ctx, key)
		p.SCard(ctx, key)
		p.SIsMember(ctx, key, "x")
		p.SRandMemberN(ctx, key, 1)
		p.ZCard(ctx, key)
		p.ZRange(ctx, key, 0, 0)
		return nil
	})
	if err != nil {
		return err
	}
	// It answers that there is none.
	if err := l.Redis.ZScore(ctx, l.keys.trial, "x").Err(); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return nil
}

// check refuses also what Belfry could not take.
func (i *importer) check(ctx context.Context) error {
	if err := i.link.check(ctx); err != nil {
		return err
	}
	if !i.follow || !i.standing { // import --follow and the bridge may come before the queue does
		if err := i.exists(ctx); err != nil {
			return pair.Explain(err)
		}
	}
	if i.follow {
		offers, err := i.listen(ctx)
		if err != nil {
			return pair.Explain(err)
		}
		if err := offers.Close(); err != nil {
			return pair.Explain(err)
		}
	}
	if i.setAside {
		return nil
	}
	found, err := inspect(ctx, i.Redis, i.RedisQueue)
	if err != nil {
		return err
	}
	if found.Bad > 0 {
		return fmt.Errorf("%d entries cannot be brought over, and nothing was changed; repair them, or set them aside with "+
			"--set-aside; the first: %s", found.Bad, found.FirstBad)
	}
	return nil
}

// exists refuses a queue of which Redis knows nothing: its name is wrong. A queue that was brought
// over is known.
func (i *importer) exists(ctx context.Context) error {
	keys := []string{i.keys.Timer, i.keys.List, i.keys.state}
	if i.ready {
		keys = append(keys, i.keys.Ready)
	}
	n, err := i.Redis.Exists(ctx, keys...).Result()
	if err != nil || n > 0 {
		return err
	}
	if n, err := redisconn.Subscribers(ctx, i.Redis, i.keys.Channel); err != nil || n > 0 {
		return err
	}
	return fmt.Errorf("%w %q: there is no key %s; 'belfry mirror inspect' shows those that there are",
		pair.ErrNoQueue, i.RedisQueue, i.keys.Timer)
}

// listenMax is how long Redis may take to answer that it has a listener.
const listenMax = 5 * time.Second

// listen subscribes to what Redisson announces.
func (i *importer) listen(ctx context.Context) (*redis.PubSub, error) {
	offers := i.Redis.Subscribe(ctx, i.keys.Channel)
	_, err := offers.ReceiveTimeout(ctx, listenMax) // a Redis that hangs would never answer
	if err == nil {
		return offers, nil
	}
	if redis.HasErrorPrefix(err, "NOPERM") {
		err = redisconn.Explained(fmt.Errorf("the Redis user may not subscribe to %s; it needs &%s and +subscribe: %w",
			i.keys.Channel, i.keys.Channel, err))
	}
	return nil, errors.Join(err, offers.Close())
}

// check refuses also what cannot go back.
func (e *exporter) check(ctx context.Context) error {
	if err := e.link.check(ctx); err != nil {
		return err
	}
	if _, err := e.Belfry.Admin().Queue(ctx, e.Queue); err != nil {
		return fmt.Errorf("looking for the queue %s of Belfry, whose jobs should go to Redis: %w", e.Queue, err)
	}
	if err := e.checkOwner(ctx); err != nil {
		return err
	}
	if err := e.checkCodec(ctx); err != nil {
		return err
	}
	return e.chooseFormat(ctx)
}
