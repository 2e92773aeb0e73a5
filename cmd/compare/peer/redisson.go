package peer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// This is Redisson's delayed queue, by its data in Redis: a set of due times, a list in the order
// of the offers, a list of ready jobs, and a channel on which a due time is published when it
// becomes the first. A ready job is popped and then gone: there are no leases and no acks.

func redissonPeers() []Queue {
	one := func(name, keeps, appendfsync string) Queue {
		return Queue{
			Name: name, Keeps: keeps, program: "redis-server", pack: "redis-server",
			Cannot: map[string]string{"pendingids": errNames.Error(),
				"queues": "1,000 queues would be as many subscriptions and timers in its client; not tried"},
			Start: func(ctx context.Context, s *Site) (*Running, error) { return startRedisson(ctx, s, appendfsync) },
		}
	}
	return []Queue{
		one("redisson-always", "the put; a job that is taken is lost with who took it", "always"),
		one("redisson-everysec", "nothing; synced every second; likewise", "everysec"),
	}
}

const (
	redissonReady   = "ready"
	redissonTimer   = "timer"
	redissonList    = "list"
	redissonChannel = "channel"
	// redissonAtOnce is how far away a due time may be for which no timer is set.
	redissonAtOnce = 10 * time.Millisecond
	// redissonRetry is when a transfer that failed is tried again.
	redissonRetry = 5 * time.Second
)

// redissonOffer has KEYS timer, list and channel, and ARGV the due time, a random number of 8 bytes
// and the body; redissonTransfer has KEYS ready, timer and list, and ARGV the present time and a
// limit.
var (
	redissonOffer = redis.NewScript(`
local member = struct.pack('Bc0Lc0', string.len(ARGV[2]), ARGV[2], string.len(ARGV[3]), ARGV[3])
redis.call('ZADD', KEYS[1], ARGV[1], member)
redis.call('RPUSH', KEYS[2], member)
if redis.call('ZRANGE', KEYS[1], 0, 0)[1] == member then
	redis.call('PUBLISH', KEYS[3], ARGV[1])
end
`)
	redissonTransfer = redis.NewScript(`
local due = redis.call('ZRANGEBYSCORE', KEYS[2], 0, ARGV[1], 'LIMIT', 0, ARGV[2])
for _, member in ipairs(due) do
	local random, body = struct.unpack('Bc0Lc0', member)
	redis.call('RPUSH', KEYS[1], body)
	redis.call('LREM', KEYS[3], 1, member)
end
if #due > 0 then
	redis.call('ZREM', KEYS[2], unpack(due))
end
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
return first[2]
`)
)

// startRedisson runs a server, and the one part of the client that moves what is due.
func startRedisson(ctx context.Context, s *Site, appendfsync string) (*Running, error) {
	server, err := startRedisServer(ctx, s, appendfsync, redissonOffer, redissonTransfer)
	if server == nil {
		return nil, err
	}
	// it is no longer in use
	r := &Running{Version: "Redis " + server.version, Processes: []*Process{server.process}, Close: func() {
		_ = server.all.Close()
	}}
	if err != nil {
		return r, err
	}
	moving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() { redissonMove(moving, server.all) })
	r.Close = func() {
		cancel()
		_ = server.all.Close() // it is no longer in use
		group.Wait()
	}
	r.Caller = func(_ context.Context, k Kind) (Caller, error) {
		if k == Shared {
			return &redissonCaller{client: server.all}, nil
		}
		return &redissonCaller{client: server.connect(1), own: true}, nil
	}
	return r, nil
}

// redissonMove moves what is due until ctx ends: at the due times that are published, and for as
// long as there is more. Redisson's timers tick every 100 ms at worst; this one is exact.
func redissonMove(ctx context.Context, client *redis.Client) {
	channel := client.Subscribe(ctx, redissonChannel)
	defer channel.Close() //nolint:errcheck // the subscription has ended
	messages := channel.ChannelWithSubscriptions(redis.WithChannelSize(1 << 16))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next := ""
		select {
		case <-ctx.Done():
			return
		case message, ok := <-messages:
			if !ok {
				return
			}
			if published, ok := message.(*redis.Message); ok {
				next = published.Payload
			}
		case <-timer.C:
		}
		timer.Stop()
		for {
			if wait, ok := redissonWait(next); ok && wait > redissonAtOnce {
				timer.Reset(wait)
				break
			}
			reply, err := redissonTransfer.Run(ctx, client, []string{redissonReady, redissonTimer, redissonList},
				time.Now().UnixMilli(), 100).Text()
			if errors.Is(err, redis.Nil) {
				break // nothing waits
			}
			if err != nil {
				timer.Reset(redissonRetry)
				break
			}
			next = reply
		}
	}
}

// redissonWait returns how long it is until a due time as it is published; not ok means that there
// is none.
func redissonWait(due string) (time.Duration, bool) {
	ms, err := strconv.ParseInt(due, 10, 64)
	return time.Until(time.UnixMilli(ms)), err == nil
}

// redissonCaller is a connection, or a client that all callers share.
type redissonCaller struct {
	client *redis.Client
	own    bool
}

// Put implements Caller.
func (c *redissonCaller) Put(ctx context.Context, all Batch) error {
	if all.IDs != nil {
		return errNames
	}
	keys, due := []string{redissonTimer, redissonList, redissonChannel}, time.Now().Add(all.Delay).UnixMilli()
	if len(all.Bodies) == 1 {
		return notNil(redissonOffer.Run(ctx, c.client, keys, due, redissonRandom(), all.Bodies[0]).Err())
	}
	commands, err := c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, body := range all.Bodies {
			redissonOffer.EvalSha(ctx, p, keys, due, redissonRandom(), body)
		}
		return nil
	})
	if err = notNil(err); err != nil {
		return err
	}
	for _, command := range commands {
		if err := notNil(command.Err()); err != nil {
			return err
		}
	}
	return nil
}

// notNil is an error that is more than an empty answer.
func notNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

func redissonRandom() []byte {
	return strconv.AppendUint(nil, 10_000_000+rand.Uint64N(90_000_000), 10) //nolint:gosec // no secret; 8 bytes
}

// Take pops what is ready. Redis knows how to wait for one.
func (c *redissonCaller) Take(ctx context.Context, what Wanted, seen func([]byte)) (int, error) {
	taken := 0
	if what.Wait > 0 {
		pair, err := c.client.BLPop(ctx, what.Wait, redissonReady).Result()
		if errors.Is(err, redis.Nil) {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("waiting for a job: %w", err)
		}
		seen([]byte(pair[1]))
		taken++
	}
	if taken == what.Most {
		return taken, nil
	}
	more, err := c.client.LPopCount(ctx, redissonReady, what.Most-taken).Result()
	if err != nil {
		return taken, notNil(err)
	}
	for _, body := range more {
		seen([]byte(body))
	}
	return taken + len(more), nil
}

// Close implements Caller.
func (c *redissonCaller) Close() error {
	if c.own {
		return c.client.Close()
	}
	return nil
}
