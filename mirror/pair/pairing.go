package pair

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/belfrydb/belfry/client"
	"github.com/redis/go-redis/v9"
)

// ErrNoQueue says that Redis has nothing of a queue.
var ErrNoQueue = errors.New("this database of Redis has no delayed queue")

// Identify asks Belfry for its cluster, and returns an error if no queue of it can have the queue's
// name.
func (l *Link) Identify(ctx context.Context) error {
	cluster, err := l.Belfry.Admin().Cluster(ctx)
	if err != nil {
		return fmt.Errorf("asking Belfry which cluster it is: %w", err)
	}
	l.cluster = cluster.ID
	if _, err = l.Belfry.Admin().Queue(ctx, l.Queue); !utf8.ValidString(l.Queue) {
		err = client.Reason("INVALID") // it could not even be sent
	}
	switch {
	case errors.Is(err, client.Reason("INVALID")), errors.Is(err, client.Reason("TOO_LARGE")):
		return fmt.Errorf("no queue of Belfry can have the name %q; name another with --belfry-queue: %w", l.Queue, err)
	case err != nil && !IsGone(err):
		return fmt.Errorf("looking for the queue %s of Belfry: %w", l.Queue, err)
	}
	return nil
}

// Writes tries the commands that cannot be tried without a change, on the trial key, and removes
// it.
func (l *Link) Writes(ctx context.Context) error {
	key := l.TrialKey
	if err := l.Redis.Unlink(ctx, key).Err(); err != nil { // else nothing could be removed again
		return err
	}
	_, err := l.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, key, "x", "x")
		p.HIncrBy(ctx, key, "n", 1)
		p.HDel(ctx, key, "x", "n")
		p.SAdd(ctx, key, "x")
		p.SRem(ctx, key, "x")
		p.RPush(ctx, key, "x")
		p.LTrim(ctx, key, 1, 0)
		p.ZAdd(ctx, key, redis.Z{Member: "x"})
		p.Unlink(ctx, key)
		return nil
	})
	return err
}

// CheckPair returns an error if the Redis queue is mirrored to another queue or cluster of Belfry.
func (l *Link) CheckPair(ctx context.Context) error {
	owner, err := l.Redis.HMGet(ctx, l.StateKey, "cluster", "queue").Result()
	if err != nil {
		return Explain(err)
	}
	if id, ok := owner[0].(string); ok && (id != l.cluster || owner[1] != l.Queue) {
		return otherOwner(id, fmt.Sprint(owner[1]))
	}
	return nil
}

// Finalized reports whether there is nothing to end: neither Redis nor a queue of Belfry has a note
// that something is under way. Both are asked, because Redis may have lost its note.
func (l *Link) Finalized(ctx context.Context, queues ...string) (bool, error) {
	owner, err := l.Redis.HMGet(ctx, l.StateKey, "cluster").Result()
	if err != nil {
		return false, Explain(err)
	}
	if owner[0] != nil {
		return false, nil
	}
	marked, err := l.markedDedup(ctx, queues...)
	return !marked, err
}

// Began returns [ErrNoQueue] if no process ever worked on this pair: then a name is wrong.
func (l *Link) Began(ctx context.Context) error {
	n, err := l.Redis.Exists(ctx, l.StateKey).Result()
	if err != nil || n > 0 {
		return err
	}
	if _, err = l.Belfry.Get(ctx, l.control, holdID); IsGone(err) {
		return fmt.Errorf("%w %q that was ever brought to the queue %s of Belfry; 'belfry mirror inspect' shows those "+
			"that there are", ErrNoQueue, l.RedisQueue, l.Queue)
	}
	if err != nil {
		return fmt.Errorf("looking whether the queue was ever mirrored: %w", err)
	}
	return nil
}
