package mirrortrial

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/processtest"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

const (
	// waitMax bounds every wait for a condition: only what hangs takes that long, however busy the
	// machine is.
	waitMax = 5 * time.Minute
	// lookPause is the time between two looks at a condition.
	lookPause = 20 * time.Millisecond
)

var program processtest.Program

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // connections are cut on purpose
	code := m.Run()
	if err := program.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// stage is a Redis and a server, and the programs that use them.
type stage struct {
	t      *testing.T
	redis  *redistest.Server
	rdb    *redis.Client // of the processes of Redisson
	server *processtest.Server
	sdk    *client.Client
	ledger *ledger
	queues []*queue
}

// queue is a delayed queue of Redisson and the queue of the same name in Belfry.
type queue struct {
	name string
	app  *redissontest.Client
	// source is what the mirror calls it if it is none of Redisson, also are more queues in Belfry.
	source string
	also   []string
}

// key is the name of one of the queue's keys in Redis.
func (q *queue) key(prefix string) string {
	if q.source != "" {
		return prefix + ":" + q.source
	}
	return prefix + ":{" + q.name + "}"
}

// newStage starts both. The Redis syncs its file as told: "always", "everysec".
func newStage(t *testing.T, appendfsync string, queues int, more ...redistest.Option) *stage {
	t.Helper()
	s := &stage{
		t: t, redis: redistest.Start(t, append([]redistest.Option{redistest.WithAOF(appendfsync)}, more...)...),
		ledger: &ledger{},
	}
	s.rdb = redis.NewClient(&redis.Options{ // what fails may have been done, and is not sent again
		Addr: s.redis.Address(), ClientName: "redisson", MaxRetries: -1, DialerRetries: 1, PoolSize: 100,
		ReadTimeout:              time.Minute, // Redisson's own scripts may take seconds
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { s.rdb.Close() })
	s.server = program.New(t, filepath.Join(t.TempDir(), "data"), "--shards", "2", "--log-level", "warn")
	s.server.Start()
	var err error
	if s.sdk, err = client.New(s.server.URL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.sdk.Close() })
	for n := range queues {
		name := fmt.Sprintf("orders-%d", n)
		s.queues = append(s.queues, &queue{
			name: name, app: redissontest.New(s.rdb, name, redissontest.NewGeneration, time.Now),
		})
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server's log ends with:\n%s", processtest.Tail(s.server.Log(), 30))
		}
	})
	return s
}

// await repeats a question until the answer is yes. An error of the question is no answer.
func (s *stage) await(what string, yes func(context.Context) (bool, error)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitMax)
	defer cancel()
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for {
		is, err := yes(ctx)
		if err == nil && is {
			return
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("waited in vain for %s: %v", what, err)
		case <-tick.C:
		}
	}
}

// held is how many jobs Belfry has of a queue.
func (s *stage) held(ctx context.Context, q *queue) (int, error) {
	found, err := s.sdk.Admin().Queue(ctx, q.name)
	if err != nil {
		return 0, err
	}
	return found.Delayed + found.Ready + found.Reserved + found.Dead, nil
}

// sizes are how much each key of a queue has, those of Redisson first.
func (s *stage) sizes(ctx context.Context, q *queue) (map[string]int64, error) {
	var all []*redis.IntCmd
	names := []string{"timer", "list", "ready", "handover", "aside", "orphans", "returned", "delivered", "ready claimed"}
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		all = append(all, p.ZCard(ctx, q.key("redisson_delay_queue_timeout")), p.LLen(ctx, q.key("redisson_delay_queue")),
			p.LLen(ctx, q.name),
			p.ZCard(ctx, q.key("belfry_handover")), p.ZCard(ctx, q.key("belfry_aside")), p.LLen(ctx, q.key("belfry_orphans")),
			p.SCard(ctx, q.key("belfry_returned")), p.SCard(ctx, q.key("belfry_rung")),
			p.HLen(ctx, q.key("belfry_handover_ready")))
		return nil
	})
	found := map[string]int64{}
	for n, name := range names {
		found[name] = all[n].Val()
	}
	return found, err
}

// wantEmpty checks that Redis has nothing of the queues but what is named.
func (s *stage) wantEmpty(except ...string) {
	s.t.Helper()
	for _, q := range s.queues {
		sizes, err := s.sizes(s.t.Context(), q)
		if err != nil {
			s.t.Error(err)
		}
		for _, name := range except {
			delete(sizes, name)
		}
		for name, n := range sizes {
			if n != 0 {
				s.t.Errorf("%s: %d are left in %s", q.name, n, name)
			}
		}
	}
}
