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

// inFlightMax bounds the puts that are on their way. A server that is slower than the rate for long
// fills it. Then the schedule slips, and the run is saturated.
const inFlightMax = 4096

// A backlog that grew by no more than backlogSlack, or by what is put in backlogPause, is no sign
// of anything: a pause of the machine makes as much.
const (
	backlogSlack = 64
	backlogPause = 50 * time.Millisecond
)

// endToEnd measures how long after the time for which a job's put was scheduled a waiting consumer
// has it.
func (r *run) endToEnd(ctx context.Context, sdk *client.Client) ([]Result, error) {
	return r.paced(ctx, sdk, pacedWork{phase: "put to arrival", age: func(job *client.Job) (time.Duration, error) {
		sent, err := stampOf(job.Body)
		return time.Since(sent), err
	}})
}

// lateness measures how long after its due time a waiting consumer has each of many delayed jobs.
func (r *run) lateness(ctx context.Context, sdk *client.Client) ([]Result, error) {
	return r.paced(ctx, sdk, pacedWork{
		phase: "lateness", delay: r.Delay, options: []client.PutOption{client.In(r.Delay)},
		age: func(job *client.Job) (time.Duration, error) { return time.Since(job.DueAt), nil },
	})
}

// pacedWork is what a paced workload puts and measures.
type pacedWork struct {
	phase   string
	delay   time.Duration
	options []client.PutOption
	// age returns the latency of a job that has just arrived; below 0 the job is early.
	age func(*client.Job) (time.Duration, error)
}

// paced puts jobs on a fixed schedule and lets waiting consumers take them. The latency of a put
// counts from the time at which the schedule wanted it, so that waiting in line is not left out.
func (r *run) paced(ctx context.Context, sdk *client.Client, work pacedWork) ([]Result, error) {
	consumeCtx, stop := context.WithCancel(ctx)
	defer stop()
	var put, taken, early atomic.Uint64
	var scheduled atomic.Bool
	consumers := make(chan measured, 1)
	go func() {
		consumers <- r.consume(consumeCtx, sdk, consumer{age: work.age, early: &early, taken: func() {
			if taken.Add(1) == put.Load() && scheduled.Load() {
				stop()
			}
		}})
	}()
	puts, lags := r.schedule(ctx, sdk, work, &progress{put: &put, taken: &taken})
	scheduled.Store(true)
	if puts.failure(ctx) != nil || taken.Load() == put.Load() {
		stop()
	}
	takes := <-consumers
	takes.length -= min(takes.length, work.delay) // in which nothing could arrive
	result := r.result(work.phase, takes, r.Callers)
	result.Early, result.OfferedPerSecond, result.Saturated = early.Load(), r.RatePerSecond,
		lags.saturated(r.RatePerSecond)
	err := puts.failure(ctx)
	if err == nil {
		err = takes.failure(ctx)
	}
	if err == nil && result.Early > 0 {
		err = fmt.Errorf("%d jobs came before their due time", result.Early)
	}
	return []Result{r.result("put", puts, 1), result}, err
}

// consumer is what is done with each job that arrives.
type consumer struct {
	age   func(*client.Job) (time.Duration, error)
	early *atomic.Uint64
	taken func()
}

// consume takes jobs until ctx ends; the histogram has the age of each.
func (r *run) consume(ctx context.Context, sdk *client.Client, c consumer) measured {
	ages := newLatencies()
	began := time.Now()
	m := closed(ctx, r.Callers, newBudget(0, 24*time.Hour), 1, func(ctx context.Context, worker, _ int) (int, error) {
		done, err := r.take(ctx, sdk, func(job *client.Job) error {
			age, err := c.age(job)
			if err != nil {
				return err
			}
			if age < 0 {
				c.early.Add(1)
			}
			ages.record(worker, age)
			return nil
		})
		if done > 0 {
			c.taken()
		}
		if errors.Is(err, errEmpty) || ctx.Err() != nil {
			err = nil
		}
		return done, err
	})
	m.latency, m.calls, m.length = ages.sum(), m.jobs, time.Since(began)
	return m
}

// progress counts the jobs whose put was begun, and those that were acked.
type progress struct{ put, taken *atomic.Uint64 }

// lags say whether jobs arrived at the rate at which they were put.
type lags struct {
	// slipped: a put could not be made at its time, because too many were on their way.
	slipped bool
	// half and end are how many due jobs had not arrived in the middle of the schedule and at its end.
	half, end uint64
}

// saturated reports whether the latencies are those of a backlog. A backlog that is as large at the
// end as in the middle is only what is on its way; one that grew from the middle to the end was
// growing all the time.
func (l lags) saturated(ratePerSecond float64) bool {
	slack := max(backlogSlack, uint64(ratePerSecond*backlogPause.Seconds()))
	return l.slipped || l.end > l.half+l.half/4+slack
}

// schedule puts jobs at their times.
func (r *run) schedule(ctx context.Context, sdk *client.Client, work pacedWork, p *progress) (measured, lags) {
	plan := r.plan()
	var mu sync.Mutex
	var seen lags
	sum := measured{latency: newHistogram()}
	free := make(chan struct{}, inFlightMax)
	var group sync.WaitGroup
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for i := range plan.total {
		if !plan.await(ctx, timer, i) {
			break
		}
		if i == plan.total/2 {
			seen.half = plan.missing(p.taken.Load(), work.delay)
		}
		select {
		case free <- struct{}{}:
		default:
			seen.slipped = true
			free <- struct{}{}
		}
		due := plan.due(i)
		group.Go(func() {
			defer func() { <-free }()
			p.put.Add(1)
			_, err := sdk.Put(ctx, r.names[int(i)%len(r.names)], stamped(r.body, due), //nolint:gosec // an index
				append(r.key(i), work.options...)...)
			mu.Lock()
			defer mu.Unlock()
			sum.count(err, due)
		})
	}
	seen.end = plan.missing(p.taken.Load(), work.delay)
	group.Wait()
	sum.length = time.Since(plan.began)
	return sum, seen
}

// count adds a put that was scheduled for due and has just ended.
func (m *measured) count(err error, due time.Time) {
	m.calls++
	if err == nil {
		m.jobs++
		record(m.latency, time.Since(due))
		return
	}
	m.errors++
	if m.firstError == nil {
		m.firstError = fmt.Errorf("putting a job: %w", err)
	}
}

// plan is when which put is made.
type plan struct {
	began  time.Time
	period time.Duration
	total  uint64
}

// plan returns a plan that begins now.
func (r *run) plan() plan {
	total := r.Jobs
	if total == 0 {
		total = uint64(r.Duration.Seconds() * r.RatePerSecond)
	}
	return plan{began: time.Now(), period: time.Duration(float64(time.Second) / r.RatePerSecond), total: total}
}

// due returns when put i is to be made.
func (p plan) due(i uint64) time.Time {
	return p.began.Add(time.Duration(i) * p.period)
} //nolint:gosec // a run has fewer

// await waits until put i is to be made, and reports whether ctx is still going.
func (p plan) await(ctx context.Context, timer *time.Timer, i uint64) bool {
	if wait := time.Until(p.due(i)); wait > 0 {
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	return ctx.Err() == nil
}

// missing returns how many jobs are due by the plan and are not among those taken.
func (p plan) missing(taken uint64, delay time.Duration) uint64 {
	delivering := time.Since(p.began) - delay
	if delivering <= 0 {
		return 0
	}
	due := min(p.total, uint64(delivering/max(p.period, 1)))
	return due - min(due, taken)
}
