package belfrytest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
)

// A worker handles each job once and with a live context, wherever the clock of its server stands
// beside this machine's: a lease is a length.
func TestAWorkerAsksNoClockAboutItsLeases(t *testing.T) {
	for name, at := range map[string]time.Time{
		"behind by more than a lease": time.Now().Add(-24*time.Hour - 40*time.Second),
		"years behind":                time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		"years ahead":                 time.Date(2060, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		t.Run(name, func(t *testing.T) {
			server := belfrytest.Start(t, belfrytest.StoppedAt(at))
			c := server.Client(t)
			for _, id := range []string{"a", "b", "c"} {
				put(t, c, id, client.In(24*time.Hour))
			}
			server.Advance(24 * time.Hour)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			handled := make(chan string, 10)
			worker := client.Worker{Queues: []string{"orders"}, Concurrency: 2, Prefetch: 1}
			worker.OnError = func(_ *client.Job, err error) { t.Errorf("the worker reports %v", err) }
			ended := make(chan error, 1)
			go func() {
				ended <- worker.Run(ctx, server.Client(t), func(ctx context.Context, job *client.Job) error {
					if job.Attempt != 1 || ctx.Err() != nil {
						t.Errorf("job %s, attempt %d: the context is at %v", job.ID, job.Attempt, context.Cause(ctx))
					}
					handled <- job.ID
					return nil
				})
			}()
			seen := make(map[string]bool)
			for len(seen) < 3 && ctx.Err() == nil {
				select {
				case id := <-handled:
					seen[id] = true
				case <-ctx.Done():
					t.Errorf("handled %v, want a, b and c", seen)
				}
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			server.Advance(time.Hour)
			_, ids := reserve(t, c, "orders")
			expect(t, "jobs that were handled are there again", ids)
		})
	}
}

// A lease that the clock has ended ends the handler with the next extension, which comes in the
// test's own time.
func TestAdvanceEndsAHandlerByTheNextExtension(t *testing.T) {
	server := belfrytest.Start(t, belfrytest.StoppedAt(start()))
	c := server.Client(t)
	put(t, c, "order")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	worker := client.Worker{Queues: []string{"orders"}, TTR: 300 * time.Millisecond}
	if err := worker.Run(ctx, c, func(ctx context.Context, job *client.Job) error {
		if job.Attempt > 1 {
			cancel()
			return nil
		}
		server.Advance(time.Minute)
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, client.ErrStaleLease) {
			t.Errorf("the handler's context ended with %v", cause)
		}
		return ctx.Err()
	}); err != nil {
		t.Error(err)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Error("the job was not handed out again")
	}
}

func TestATimeThatNoServerHasIsRefused(t *testing.T) {
	for name, try := range map[string]struct {
		at   time.Time
		want string
	}{
		"zero": {time.Time{}, "zero time.Time"},
		"1970": {time.Unix(0, 0), "after 1970"},
		"1754": {time.Date(1754, 8, 30, 0, 0, 0, 0, time.UTC), "StoppedAt is 1754-08-30T00:00:00Z"},
		"2262": {time.Date(2262, 5, 1, 0, 0, 0, 0, time.UTC), "before 2262"},
		"3000": {time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC), "StoppedAt is 3000"},
	} {
		t.Run(name, func(t *testing.T) {
			server, err := belfrytest.Open(t.Context(), t.TempDir(), belfrytest.StoppedAt(try.at))
			if err == nil {
				_ = server.Close()
			}
			if err == nil || !strings.Contains(err.Error(), try.want) {
				t.Errorf("error %v does not say %q", err, try.want)
			}
		})
	}
}
