package belfrytest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/client/schedule"
)

// start is where the clocks of these tests stand at first.
func start() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }

// reserve takes what is to be had without waiting, and returns the ids.
func reserve(t *testing.T, c *client.Client, queue string) (jobs []*client.Job, ids []string) {
	t.Helper()
	jobs, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{queue}, Max: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range jobs {
		ids = append(ids, job.ID)
	}
	return jobs, ids
}

func put(t *testing.T, c *client.Client, id string, opts ...client.PutOption) {
	t.Helper()
	if _, err := c.Put(t.Context(), "orders", nil, append(opts, client.ID(id))...); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// What falls due in a jump of the clock becomes ready at once, in the order of the due times, and
// nothing becomes ready before.
func TestJobsFallDueWhenTheClockIsAdvanced(t *testing.T) {
	server := belfrytest.Start(t, belfrytest.StoppedAt(start()))
	c := server.Client(t)
	put(t, c, "third", client.In(3*time.Hour))
	put(t, c, "second", client.In(2*time.Hour))
	put(t, c, "first", client.At(start().Add(time.Hour)))
	server.Advance(time.Hour - time.Millisecond)
	_, ids := reserve(t, c, "orders")
	expect(t, "before the first is due", ids)
	server.Advance(time.Millisecond)
	jobs, ids := reserve(t, c, "orders")
	expect(t, "when it is", ids, "first")
	if err := jobs[0].Ack(t.Context()); err != nil {
		t.Error(err)
	}
	server.Advance(10 * 365 * 24 * time.Hour)
	_, ids = reserve(t, c, "orders")
	expect(t, "ten years later", ids, "second", "third")
	if now, want := server.Now(), start().Add(time.Hour+10*365*24*time.Hour); !now.Equal(want) {
		t.Errorf("it is %v, want %v", now, want)
	}
}

// A lease lapses, a retry comes due and a job's time is over when the clock is advanced, and only
// then.
func TestLeasesAndRetriesGoByTheClock(t *testing.T) {
	server := belfrytest.Start(t, belfrytest.StoppedAt(start()))
	c := server.Client(t)
	put(t, c, "order", client.TTR(time.Minute), client.RetryDelays(0, time.Hour))
	put(t, c, "offer", client.TTL(2*time.Hour), client.In(time.Hour))
	held, _ := reserve(t, c, "orders")
	if len(held) != 1 || !held[0].LeaseUntil.Equal(start().Add(time.Minute)) {
		t.Fatalf("reserved %+v", held)
	}
	server.Advance(time.Minute)
	if err := held[0].Ack(t.Context()); !errors.Is(err, client.ErrStaleLease) {
		t.Errorf("an ack at the lease's end: %v", err)
	}
	again, ids := reserve(t, c, "orders")
	expect(t, "after the lease has lapsed", ids, "order")
	if len(again) != 1 || again[0].Attempt != 2 {
		t.Fatalf("reserved %+v", again)
	}
	if err := again[0].Nack(t.Context(), errors.New("later")); err != nil {
		t.Fatal(err)
	}
	server.Advance(time.Hour - time.Millisecond)
	_, ids = reserve(t, c, "orders")
	expect(t, "just before the retry", ids, "offer")
	server.Advance(time.Millisecond)
	_, ids = reserve(t, c, "orders")
	expect(t, "at the retry", ids, "order")
	server.Advance(time.Hour)
	queue, err := c.Admin().Queue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if totals := queue.Totals; totals.Lapses != 3 || totals.Expiries != 1 {
		t.Errorf("counted are %v, want three leases as lapsed, and the offer as expired", totals)
	}
}

// Calls that wait get what falls due, the one that waits longest what is due first. Their request
// ids are from before the jump.
func TestWaitingCallGetsTheJob(t *testing.T) {
	server := belfrytest.Start(t, belfrytest.StoppedAt(start()))
	c := server.Client(t)
	put(t, c, "order", client.In(24*time.Hour))
	type answer struct {
		jobs []*client.Job
		err  error
	}
	waiting := make(chan answer)
	go func() {
		jobs, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{"orders"}, Wait: time.Minute})
		waiting <- answer{jobs, err}
	}()
	server.Advance(24 * time.Hour) // whether or not the call has arrived
	got := <-waiting
	if got.err != nil || len(got.jobs) != 1 || got.jobs[0].ID != "order" {
		t.Fatalf("the call got %+v", got)
	}
	if err := got.jobs[0].Ack(t.Context()); err != nil {
		t.Error(err)
	}
}

// A worker that polls takes what falls due, and acks it.
func TestWorkerAndAdvance(t *testing.T) {
	server := belfrytest.Start(t, belfrytest.StoppedAt(start()))
	c := server.Client(t)
	put(t, c, "order", client.In(30*time.Minute))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var handled []string
	var working sync.WaitGroup
	working.Go(func() {
		worker := client.Worker{Queues: []string{"orders"}}
		err := worker.Run(ctx, c, func(_ context.Context, job *client.Job) error {
			handled = append(handled, job.ID)
			stop()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	server.Advance(30 * time.Minute)
	working.Wait()
	expect(t, "the worker's jobs", handled, "order")
	queue, err := c.Admin().Queue(t.Context(), "orders")
	if err != nil || queue.Totals.Acks != 1 {
		t.Errorf("counted are %v, %v, want one ack", queue.Totals, err)
	}
}

// In a bubble no clock need be advanced: the server's time is the bubble's.
func TestServerInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := belfrytest.Start(t, belfrytest.InMemory())
		c := server.Client(t)
		began := time.Now()
		put(t, c, "order", client.In(30*time.Minute))
		jobs, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{"orders"}, Wait: time.Minute})
		if err != nil || len(jobs) != 0 {
			t.Fatalf("within a minute it got %v, %v", jobs, err)
		}
		for len(jobs) == 0 && err == nil {
			jobs, err = c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{"orders"}, Wait: time.Minute})
		}
		if late := time.Since(began) - 30*time.Minute; err != nil || late < 0 || late > time.Second {
			t.Errorf("it got %v, %v, %v late", jobs, err, late)
		}
	})
}

