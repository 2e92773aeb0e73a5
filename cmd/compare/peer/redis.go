package peer

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

func redisPeers() []Queue {
	one := func(name, keeps, appendfsync string) Queue {
		return Queue{Name: name, Keeps: keeps, program: "redis-server", pack: "redis-server", Cannot: redisCannot(),
			Start: func(ctx context.Context, s *Site) (*Running, error) {
				return startRedis(ctx, s, appendfsync, false)
			}}
	}
	auto := one("redis-always-auto", "the put; a client that joins calls by itself", "always")
	auto.Only = []string{"shared64", "shared256", "shared512"}
	auto.Start = func(ctx context.Context, s *Site) (*Running, error) { return startRedis(ctx, s, "always", true) }
	return []Queue{
		one("redis-always", "the put", "always"),
		one("redis-everysec", "nothing; synced every second", "everysec"),
		auto,
	}
}

// redisCannot says what is left out.
func redisCannot() map[string]string {
	return map[string]string{"parked": "a caller cannot wait: 10,000 callers that poll every 5 ms would use all its time"}
}

// redisServer is a server with an append-only file.
type redisServer struct {
	process *Process
	version string
	connect func(connections int) *redis.Client
	// all is a client that callers share.
	all *redis.Client
}

// startRedisServer runs a server. What it returns with an error is to be killed.
func startRedisServer(ctx context.Context, s *Site, appendfsync string,
	scripts ...*redis.Script) (*redisServer, error) {
	address, err := s.Addresses.Free()
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	p, err := start(s.NewDir("redis"), "redis-server", "--bind", host, "--port", port, "--appendonly", "yes",
		"--appendfsync", appendfsync, "--save", "", "--maxclients", fmt.Sprint(redisClientsMax))
	if err != nil {
		return nil, err
	}
	connect := func(connections int) *redis.Client {
		return redis.NewClient(&redis.Options{
			Addr: address, PoolSize: connections, MinIdleConns: connections, MaxRetries: -1,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
	}
	server := &redisServer{process: p, version: "?", connect: connect, all: connect(sharedMax)}
	if err := p.await(ctx, func(ctx context.Context) error { return server.all.Ping(ctx).Err() }); err != nil {
		return server, err
	}
	if info, err := server.all.InfoMap(ctx, "server").Result(); err == nil {
		server.version = info["Server"]["redis_version"]
	}
	for _, script := range scripts {
		if err := script.Load(ctx, server.all).Err(); err != nil {
			return server, fmt.Errorf("loading a script: %w", err)
		}
	}
	return server, nil
}

// startRedis runs the queue in sorted sets; with auto the client that callers share makes batches
// of their calls.
func startRedis(ctx context.Context, s *Site, appendfsync string, auto bool) (*Running, error) {
	server, err := startRedisServer(ctx, s, appendfsync, redisPut, redisPutNamed, redisTake, redisAck)
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
	var joined redis.Scripter = server.all
	if auto {
		pipeliner, err := server.all.AutoPipeline()
		if err != nil {
			return r, fmt.Errorf("having calls joined: %w", err)
		}
		joined = pipeliner
		r.Version += ", go-redis with AutoPipeline"
	}
	r.Caller = func(_ context.Context, k Kind) (Caller, error) {
		if k == Shared {
			return &redisCaller{client: server.all, scripter: joined}, nil
		}
		one := server.connect(1)
		return &redisCaller{client: one, scripter: one, own: true}, nil
	}
	return r, nil
}

const (
	// sharedMax is how many connections a shared client has at most.
	sharedMax = 512
	// redisClientsMax is above the 10,000 of the default, as 10,000 callers wait.
	redisClientsMax = 11_000
)

// This is a delay queue in sorted sets, with leases. A hash has the jobs by number, one set has
// waiting jobs by due time, and another has leased jobs by the end of their lease. KEYS[1..4] are
// the hash, the two sets and the counter.
//
// redisPut adds a job with the body ARGV[1] that is due at ARGV[2]; redisPutNamed does so with the
// id ARGV[3]. redisTake leases up to ARGV[3] jobs that are due at ARGV[1], until ARGV[2], and
// returns number and body of each. redisAck ends the jobs with the numbers in ARGV.
var (
	redisPut = redis.NewScript(`
local id = redis.call('INCR', KEYS[4])
redis.call('HSET', KEYS[1], id, ARGV[1])
redis.call('ZADD', KEYS[2], ARGV[2], id)
return id
`)
	redisPutNamed = redis.NewScript(`
if redis.call('HSETNX', KEYS[1], ARGV[3], ARGV[1]) == 1 then
	redis.call('ZADD', KEYS[2], ARGV[2], ARGV[3])
end
return ARGV[3]
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
	client   *redis.Client
	scripter redis.Scripter // single calls
	own      bool
}

const (
	redisTTR = time.Minute
	// redisPoll is how often a waiting caller looks: there is nothing to wait on.
	redisPoll = 5 * time.Millisecond
)

func redisKeys(queue int) []string {
	name := QueueName(queue)
	return []string{name + ":jobs", name + ":delayed", name + ":leased", name + ":number"}
}

// Put implements Caller.
func (c *redisCaller) Put(ctx context.Context, all Batch) error {
	due, keys := time.Now().Add(all.Delay).UnixMilli(), redisKeys(all.Queue)
	if len(all.Bodies) == 1 && all.IDs == nil {
		// a server that was started again has forgotten the script
		return redisPut.Run(ctx, c.scripter, keys, all.Bodies[0], due).Err()
	}
	_, err := c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, body := range all.Bodies {
			if all.IDs != nil {
				redisPutNamed.EvalSha(ctx, p, keys, body, due, all.IDs[n])
				continue
			}
			redisPut.EvalSha(ctx, p, keys, body, due)
		}
		return nil
	})
	return err
}

// Take implements Caller.
func (c *redisCaller) Take(ctx context.Context, what Wanted, seen func([]byte)) (int, error) {
	for until := time.Now().Add(what.Wait); ; {
		now := time.Now()
		values, err := redisTake.EvalSha(ctx, c.scripter, redisKeys(what.Queue), now.UnixMilli(),
			now.Add(redisTTR).UnixMilli(), what.Most).Slice()
		if err != nil {
			return 0, err
		}
		if len(values) > 0 {
			return c.finish(ctx, what.Queue, values, seen)
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
func (c *redisCaller) finish(ctx context.Context, queue int, values []any, seen func([]byte)) (int, error) {
	ids := make([]any, 0, len(values)/2)
	for n := 0; n+1 < len(values); n += 2 {
		body, ok := values[n+1].(string)
		if !ok {
			return 0, fmt.Errorf("a body came as %T", values[n+1])
		}
		seen([]byte(body))
		ids = append(ids, values[n])
	}
	done, err := redisAck.EvalSha(ctx, c.scripter, redisKeys(queue), ids...).Int()
	if err == nil && done != len(ids) {
		err = fmt.Errorf("of %d acks %d found their job", len(ids), done)
	}
	return done, err
}

// Close implements Caller.
func (c *redisCaller) Close() error {
	if c.own {
		return c.client.Close()
	}
	return nil
}
