package redisson

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// answerMax is how long Redis may take to answer.
const answerMax = 10 * time.Second

// Side is what uses the Redis of a run. Its methods may be called from any goroutine.
type Side struct {
	*Redis
	Commands
	apps map[string]*redissontest.Client
	// taking is held for reading by code that pops, because a payload that is popped while Redis is
	// killed is lost without a trace. It is held for writing by code that kills Redis.
	taking sync.RWMutex
}

// NewSide returns the users of some queues, which have the same names in Redis and in Belfry.
func NewSide(r *Redis, c Commands, queues []string) *Side {
	s := &Side{Redis: r, Commands: c, apps: map[string]*redissontest.Client{}}
	for _, q := range queues {
		s.apps[q] = redissontest.New(r.client, q, redissontest.NewGeneration, time.Now)
	}
	return s
}

// bounded returns a context that outlives ctx: a request that was sent to Redis is awaited, because
// its outcome would be unknown otherwise.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), answerMax)
}

// Offer has a process of Redisson offer a payload that is due at a time, to the millisecond. After
// an error it may be there.
func (s *Side) Offer(ctx context.Context, queue string, payload []byte, due time.Time) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return s.apps[queue].Offer(ctx, payload, due)
}

// Take has a consumer of Redisson wait for a second for the ready list, and take all that is there
// then.
func (s *Side) Take(ctx context.Context, queue string) ([][]byte, error) {
	s.taking.RLock()
	defer s.taking.RUnlock()
	ctx, cancel := bounded(ctx)
	defer cancel()
	first, ok, err := s.apps[queue].Take(ctx, time.Second)
	if err != nil || !ok {
		return nil, err
	}
	rest, err := s.apps[queue].TakeAll(ctx)
	return append([][]byte{first}, rest...), err
}

// Restart kills Redis in the midst of what all do with it but take, and starts it again.
func (s *Side) Restart(ctx context.Context) error {
	s.taking.Lock()
	defer s.taking.Unlock()
	return s.Redis.Restart(context.WithoutCancel(ctx)) // also when the load ends
}

// Transfer has a process of Redisson put what is due on the ready lists, until ctx ends.
func (s *Side) Transfer(ctx context.Context) {
	var running sync.WaitGroup
	for _, app := range s.apps {
		running.Go(func() { app.Run(ctx) })
	}
	running.Wait()
}

// Left says which entries and payloads Redis has left of the queues, in Redisson's keys and the
// mirror's; empty if it has none. That a job was put on the ready list is remembered for longer.
func (s *Side) Left(ctx context.Context) (string, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var left []string
	for _, queue := range slices.Sorted(maps.Keys(s.apps)) {
		in := func(prefix string) string { return prefix + ":{" + queue + "}" }
		var sizes map[string]*redis.IntCmd
		_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			timer, list, handover, aside := in("redisson_delay_queue_timeout"), in("redisson_delay_queue"),
				in("belfry_handover"), in("belfry_aside")
			sizes = map[string]*redis.IntCmd{
				timer: p.ZCard(ctx, timer), list: p.LLen(ctx, list), queue: p.LLen(ctx, queue), handover: p.ZCard(ctx, handover),
				aside: p.ZCard(ctx, aside),
			}
			return nil
		})
		if err != nil {
			return "", fmt.Errorf("asking Redis what is left: %w", err)
		}
		for _, key := range slices.Sorted(maps.Keys(sizes)) {
			if n := sizes[key].Val(); n > 0 {
				left = append(left, fmt.Sprintf("%d in %s", n, key))
			}
		}
	}
	return strings.Join(left, ", "), nil
}
