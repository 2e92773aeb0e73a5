package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

func redisPeers() []peer {
	one := func(name, keeps, appendfsync string) peer {
		return peer{name: name, keeps: keeps, program: "redis-server", pack: "redis-server", delays: true, start: func(ctx context.Context, s *stage) (*running, error) {
			return startRedis(ctx, s, appendfsync)
		}}
	}
	return []peer{
		one("redis-always", "the put", "always"),
		one("redis-everysec", "nothing; synced every second", "everysec"),
	}
}

// startRedis runs a server with an append-only file.
func startRedis(ctx context.Context, s *stage, appendfsync string) (*running, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	p, err := start(s.newDir("redis"), "redis-server", "--bind", host, "--port", port, "--appendonly", "yes", "--appendfsync", appendfsync, "--save", "")
	if err != nil {
		return nil, err
	}
	connect := func(connections int) *redis.Client {
		return redis.NewClient(&redis.Options{
			Addr: address, PoolSize: connections, MinIdleConns: connections, MaxRetries: -1, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
	}
	all := connect(sharedMax)
	if err := p.await(ctx, func(ctx context.Context) error { return all.Ping(ctx).Err() }); err != nil {
		return &running{processes: []*process{p}}, err
	}
	version := "?"
	if info, err := all.InfoMap(ctx, "server").Result(); err == nil {
		version = info["Server"]["redis_version"]
	}
	for _, script := range []*redis.Script{redisPut, redisTake, redisAck} {
		if err := script.Load(ctx, all).Err(); err != nil {
			return &running{processes: []*process{p}}, fmt.Errorf("loading a script: %w", err)
		}
	}
	return &running{
		version: "Redis " + version, processes: []*process{p},
		caller: func(_ context.Context, k kind) (caller, error) {
			if k == shared {
				return &redisCaller{client: all}, nil
			}
			return &redisCaller{client: connect(1), own: true}, nil
		},
		close: func() { _ = all.Close() }, // nobody is left to use it
	}, nil
}

// sharedMax is how many connections a shared client has at most.
const sharedMax = 512

// A delay queue in sorted sets, with leases: jobs by number in a hash, waiting jobs by due time in one set, jobs in work by the end of their lease in another. KEYS[1..4] are the hash, the two sets and the counter.
//
// redisPut adds a job of the body ARGV[1] that is due at ARGV[2]; redisTake leases up to ARGV[3] jobs that are due at ARGV[1] until ARGV[2], and returns number and body of each; redisAck ends those with the numbers in ARGV.
var (
	redisPut = redis.NewScript(`
local id = redis.call('INCR', KEYS[4])
redis.call('HSET', KEYS[1], id, ARGV[1])
redis.call('ZADD', KEYS[2], ARGV[2], id)
return id
`)
	redisTake = redis.NewScript(`
local reply = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])) do
	redis.call('ZREM', KEYS[2], id)
	redis.call('ZADD', KEYS[3], ARGV[2], id)
	reply[#reply + 1] = id
	reply[#reply + 1] = redis.call('HGET', KEYS[1], id)
end
return reply
`)
	redisAck = redis.NewScript(`
local done = 0
for _, id in ipairs(ARGV) do
	done = done + redis.call('ZREM', KEYS[3], id)
	redis.call('HDEL', KEYS[1], id)
end
return done
`)
)

// redisCaller is a connection, or a client that all callers share.
type redisCaller struct {
	client *redis.Client
	own    bool
}

const (
	redisTTR = time.Minute
	// redisPoll is how often a waiting caller looks: there is nothing to wait on.
	redisPoll = 5 * time.Millisecond
)

func redisKeys() []string { return []string{"jobs", "delayed", "leased", "number"} }

func (c *redisCaller) put(ctx context.Context, bodies [][]byte, delay time.Duration) error {
	due := time.Now().Add(delay).UnixMilli()
	if len(bodies) == 1 {
		return redisPut.Run(ctx, c.client, redisKeys(), bodies[0], due).Err() // a server that was started again has forgotten the script
	}
	_, err := c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, body := range bodies {
			redisPut.EvalSha(ctx, p, redisKeys(), body, due)
		}
		return nil
	})
	return err
}

func (c *redisCaller) take(ctx context.Context, most int, wait time.Duration, seen func([]byte)) (int, error) {
	for until := time.Now().Add(wait); ; {
		now := time.Now()
		values, err := redisTake.EvalSha(ctx, c.client, redisKeys(), now.UnixMilli(), now.Add(redisTTR).UnixMilli(), most).Slice()
		if err != nil {
			return 0, err
		}
		if len(values) > 0 {
			return c.finish(ctx, values, seen)
		}
		if !now.Before(until) {
			return 0, nil
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(redisPoll):
		}
	}
}

// finish ends jobs whose numbers and bodies came.
func (c *redisCaller) finish(ctx context.Context, values []any, seen func([]byte)) (int, error) {
	ids := make([]any, 0, len(values)/2)
	for n := 0; n+1 < len(values); n += 2 {
		body, ok := values[n+1].(string)
		if !ok {
			return 0, fmt.Errorf("a body came as %T", values[n+1])
		}
		seen([]byte(body))
		ids = append(ids, values[n])
	}
	done, err := redisAck.EvalSha(ctx, c.client, redisKeys(), ids...).Int()
	if err == nil && done != len(ids) {
		err = fmt.Errorf("of %d acks %d found their job", len(ids), done)
	}
	return done, err
}

func (c *redisCaller) close() error {
	if c.own {
		return c.client.Close()
	}
	return nil
}
