package mirrortrial

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/sourcetest"
)

const (
	// sourceTTR is the lease of consumers at the source, in whole seconds as those servers have it.
	sourceTTR   = 2 * time.Second
	sourceTries = 3
	pumpPause   = 100 * time.Millisecond
	// publishPause is between two jobs of a producer: a server of ouqiang/delay-queue takes several
	// commands to move each.
	publishPause = 10 * time.Millisecond
	// stoppedKey is written when no server of the source runs any more, after which an import may take
	// what consumers held.
	stoppedKey = "trial:stopped"
)

// origin is a live server of a source, as one queue of it.
type origin interface {
	publish(ctx context.Context, at time.Time, n int, payload string) error
	pump(ctx context.Context, at time.Time) error
	consume(ctx context.Context) (id string, err error)
	finish(ctx context.Context, id string) error
}

type lmstfyOrigin struct{ sourcetest.Lmstfy }

func (o *lmstfyOrigin) publish(ctx context.Context, at time.Time, _ int, payload string) error {
	delay, ttl := time.Duration(rand.IntN(4))*time.Second, time.Duration(rand.IntN(2))*time.Hour
	_, err := o.Publish(ctx, at, payload, delay, ttl, sourceTries)
	return err
}

func (o *lmstfyOrigin) pump(ctx context.Context, at time.Time) error {
	_, err := o.Pump(ctx, at)
	return err
}

func (o *lmstfyOrigin) consume(ctx context.Context) (string, error) {
	return o.Consume(ctx, time.Now, sourceTTR)
}

func (o *lmstfyOrigin) finish(ctx context.Context, id string) error {
	_, err := o.Ack(ctx, id)
	return err
}

type youzanOrigin struct {
	*sourcetest.Youzan // of all topics
	topic              string
}

// youzanIDs begin the ids of jobs; the number of the payload follows.
const youzanIDs = "job-"

func (o *youzanOrigin) publish(ctx context.Context, at time.Time, n int, payload string) error {
	due := at.Add(time.Duration(rand.IntN(6)) * time.Second)
	return o.Push(ctx, o.topic, fmt.Sprint(youzanIDs, n), due, int64(sourceTTR/time.Second), payload)
}

func (o *youzanOrigin) pump(ctx context.Context, at time.Time) error { return o.Tick(ctx, at) }

func (o *youzanOrigin) consume(ctx context.Context) (string, error) {
	id, _, err := o.Pop(ctx, o.topic, time.Now)
	return id, err
}

func (o *youzanOrigin) finish(ctx context.Context, id string) error {
	_, err := o.Finish(ctx, id)
	return err
}

// TestKillSource kills imports from lmstfy and from ouqiang/delay-queue while a server of theirs
// takes jobs, hands them out, lets leases lapse and ends jobs, and Redis is restarted, frozen and
// cut off. In the end a stopped server's jobs are brought over as well, and every job was ended by
// one side only, but for what mirror/README.md excepts.
func TestKillSource(t *testing.T) {
	t.Parallel()
	t.Run("lmstfy", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, "always", killQueues, redistest.WithWrites())
		var origins []origin
		for n, q := range s.queues {
			o := &lmstfyOrigin{sourcetest.Lmstfy{Redis: s.rdb, Namespace: "shop", Queue: q.name}}
			q.name = "shop/" + q.name
			q.source, q.also = "lmstfy:"+q.name, []string{q.name + ".dead"}
			o.Serial.Store(uint64(n) << 24)
			origins = append(origins, o)
		}
		s.killSource(t, origins, func() []string {
			return []string{"--dead", []string{"leave", "queue", "respawn"}[rand.IntN(3)]}
		}, &lmstfyPast{stage: s})
	})
	t.Run("youzan", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, "always", killQueues, redistest.WithWrites())
		server := &sourcetest.Youzan{Redis: s.rdb}
		var origins []origin
		for _, q := range s.queues {
			q.source = "youzan:" + q.name
			origins = append(origins, &youzanOrigin{server, q.name})
		}
		s.killSource(t, origins, func() []string { return nil }, &youzanPast{stage: s})
	})
}

