package mirror

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// standing are the kinds of work that stand beside a rollback, each until ctx ends.
func standing(r redis.UniversalClient, c *client.Client) map[string]func(ctx context.Context, again bool,
	notice func(error), waits func(bool)) error {
	return map[string]func(ctx context.Context, again bool, notice func(error), waits func(bool)) error{
		"bridge": func(ctx context.Context, again bool, notice func(error), waits func(bool)) error {
			return Bridge(ctx, r, c, BridgeOptions{RedisQueue: "orders", Share: 1, Again: again, Notice: notice,
				Progress: func(n BridgeCounts) { waits(n.In.TakenBack) }})
		},
		"import that follows": func(ctx context.Context, again bool, notice func(error), waits func(bool)) error {
			_, err := Import(ctx, r, c, ImportOptions{RedisQueue: "orders", Share: 1, Follow: true, Again: again,
				Notice: notice, Progress: func(n ImportCounts) { waits(n.TakenBack) }})
			return err
		},
	}
}

// until waits for a value.
func until[T comparable](from <-chan T, want T) {
	for got := range from {
		if got == want {
			return
		}
	}
}

// TestRollbackIsKept: a bridge lets a rollback have the queue, and leaves what went back with
// Redisson until an operator decides otherwise. So does a bridge that is started later.
func TestRollbackIsKept(t *testing.T) {
	for name := range standing(nil, nil) {
		t.Run(name, func(t *testing.T) {
			r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
			work := standing(r, c)[name]
			app := redissontest.New(r, "orders", redissontest.NewGeneration, time.Now)
			offer := func(text string) {
				if err := app.Offer(t.Context(), []byte(text), time.Now().Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			start := func(again bool) (told chan string, waits chan bool, stop func()) {
				ctx, cancel := context.WithCancel(t.Context())
				told, waits = make(chan string, 1000), make(chan bool, 10000)
				ended := make(chan error, 1)
				go func() {
					ended <- work(ctx, again, func(err error) { told <- err.Error() }, func(is bool) { waits <- is })
				}()
				return told, waits, func() {
					cancel()
					if err := <-ended; !errors.Is(err, context.Canceled) {
						t.Errorf("it ended with %v", err)
					}
				}
			}
			told, waits, stop := start(false)
			offer("a")
			until(waits, false)
			if counts, err := Rollback(t.Context(), r, c, ExportOptions{RedisQueue: "orders", Share: 1}); err != nil ||
				counts.Original != 1 {
				t.Fatalf("the rollback counted %+v, %v", counts, err)
			}
			until(told, "waiting: "+ErrTakenBack.Error())
			until(waits, true)
			offer("b")
			stop()
			if n := r.ZCard(t.Context(), timerKey).Val(); n != 2 {
				t.Errorf("Redis has %d entries", n)
			}
			told, _, stop = start(false) // as a supervisor does
			until(told, "waiting: "+ErrTakenBack.Error())
			stop()
			_, waits, stop = start(true)
			until(waits, false)
			stop()
			_, waits, stop = start(false) // it was decided
			offer("c")
			until(waits, false)
			stop()
			if counts, err := Rollback(t.Context(), r, c, ExportOptions{RedisQueue: "orders", Share: 1}); err != nil ||
				r.ZCard(t.Context(), timerKey).Val() != 3 {
				t.Errorf("the second rollback counted %+v, %v", counts, err)
			}
			// An import that does not follow decides as well.
			if counts, err := Import(t.Context(), r, c, ImportOptions{RedisQueue: "orders", Share: 1}); err != nil ||
				counts.Acked != 3 {
				t.Errorf("the import counted %+v, %v", counts, err)
			}
			_, waits, stop = start(false)
			offer("d")
			until(waits, false)
			stop()
			if n := len(bodies(t, c)); n+int(r.ZCard(t.Context(), timerKey).Val()) != 4 {
				t.Errorf("Belfry has %d jobs", n)
			}
		})
	}
}

// TestRollbackOfSeveral: each node has a bridge, one of which works; all of them let the rollback
// go first.
func TestRollbackOfSeveral(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	ctx, stop := context.WithCancel(t.Context())
	told, ended, working := make(chan int, 1000), make(chan error, 3), make(chan struct{}, 10000)
	for n := range 3 {
		go func() {
			ended <- Bridge(ctx, r, c, BridgeOptions{
				RedisQueue: "orders", Share: 1, Progress: func(n BridgeCounts) {
					if !n.In.TakenBack {
						working <- struct{}{}
					}
				}, Notice: func(err error) {
					if errors.Is(err, ErrTakenBack) {
						told <- n
					}
				},
			})
		}()
	}
	<-working
	if _, err := Rollback(t.Context(), r, c, ExportOptions{RedisQueue: "orders", Share: 1}); err != nil {
		t.Error(err)
	}
	for waiting := map[int]bool{}; len(waiting) < 3; {
		waiting[<-told] = true
	}
	stop()
	for range 3 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a bridge ended with %v", err)
		}
	}
}

