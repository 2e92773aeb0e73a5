package mirror

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/pair"
)

// A link is the way to a delayed queue of Redisson and to the queue of Belfry that it belongs to.
type link struct {
	pair.Link
	keys keys
}

// newLink returns a link that has looked at neither side. It fills in what o does not say: the two
// sides, and the keys of the pair.
func newLink(r redis.UniversalClient, c *client.Client, o pair.Options) link {
	k := keysOf(o.RedisQueue)
	o.Redis, o.Belfry, o.StateKey, o.TrialKey = r, c, k.state, k.trial
	return link{pair.New(o), k}
}

// settleLeftovers makes Redis refuse the scripts of earlier holders. It cancels jobs that an export
// wrote back, or that a bridge put on the ready list, and that were not removed. Afterwards no job
// is in both.
func (l *link) settleLeftovers(ctx context.Context) error {
	if err := l.RefuseEarlier(ctx); err != nil {
		return err
	}
	for _, key := range []string{l.keys.returned, l.keys.delivered} {
		if err := l.settleTags(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// settleTags is settle for the tags of one key.
func (l *link) settleTags(ctx context.Context, key string) error {
	for {
		tags, err := l.Redis.SRandMemberN(ctx, key, returnJobs).Result()
		if err != nil || len(tags) == 0 {
			return err
		}
		left, gone := make([]string, 0, len(tags)), make([]any, 0, len(tags))
		var mu sync.Mutex
		err = pair.Each(ctx, tags, func(ctx context.Context, tag string) error {
			_, id := untag(tag)
			job, err := l.Belfry.Get(ctx, l.Queue, id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && tagOf(job) == tag:
				left = append(left, tag)
			case err == nil, pair.IsGone(err):
				gone = append(gone, tag)
			default:
				return fmt.Errorf("looking for job %s, which Redis has: %w", id, err)
			}
			return nil
		})
		if err == nil && len(gone) > 0 {
			_, _, err = l.Script(ctx, forgetScript, []string{key}, gone...)
		}
		if err == nil && len(left) > 0 {
			err = l.cancel(ctx, key, left)
		}
		if err != nil {
			return err
		}
	}
}

// cancel removes jobs from Belfry that Redis has, and forgets their tags, which a key keeps. One
// that is reserved is taken from its consumer.
func (l *link) cancel(ctx context.Context, key string, tags []string) error {
	if err := pair.Each(ctx, tags, func(ctx context.Context, tag string) error {
		_, id := untag(tag)
		if _, err := l.Belfry.ForceCancel(ctx, l.Queue, id); err != nil && !pair.IsGone(err) {
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
	_, _, err := l.Script(ctx, forgetScript, []string{key}, args...)
	return err
}
