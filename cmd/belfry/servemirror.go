package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redisson"
)

// mirrorRetry is how long a server waits before it tries a bridge again that ended with an error.
const mirrorRetry = 10 * time.Second

// mirrorSettings are the flags of `serve` that have it bridge queues of Redisson.
type mirrorSettings struct {
	redis  string
	queues []string // NAME, NAME=QUEUE, NAME=QUEUE;codec=CODEC as they stand on the command line
}

// bridges returns what is to be bridged.
func (s *mirrorSettings) bridges() ([]mirror.BridgeOptions, error) {
	if s.redis == "" && len(s.queues) == 0 {
		return nil, nil
	}
	if s.redis == "" || len(s.queues) == 0 {
		return nil, usagef("--mirror-redis and --mirror-queue go together: where, and which queues")
	}
	r, err := mirror.Connect(s.redis)
	if err != nil {
		return nil, usagef("--mirror-redis: %s", err)
	}
	defer r.Close() //nolint:errcheck // nothing was sent
	var all []mirror.BridgeOptions
	for _, text := range s.queues {
		name, codec, named := cutLast(text, ";codec=")
		o := mirror.BridgeOptions{RedisQueue: name, SetAside: true}
		if queue, other, ok := strings.Cut(name, "="); ok {
			o.RedisQueue, o.Queue = queue, other
		}
		if named {
			if o.Codec, err = redisson.ParseCodec(codec); err != nil {
				return nil, usagef("--mirror-queue %s: %s", text, err)
			}
		}
		if o.RedisQueue == "" {
			return nil, usagef("--mirror-queue: want NAME, NAME=QUEUE or NAME=QUEUE;codec=CODEC, have %q", text)
		}
		all = append(all, o)
	}
	return all, nil
}

// cutLast cuts a text around the last place of a separator.
func cutLast(text, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(text, sep); i >= 0 {
		return text[:i], text[i+len(sep):], true
	}
	return text, "", false
}

// startBridges bridges queues through the server at an address until stop is called. One that fails is tried again.
func startBridges(ctx context.Context, redisURL, address string, all []mirror.BridgeOptions, meters *mirrorMeters, log *slog.Logger) (stop func(), err error) {
	if len(all) == 0 {
		return func() {}, nil
	}
	r, err := mirror.Connect(redisURL)
	if err != nil {
		return nil, err
	}
	c, err := client.New(address) //nolint:contextcheck // its life is its own, until Close
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	for _, o := range all {
		log := log.With(slog.String("redis_queue", o.RedisQueue))
		o.Notice = func(err error) { log.Info("mirror: waiting", slog.String("why", err.Error())) }
		o.Progress = func(n mirror.BridgeCounts) { meters.update(o.RedisQueue, n) }
		meters.update(o.RedisQueue, mirror.BridgeCounts{})
		group.Go(func() {
			for ctx.Err() == nil {
				err := mirror.Bridge(ctx, r, c, o)
				if ctx.Err() != nil {
					return
				}
				log.Error("mirror: ended, and begins again", slog.Duration("in", mirrorRetry), slog.Any("error", err))
				select {
				case <-time.After(mirrorRetry):
				case <-ctx.Done():
				}
			}
		})
	}
	return func() {
		cancel()
		group.Wait()
		c.Close() //nolint:errcheck,gosec // nothing is under way
		r.Close() //nolint:errcheck,gosec // likewise
	}, nil
}