// TestRollbackHalfBegun is killed between two of its first steps: a bridge does not bring entries
// into the queue, be it paused by then or not.
func TestRollbackHalfBegun(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	withLink(t, r, c, func(ctx context.Context, l *link) error {
		return l.BeginEpoch(ctx, 2)
	})
	app := redissontest.New(r, "orders", redissontest.NewGeneration, time.Now)
	if err := app.Offer(t.Context(), []byte("a"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for name, work := range standing(r, c) {
		ctx, cancel := context.WithCancel(t.Context())
		err := work(ctx, false, func(error) { cancel() }, func(bool) { cancel() })
		if n := r.ZCard(t.Context(), timerKey).Val(); !errors.Is(err, context.Canceled) || n != 1 {
			t.Errorf("%s ended with %v and left %d entries", name, err, n)
		}
	}
}

// TestRollbackFirst: an import that decided to bring entries over, and was overtaken by a rollback
// while waiting, does not undo the rollback.
func TestRollbackFirst(t *testing.T) {
	for name, work := range map[string]func(context.Context, redis.UniversalClient, *client.Client,
		ImportOptions) (ImportCounts, error){
		"import": Import,
		"cutover": func(ctx context.Context, r redis.UniversalClient, c *client.Client, o ImportOptions) (ImportCounts,
			error) {
			return Cutover(ctx, r, c, CutoverOptions{ImportOptions: o, Quiet: time.Millisecond})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
			app := redissontest.New(r, "orders", redissontest.NewGeneration, time.Now)
			if err := app.Offer(t.Context(), []byte("a"), time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			told, ended := make(chan error, 100), make(chan error, 1)
			withLink(t, r, c, func(ctx context.Context, l *link) error {
				go func() {
					_, err := work(t.Context(), r, c, ImportOptions{RedisQueue: "orders", Share: 1,
						Notice: func(err error) { told <- err }})
					ended <- err
				}()
				until(told, pair.ErrHeld)
				return l.BeginEpoch(ctx, l.Epoch()+1)
			})
			if err := <-ended; !errors.Is(err, ErrTakenBack) {
				t.Errorf("it ended with %v", err)
			}
			if n := r.ZCard(t.Context(), timerKey).Val(); n != 1 {
				t.Errorf("Redis has %d entries", n)
			}
		})
	}
}

// TestCutoverGivesWay ends when a rollback asks for the queue.
func TestCutoverGivesWay(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	app := redissontest.New(r, "orders", redissontest.NewGeneration, time.Now)
	if err := app.Offer(t.Context(), []byte("a"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	looked, ended := make(chan struct{}, 10000), make(chan error, 1)
	go func() {
		_, err := Cutover(t.Context(), r, c, CutoverOptions{ImportOptions: ImportOptions{RedisQueue: "orders", Share: 1},
			Quiet: time.Hour, Looked: func([]pair.Check, time.Duration) { looked <- struct{}{} }})
		ended <- err
	}()
	<-looked
	if _, err := Rollback(t.Context(), r, c, ExportOptions{RedisQueue: "orders", Share: 1,
		Format: redisson.New}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, pair.ErrWished) {
		t.Errorf("the cut-over ended with %v", err)
	}
}

// TestWaitingIsShown: a bridge shows that it waits while an export has the queue, and that it does
// no longer when it goes on, though Redis does not answer then.
func TestWaitingIsShown(t *testing.T) {
	server, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	ctx, stop := context.WithCancel(t.Context())
	waits, ended := make(chan bool, 10000), make(chan error, 1)
	go func() {
		ended <- Bridge(ctx, server.Client(), c, BridgeOptions{RedisQueue: "orders", Share: 1,
			Progress: func(n BridgeCounts) { waits <- n.In.TakenBack }})
	}()
	until(waits, false)
	l := newLink(server.Client(), c, pair.Options{RedisQueue: "orders", Share: 1})
	if err := l.WithWish(t.Context(), func(context.Context) error {
		until(waits, true)
		server.Kill()
		return nil
	}); err != nil {
		t.Error(err)
	}
	until(waits, false)
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the bridge ended with %v", err)
	}
}
