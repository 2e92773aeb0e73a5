package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/client"
)

// inFlightMax bounds the puts that are on their way. A server that is slower than the rate for long fills it, and then
// the schedule slips; the result says by how much.
const inFlightMax = 4096

// lateness puts delayed jobs on a fixed schedule and measures how long after its due time a waiting consumer has each.
// The latency of a put counts from the time at which the schedule wanted it, so that waiting in line is not left out.
func (r *run) lateness(ctx context.Context, sdk *client.Client) ([]Result, error) {
	consumeCtx, stop := context.WithCancel(ctx)
	defer stop()
	var put, taken, early atomic.Uint64
	var scheduled atomic.Bool
	consumers := make(chan measured, 1)
	go func() {
		consumers <- r.consume(consumeCtx, sdk, &early, func() {
			if taken.Add(1) == put.Load() && scheduled.Load() {
				stop()
			}
		})
	}()
	puts := r.schedule(ctx, sdk, &put)
	scheduled.Store(true)
	if puts.failure(ctx) != nil || taken.Load() == put.Load() {
		stop()
	}
	takes := <-consumers
	result := r.result("lateness", takes, r.Callers)
	result.Early = early.Load()
	err := puts.failure(ctx)
	if err == nil {
		err = takes.failure(ctx)
	}
	if err == nil && result.Early > 0 {
		err = fmt.Errorf("%d jobs came before their due time", result.Early)
	}
	return []Result{r.result("put", puts, 1), result}, err
}

// consume takes jobs until ctx ends; the histogram has how late each was.
func (r *run) consume(ctx context.Context, sdk *client.Client, early *atomic.Uint64, taken func()) measured {
	late := newLatencies()
	began := time.Now()
	m := closed(ctx, r.Callers, newBudget(0, 24*time.Hour), 1, func(ctx context.Context, worker, _ int) (int, error) {
		done, err := r.take(ctx, sdk, func(job *client.Job) error {
			d := time.Since(job.DueAt)
			if d < 0 {
				early.Add(1)
			}
			late.record(worker, d)
			return nil
		})
		if done > 0 {
			taken()
		}
		if errors.Is(err, errEmpty) || ctx.Err() != nil {
			err = nil
		}
		return done, err
	})
	m.latency, m.calls, m.length = late.sum(), m.jobs, time.Since(began)
	return m
}

// schedule puts the jobs of lateness at their times.
func (r *run) schedule(ctx context.Context, sdk *client.Client, put *atomic.Uint64) measured {
	period := time.Duration(float64(time.Second) / r.RatePerSecond)
	total := r.Jobs
	if total == 0 {
		total = uint64(r.Duration.Seconds() * r.RatePerSecond)
	}
	var mu sync.Mutex
	sum := measured{latency: newHistogram()}
	free := make(chan struct{}, inFlightMax)
	var group sync.WaitGroup
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range total {
		due := began.Add(time.Duration(i) * period)
		if wait := time.Until(due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
		}
		if ctx.Err() != nil {
			break
		}
		free <- struct{}{}
		group.Go(func() {
			defer func() { <-free }()
			put.Add(1)
			_, err := sdk.Put(ctx, r.names[int(i)%len(r.names)], stamped(r.body, due), client.In(r.Delay)) //nolint:gosec // an index
			mu.Lock()
			defer mu.Unlock()
			sum.calls++
			if err != nil {
				sum.errors++
				if sum.firstError == nil {
					sum.firstError = fmt.Errorf("putting a job: %w", err)
				}
				return
			}
			sum.jobs++
			record(sum.latency, time.Since(due))
		})
	}
	group.Wait()
	sum.length = time.Since(began)
	return sum
}
