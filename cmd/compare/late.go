package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/cmd/compare/peer"
	"golang.org/x/sync/errgroup"
)

const (
	// scheduleRate is how many jobs a second are put by the works with a schedule.
	scheduleRate = 2000
	lateDelay    = 2 * time.Second
	lateCallers  = 64
	lateWaiters  = 32
)

// steady puts jobs on schedule.
func steady(ctx context.Context, r *peer.Running, set settings) (_ []sample, err error) {
	putters, err := crowdOf(ctx, r, lateCallers, peer.Library)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, putters.closeAll()) }()
	total := scheduled(set)
	s, err := measure(r, "steady", func(h *histogram) (int64, error) {
		return total, putters.onSchedule(ctx, total, 0, func(_ time.Time, took time.Duration) { h.record(took) })
	})
	return []sample{s}, err
}

// scheduled is how many jobs a schedule has; below two seconds it would say nothing.
func scheduled(set settings) int64 {
	return int64(scheduleRate * max(set.length, 2*time.Second).Seconds())
}

// lateness puts jobs on schedule and measures how late callers that wait for them have them.
func lateness(ctx context.Context, r *peer.Running, set settings, k peer.Kind) (_ []sample, err error) {
	waiters, err := crowdOf(ctx, r, lateWaiters, k)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, waiters.closeAll()) }()
	putters, err := crowdOf(ctx, r, lateCallers, k)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, putters.closeAll()) }()
	total := scheduled(set)
	puts := newHistogram()
	late, err := measure(r, "late", func(h *histogram) (taken int64, err error) {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() (err error) {
			taken, err = waiters.takeAll(ctx, total, 1, h)
			return err
		})
		group.Go(func() error {
			return putters.onSchedule(ctx, total, lateDelay, func(_ time.Time, took time.Duration) { puts.record(took) })
		})
		err = group.Wait()
		return taken, err
	})
	if err != nil {
		return nil, err
	}
	put := late // the same servers at the same time
	put.Phase, put.Jobs = "late-put", total
	put.times(puts)
	return []sample{late, put}, nil
}

// onSchedule puts so many jobs, each at its time whatever became of the others; a caller that is
// behind goes on at once. answered is told when each was to be put, and how long after that it was
// answered: what waited for a caller is counted.
func (all crowd) onSchedule(ctx context.Context, total int64, delay time.Duration,
	answered func(at time.Time, took time.Duration)) error {
	began := time.Now()
	var next atomic.Int64
	_, err := all.work(ctx, func(ctx context.Context, _ int, c peer.Caller) (int64, error) {
		for {
			n := next.Add(1) - 1
			if n >= total {
				return 0, nil
			}
			at := began.Add(time.Duration(n) * time.Second / scheduleRate)
			if err := pause(ctx, time.Until(at)); err != nil {
				return 0, err
			}
			if err := c.Put(ctx, peer.Batch{Bodies: bodies(1, bodyBytes, time.Now().Add(delay)), Delay: delay}); err != nil {
				return 0, err
			}
			answered(at, time.Since(at))
		}
	})
	return err
}

// takeAll takes so many jobs, up to batch a call, and records how late each came.
func (all crowd) takeAll(ctx context.Context, total int64, batch int, h *histogram) (int64, error) {
	var taken atomic.Int64
	_, err := all.work(ctx, func(ctx context.Context, _ int, c peer.Caller) (int64, error) {
		for taken.Load() < total {
			n, err := c.Take(ctx, peer.Wanted{Most: batch, Wait: takeWait}, func(body []byte) {
				h.record(time.Since(dueOf(body)))
			})
			if err != nil {
				return 0, fmt.Errorf("after %d of %d jobs: %w", taken.Load(), total, err)
			}
			taken.Add(int64(n))
		}
		return 0, nil
	})
	return taken.Load(), err
}

const (
	herdJobs    = 100_000
	herdDelay   = 6 * time.Second
	herdCallers = 64
	herdBatch   = 100
	// herdMax is how long after it a herd may take.
	herdMax = time.Minute
)

// herd puts jobs that are all due in the same second, and measures how long after it the last one
// is done.
func herd(ctx context.Context, r *peer.Running, _ settings) (_ []sample, err error) {
	all, err := crowdOf(ctx, r, herdCallers, peer.Library)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, all.closeAll()) }()
	due := time.Now().Add(herdDelay).Truncate(time.Second)
	var next atomic.Int64
	_, err = all.work(ctx, func(ctx context.Context, _ int, c peer.Caller) (int64, error) {
		for next.Add(herdBatch) <= herdJobs {
			if err := c.Put(ctx, peer.Batch{Bodies: bodies(herdBatch, bodyBytes, due), Delay: time.Until(due)}); err != nil {
				return 0, err
			}
		}
		return 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("putting a herd: %w", err)
	}
	if time.Now().After(due) {
		return nil, fmt.Errorf("putting %d jobs took until they were due", herdJobs)
	}
	if err := pause(ctx, time.Until(due.Add(-takeWait/2))); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, herdMax, fmt.Errorf("it is not done after %v", herdMax))
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = all.closeAll() })()
	s, err := measure(r, "herd", func(h *histogram) (int64, error) { return all.takeAll(ctx, herdJobs, herdBatch, h) })
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return []sample{s}, err
}