// killSource is the trial of one source.
func (s *stage) killSource(t *testing.T, origins []origin, options func() []string,
	judge interface{ replay(commands [][]string) }) {
	for _, q := range s.queues {
		for _, name := range append([]string{q.name}, q.also...) {
			if _, err := s.sdk.Admin().CreateQueue(t.Context(), name, 1, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	from, _, _ := strings.Cut(s.queues[0].source, ":")
	k := &killing{stage: s, mark: "belfry_handover", args: func(q *queue) []string {
		args := s.mirrorArgs(q, "import", append(options(), "--from", from, "--share", "1")...)
		if rand.IntN(4) > 0 {
			args = append(args, "--follow")
		}
		return args
	}}
	keeping, consuming := s.keepTime(), s.consume()
	publishing, serving := s.publish(origins), s.serve(origins)
	k.run(*kills)
	publishing.end()
	serving.end()
	s.await("Redis to be back after the last fault", func(ctx context.Context) (bool, error) {
		return true, s.rdb.Set(ctx, stoppedKey, 1, 0).Err()
	})
	for _, q := range s.queues {
		args := s.mirrorArgs(q, "import", "--from", from, "--stopped", "--unnamed")
		if from == "lmstfy" {
			args = append(args, "--dead", "respawn")
		}
		p := s.run(args...)
		<-p.ended
		if p.err != nil {
			t.Errorf("the last import of %s ended with %v:\n%s", q.name, p.err, p.tail())
		}
	}
	s.await("the jobs of Belfry to be consumed", func(ctx context.Context) (bool, error) {
		for _, q := range s.queues {
			for _, name := range append([]string{q.name}, q.also...) {
				if n, err := s.held(ctx, &queue{name: name}); n > 0 || err != nil {
					return false, err
				}
			}
		}
		return true, nil
	})
	consuming.end()
	keeping.end()
	k.print()
	judge.replay(s.redis.Writes())
	t.Logf("%+v", s.ledger.close(t, *kills >= longTrial))
	if *kills >= longTrial && k.hits == 0 {
		t.Error("the kills did not hit")
	}
}

// publish starts a producer for each queue.
func (s *stage) publish(origins []origin) *traffic {
	w := &traffic{stop: func() {}}
	for _, o := range origins {
		one := s.begin(1, func(ctx context.Context) {
			for ctx.Err() == nil {
				n, payload := s.ledger.begin()
				pause := publishPause
				if o.publish(s.t.Context(), time.Now(), n, string(payload)) == nil {
					s.ledger.offered(n)
				} else {
					pause = offerAgain
				}
				waitFor(ctx, pause)
			}
		})
		w = w.with(one)
	}
	return w
}

// serve starts a server and consumers of each queue. Some end their jobs, some too late, some
// never: those come again.
func (s *stage) serve(origins []origin) *traffic {
	// one server: two of ouqiang/delay-queue would hand out twice by themselves
	w := s.begin(1, func(ctx context.Context) {
		for ctx.Err() == nil {
			for _, o := range origins {
				_ = o.pump(s.t.Context(), time.Now()) // it is tried again
			}
			waitFor(ctx, pumpPause)
		}
	})
	for _, o := range origins {
		w = w.with(s.begin(2, func(ctx context.Context) { s.serveOne(ctx, o) }))
	}
	return w
}

// serveOne is a consumer at the source.
func (s *stage) serveOne(ctx context.Context, o origin) {
	late := map[string]time.Time{}
	for ctx.Err() == nil {
		for id, at := range late {
			if time.Now().After(at) {
				_ = o.finish(s.t.Context(), id) // Redis knows what it did
				delete(late, id)
			}
		}
		id, err := o.consume(s.t.Context())
		if err != nil || id == "" {
			waitFor(ctx, offerAgain)
			continue
		}
		switch rand.IntN(10) {
		case 0, 1: // it dies
		case 2, 3:
			late[id] = time.Now().Add(rand.N(2 * sourceTTR))
		default:
			_ = o.finish(s.t.Context(), id)
		}
	}
}

// with is both, one of which is w.
func (w *traffic) with(other *traffic) *traffic {
	both := &traffic{stop: func() {
		w.stop()
		other.stop()
	}}
	both.running.Go(func() {
		w.running.Wait()
		other.running.Wait()
	})
	return both
}
