package main

import (
	"context"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/server"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redisson"
)

// mirrorRetry is how long a server waits before it tries a bridge again that ended with an error.
const mirrorRetry = 10 * time.Second

// mirrorSettings are the flags of `serve` that have it bridge queues of Redisson.
type mirrorSettings struct {
	redis    string
	access   accessFlags
	replicas int
	queues   []string // NAME, NAME=QUEUE, NAME=QUEUE;codec=CODEC as they stand on the command line
	// tokenFile has the token that the bridges carry; empty for none.
	tokenFile string
}

// bridges returns what is to be bridged.
func (s *mirrorSettings) bridges() ([]mirror.BridgeOptions, error) {
	if s.redis == "" && len(s.queues) == 0 {
		if s.replicas != 0 || s.access != (accessFlags{}) {
			return nil, cli.Usagef(
				"--redis-… and --mirror-replicas say how to reach the Redis of --mirror-redis, which is not given")
		}
		return nil, nil
	}
	if s.redis == "" || len(s.queues) == 0 {
		return nil, cli.Usagef("--mirror-redis and --mirror-queue go together: where, and which queues")
	}
	if s.replicas < 0 {
		return nil, cli.Usagef("--mirror-replicas: must be 0 or more, is %d", s.replicas)
	}
	r, err := s.access.connect(s.redis)
	if err != nil {
		return nil, cli.Usagef("--mirror-redis: %s", err)
	}
	defer r.Close() //nolint:errcheck // nothing was sent
	var all []mirror.BridgeOptions
	for _, text := range s.queues {
		name, codec, named := cutLast(text, ";codec=")
		o := mirror.BridgeOptions{RedisQueue: name, SetAside: true, Replicas: s.replicas}
		if queue, other, ok := strings.Cut(name, "="); ok {
			o.RedisQueue, o.Queue = queue, other
		}
		if named {
			if o.Codec, err = redisson.ParseCodec(codec); err != nil {
				return nil, cli.Usagef("--mirror-queue %s: %s", text, err)
			}
		}
		if o.RedisQueue == "" {
			return nil, cli.Usagef("--mirror-queue: want NAME, NAME=QUEUE or NAME=QUEUE;codec=CODEC, have %q", text)
		}
		if o.Queue == "" && !queueName(o.RedisQueue) {
			return nil, cli.Usagef(
				"--mirror-queue %s: no queue of Belfry can have that name; write '%s=QUEUE' with one that can: up to 256 bytes "+
					"of A-Z a-z 0-9 . _ : -, and one / at most", text, o.RedisQueue)
		}
		if o.Queue != "" && !queueName(o.Queue) {
			return nil, cli.Usagef(
				"--mirror-queue %s: no queue of Belfry can have the name %q; it has up to 256 bytes of A-Z a-z 0-9 . _ : -, and "+
					"one / at most", text, o.Queue)
		}
		all = append(all, o)
	}
	return all, nil
}

// queueName reports whether a queue of Belfry can have a name; the server decides, this only has it
// said before it is up.
func queueName(name string) bool {
	const bytesMax = 256
	parts := strings.Split(name, "/")
	return len(name) <= bytesMax && len(parts) <= 2 && !slices.ContainsFunc(parts, func(part string) bool {
		return part == "." || part == ".." || !queuePart.MatchString(part)
	})
}

var queuePart = regexp.MustCompile(`^[A-Za-z0-9._:-]+$`)

// cutLast cuts a text around the last place of a separator.
func cutLast(text, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(text, sep); i >= 0 {
		return text[:i], text[i+len(sep):], true
	}
	return text, "", false
}

// warnings returns what logs why a bridge waits, again only when that has changed.
func warnings(log *slog.Logger) func(error) {
	var mu sync.Mutex
	var last string
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if why := err.Error(); why != last {
			last = why
			log.Warn("mirror: waiting", slog.String("why", why))
		}
	}
}

// startBridges bridges queues through a server in this process until stop is called. One that fails
// is tried again.
func startBridges(ctx context.Context, s *mirrorSettings, through *server.Server, all []mirror.BridgeOptions,
	meters *mirrorMeters, log *slog.Logger) (stop func(), err error) {
	if len(all) == 0 {
		return func() {}, nil
	}
	r, err := s.access.connect(s.redis)
	if err != nil {
		return nil, err
	}
	options := []client.Option{client.WithTLS(through.ClientTLS())}
	if s.tokenFile != "" {
		options = append(options, client.WithTokenFile(s.tokenFile))
	}
	c, err := client.New(through.URL(), options...) //nolint:contextcheck // its life is its own, until Close
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	for _, o := range all {
		log := log.With(slog.String("redis_queue", o.RedisQueue))
		o.Notice = warnings(log)
		o.Progress = func(n mirror.BridgeCounts) { meters.update(o.RedisQueue, n) }
		group.Go(func() {
			keepBridging(ctx, o.RedisQueue, meters, log, func() error { return mirror.Bridge(ctx, r, c, o) })
		})
	}
	return func() {
		cancel()
		group.Wait()
		c.Close() //nolint:errcheck,gosec // nothing is under way
		r.Close() //nolint:errcheck,gosec // likewise
	}, nil
}

// keepBridging bridges a queue until ctx ends, again after each error. One that begins again may
// have to wait now, so it does not show what was left in Redis, and why it waited, when it ended.
func keepBridging(ctx context.Context, queue string, meters *mirrorMeters, log *slog.Logger, bridge func() error) {
	for ctx.Err() == nil {
		meters.update(queue, mirror.BridgeCounts{})
		err := bridge()
		if ctx.Err() != nil {
			return
		}
		meters.end(queue)
		log.Error("mirror: ended, and begins again", slog.Duration("in", mirrorRetry), slog.Any("error", err))
		select {
		case <-time.After(mirrorRetry):
		case <-ctx.Done():
		}
	}
}
