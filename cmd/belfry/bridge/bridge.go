// Package bridge runs bridges between queues of Redisson in a Redis and the server of this process,
// with their flags and metrics.
package bridge

import (
	"context"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/server"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redisson"
)

// retryAfter is how long a server waits before it tries a bridge again that ended with an error.
const retryAfter = 10 * time.Second

// Settings are the flags of `serve` that have it bridge queues of Redisson.
type Settings struct {
	Redis    string
	access   RedisFlags
	replicas int
	Queues   []string // NAME, NAME=QUEUE, NAME=QUEUE;codec=CODEC as they stand on the command line
	// TokenFile has the token that the bridges carry; empty for none.
	TokenFile string
}

// Add adds the flags to a command.
func (s *Settings) Add(flags *pflag.FlagSet) {
	flags.StringVar(&s.Redis, flag.MirrorRedis, "",
		"bridge queues of Redisson in this Redis, redis://USER:PASSWORD@HOST:PORT/DB; see 'belfry mirror run'")
	s.access.Add(flags)
	flags.IntVar(&s.replicas, flag.MirrorReplicas, 0,
		"how many replicas of that Redis must have a job before it leaves Belfry; see 'belfry mirror run'")
	flags.StringArrayVar(&s.Queues, flag.MirrorQueue, nil,
		"a queue to bridge, `NAME` or NAME=QUEUE, also with ;codec=CODEC at its end; may be repeated")
	flags.StringVar(&s.TokenFile, flag.MirrorTokenFile, "",
		"a file with the token that bridges carry where calls need one; it must allow put,consume,admin on the bridged "+
			"queues")
}

// Bridges returns what is to be bridged.
func (s *Settings) Bridges() ([]mirror.BridgeOptions, error) {
	if s.Redis == "" && len(s.Queues) == 0 {
		if s.replicas != 0 || s.access != (RedisFlags{}) {
			return nil, cli.Usagef(
				"--redis-… and --mirror-replicas say how to reach the Redis of --mirror-redis, which is not given")
		}
		return nil, nil
	}
	if s.Redis == "" || len(s.Queues) == 0 {
		return nil, cli.Usagef("--mirror-redis and --mirror-queue go together: where, and which queues")
	}
	if s.replicas < 0 {
		return nil, cli.Usagef("--mirror-replicas: must be 0 or more, is %d", s.replicas)
	}
	r, err := s.access.Connect(s.Redis)
	if err != nil {
		return nil, cli.Usagef("--mirror-redis: %s", err)
	}
	defer r.Close() //nolint:errcheck // nothing was sent
	var all []mirror.BridgeOptions
	for _, text := range s.Queues {
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

// Start bridges queues through a server in this process until stop is called. One that fails
// is tried again.
func Start(ctx context.Context, s *Settings, through *server.Server, all []mirror.BridgeOptions,
	meters *Meters, log *slog.Logger) (stop func(), err error) {
	if len(all) == 0 {
		return func() {}, nil
	}
	r, err := s.access.Connect(s.Redis)
	if err != nil {
		return nil, err
	}
	options := []client.Option{client.WithTLS(through.ClientTLS())}
	if s.TokenFile != "" {
		options = append(options, client.WithTokenFile(s.TokenFile))
	}
	c, err := client.New(through.URL(), options...) //nolint:contextcheck // its life is its own, until Close
	if err != nil {
		return nil, err
	}
	meters.serve(all)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	for _, o := range all {
		log := log.With(slog.String("redis_queue", o.RedisQueue))
		warn := warnings(log)
		o.Notice = func(why error) { warn(why); meters.wait(o.RedisQueue, why) }
		o.Progress = func(n mirror.BridgeCounts) { meters.Update(o.RedisQueue, n) }
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
func keepBridging(ctx context.Context, queue string, meters *Meters, log *slog.Logger, bridge func() error) {
	for ctx.Err() == nil {
		meters.Update(queue, mirror.BridgeCounts{})
		err := bridge()
		if ctx.Err() != nil {
			return
		}
		meters.countEnd(queue, err)
		log.Error("mirror: ended, and begins again", slog.Duration("in", retryAfter), slog.Any("error", err))
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
		}
	}
}