// In a bubble a worker keeps its lease while the handler works for long, as it does in production.
func TestWorkerInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := belfrytest.Start(t, belfrytest.InMemory()).Client(t)
		put(t, c, "order", client.In(time.Minute), client.TTR(10*time.Second))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		worker := client.Worker{Queues: []string{"orders"}, OnError: func(_ *client.Job, err error) { t.Error(err) }}
		err := worker.Run(ctx, c, func(ctx context.Context, job *client.Job) error {
			defer stop()
			work := time.NewTimer(5 * time.Minute)
			defer work.Stop()
			select {
			case <-work.C:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		if err != nil {
			t.Error(err)
		}
		queue, err := c.Admin().Queue(t.Context(), "orders")
		if err != nil || queue.Totals.Acks != 1 || queue.Totals.Lapses != 0 {
			t.Errorf("counted are %v, %v, want one ack and no lapse", queue.Totals, err)
		}
	})
}

// However often the clock jumps while calls are under way, they succeed, and no time is ever ahead
// of it.
func TestAdvanceUnderLoad(t *testing.T) {
	server := belfrytest.Start(t, belfrytest.StoppedAt(start()))
	c := server.Client(t)
	var load sync.WaitGroup
	rounds := make(chan struct{}) // for each of which the clock jumps once, while it goes on
	for range 8 {
		load.Go(func() {
			for range 100 {
				rounds <- struct{}{}
				put, err := c.Put(t.Context(), "orders", nil, client.In(time.Hour))
				if ahead := put.DueAt.Sub(server.Now()) - time.Hour; err != nil || ahead > 0 {
					t.Errorf("a put is stamped %v ahead, %v", ahead, err)
					return
				}
				jobs, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{"orders"}, Max: 10})
				if err != nil {
					t.Error(err)
					return
				}
				for _, job := range jobs {
					if early := job.DueAt.Sub(server.Now()); early > 0 {
						t.Errorf("a job came %v early", early)
					}
				}
			}
		})
	}
	go func() {
		load.Wait()
		close(rounds)
	}()
	for range rounds {
		server.Advance(7 * time.Minute)
	}
}

// The files of a test's log are small; what is larger finds room all the same, and is there again.
func TestLargeBodies(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		server, err := belfrytest.Open(t.Context(), dir, belfrytest.InMemory())
		if err != nil {
			t.Fatal(err)
		}
		c := server.Client(t)
		for range 3 {
			if _, err := c.Put(t.Context(), "orders", make([]byte, 1<<20)); err != nil {
				t.Error(err)
			}
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}
	server, err := belfrytest.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	c := server.Client(t)
	some, _ := reserve(t, c, "orders") // as many as an answer has room for
	others, _ := reserve(t, c, "orders")
	if err := server.Close(); len(some)+len(others) != 6 || err != nil {
		t.Errorf("%d and %d of 6 jobs are there, %v", len(some), len(others), err)
	}
}

// Only a clock that stands still is advanced, and only forward.
func TestAdvancePanics(t *testing.T) {
	for name, try := range map[string]struct {
		option belfrytest.Option
		by     time.Duration
	}{"a clock that runs": {belfrytest.InMemory(), time.Second}, "back": {belfrytest.StoppedAt(start()), -1}} {
		t.Run(name, func(t *testing.T) {
			server := belfrytest.Start(t, try.option)
			defer func() {
				if recover() == nil {
					t.Error("nothing happened")
				}
			}()
			server.Advance(try.by)
		})
	}
}

// TestSchedulesFireWhenTheClockIsAdvanced: of what a schedule missed in a jump, the latest is there
// when Advance returns, or all if its policy says so.
func TestSchedulesFireWhenTheClockIsAdvanced(t *testing.T) {
	server := belfrytest.Start(t, belfrytest.StoppedAt(start()))
	c := server.Client(t)
	for queue, catchUp := range map[string]schedule.CatchUp{"latest": schedule.CatchUpLatest, "all": schedule.CatchUpAll} {
		_, err := c.Schedules().Put(t.Context(), queue, "h", schedule.Definition{
			Spec: schedule.Spec{Every: time.Hour}, Policy: schedule.Policy{CatchUp: catchUp},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	fired := func(queue string, want ...string) {
		t.Helper()
		jobs, ids := reserve(t, c, queue)
		for _, job := range jobs {
			if err := job.Ack(t.Context()); err != nil {
				t.Error(err)
			}
		}
		expect(t, queue, ids, want...)
	}
	server.Advance(time.Hour)
	fired("latest", "cron:h@2030-01-02T04:00:00Z")
	fired("all", "cron:h@2030-01-02T04:00:00Z")
	server.Advance(3 * time.Hour)
	fired("latest", "cron:h@2030-01-02T07:00:00Z")
	fired("all", "cron:h@2030-01-02T05:00:00Z", "cron:h@2030-01-02T06:00:00Z", "cron:h@2030-01-02T07:00:00Z")
}
