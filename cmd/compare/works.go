package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// A work is what all peers are given to do.
type work struct {
	name, about string
	delays      bool // only for peers that have delays
	do          func(ctx context.Context, r *running, s settings) ([]sample, error)
}

// A sample is what one peer did in one phase of a work, in one round.
type sample struct {
	Round int    `json:"round"`
	Work  string `json:"work"`
	Phase string `json:"phase"`
	Peer  string `json:"peer"`
	// Jobs were done in Seconds; CPU is what the servers used for them, in seconds, Resident their memory afterwards, in bytes.
	Jobs     int64   `json:"jobs"`
	Seconds  float64 `json:"seconds"`
	CPU      float64 `json:"cpuSeconds"`
	Resident int64   `json:"residentBytes"`
	// PerJob is by how much the memory of one server grew with each job that waits, in bytes. Of the work pending.
	PerJob float64 `json:"bytesPerJob,omitempty"`
	// Least, Half, Most99 and Most are the least, the median, the 99th percentile and the greatest of what the phase measures of each call or job, in milliseconds; negative is early.
	Least  float64 `json:"leastMs"`
	Half   float64 `json:"p50Ms"`
	Most99 float64 `json:"p99Ms"`
	Most   float64 `json:"mostMs"`
	// Failed says why the peer could not do the work; then there is nothing else.
	Failed string `json:"failed,omitempty"`
}

// failedPhase is the phase of samples of works that could not be done.
const failedPhase = "failed"

// String is a line for whoever watches.
func (s sample) String() string {
	text := fmt.Sprintf("round %d  %-10s %-6s %-18s", s.Round+1, s.Work, s.Phase, s.Peer)
	if s.Failed != "" {
		return text + " " + s.Failed
	}
	return text + fmt.Sprintf("%9.0f jobs/s  p50 %.2f ms  p99 %.2f ms", float64(s.Jobs)/s.Seconds, s.Half, s.Most99)
}

func allWorks() []work {
	throughput := func(name, about string, callers, batch, size int, k kind) work {
		return work{name: name, about: about, do: func(ctx context.Context, r *running, s settings) ([]sample, error) {
			return putAndTake(ctx, r, s.length, callers, batch, size, k)
		}}
	}
	return []work{
		throughput("batch", "64 callers, 100 jobs a call, through the client library", 64, 100, bodyBytes, shared),
		throughput("batchplain", "64 callers, 100 jobs a call, a connection each", 64, 100, bodyBytes, own),
		throughput("single", "64 callers, one job a call, a connection each", 64, 1, bodyBytes, own),
		throughput("lone", "one caller, one job a call", 1, 1, bodyBytes, own),
		throughput("shared64", "64 callers, one job a call, one client library between them", 64, 1, bodyBytes, shared),
		throughput("shared512", "512 callers, one job a call, one client library between them", 512, 1, bodyBytes, shared),
		throughput("large", "16 callers, one job of 60,000 bytes a call, a connection each", 16, 1, largeBytes, own),
		{name: "mixed", about: "32 callers put one job a call, 32 take one a call, a connection each", do: mixed},
		{name: "lateness", about: "2,000 jobs a second with a delay of 2 s, put on schedule; 32 callers wait for them", delays: true, do: lateness},
		{name: "herd", about: "100,000 jobs due in the same second; 64 callers take up to 100 a call", delays: true, do: herd},
		{name: "pending", about: "jobs due in 10 hours; then the servers are killed and started again", delays: true, do: pending},
	}
}

func workNames() []string {
	var names []string
	for _, w := range allWorks() {
		names = append(names, w.name)
	}
	return names
}

const (
	bodyBytes = 100
	// largeBytes is below beanstalkd's limit, 65,535.
	largeBytes = 60_000
	takeWait   = time.Second
	// takeMax is how many times longer taking may last than putting did.
	takeMax = 4
)

// bodies returns new bodies that say when they are due.
func bodies(n, size int, due time.Time) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = make([]byte, size)
		binary.BigEndian.PutUint64(all[i], uint64(due.UnixNano())) //nolint:gosec // after 1970
	}
	return all
}

// dueOf returns what bodies wrote.
func dueOf(body []byte) time.Time {
	return time.Unix(0, int64(binary.BigEndian.Uint64(body))) //nolint:gosec // written by bodies
}

// crowd is so many callers, connected.
type crowd []caller

// crowdOf connects callers of a kind.
func crowdOf(ctx context.Context, r *running, size int, k kind) (crowd, error) {
	all := make(crowd, 0, size)
	for range size {
		c, err := r.caller(ctx, k)
		if err != nil {
			return nil, errors.Join(err, all.leave())
		}
		all = append(all, c)
	}
	return all, nil
}

func (all crowd) leave() error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}

// work has all callers work side by side until each returns, and returns how many jobs they did.
func (all crowd) work(ctx context.Context, do func(ctx context.Context, c caller) (int64, error)) (int64, error) {
	var jobs atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range all {
		group.Go(func() error {
			done, err := do(ctx, c)
			jobs.Add(done)
			return err
		})
	}
	err := group.Wait()
	return jobs.Load(), err
}

// measure fills in a sample what work did.
func measure(r *running, phase string, work func(h *histogram) (int64, error)) (sample, error) {
	before, err := used(r.processes)
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	h := newHistogram()
	jobs, err := work(h)
	took := time.Since(began)
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w", phase, err)
	}
	after, err := used(r.processes)
	if err != nil {
		return sample{}, err
	}
	s := sample{Phase: phase, Jobs: jobs, Seconds: took.Seconds(), CPU: (after.cpu - before.cpu).Seconds(), Resident: after.resident}
	s.Least, s.Half, s.Most99, s.Most = h.at(0), h.at(50), h.at(99), h.at(100)
	return s, nil
}

// putAndTake has callers put for a while, and then take until nothing is left.
func putAndTake(ctx context.Context, r *running, length time.Duration, callers, batch, size int, k kind) (_ []sample, err error) {
	all, err := crowdOf(ctx, r, callers, k)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, all.leave()) }()
	put, err := measure(r, "put", func(h *histogram) (int64, error) {
		until := time.Now().Add(length)
		return all.work(ctx, func(ctx context.Context, c caller) (jobs int64, err error) {
			for time.Now().Before(until) {
				began := time.Now()
				if err := c.put(ctx, bodies(batch, size, began), 0); err != nil {
					return jobs, err
				}
				h.record(time.Since(began))
				jobs += int64(batch)
			}
			return jobs, nil
		})
	})
	if err != nil {
		return nil, err
	}
	var left atomic.Int64
	left.Store(put.Jobs)
	take, err := measure(r, "take", func(h *histogram) (int64, error) {
		until := time.Now().Add(takeMax * length)
		return all.work(ctx, func(ctx context.Context, c caller) (jobs int64, err error) {
			for left.Load() > 0 && time.Now().Before(until) {
				began := time.Now()
				n, err := c.take(ctx, batch, 0, func([]byte) {})
				if err != nil {
					return jobs, err
				}
				if n > 0 {
					h.record(time.Since(began))
				}
				jobs += int64(n)
				left.Add(-int64(n))
			}
			return jobs, nil
		})
	})
	return []sample{put, take}, err
}

const mixedCallers = 32 // of each kind

// mixed has some callers put and others take meanwhile. It counts the jobs that are taken, and times the puts.
func mixed(ctx context.Context, r *running, set settings) (_ []sample, err error) {
	putters, err := crowdOf(ctx, r, mixedCallers, own)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, putters.leave()) }()
	takers, err := crowdOf(ctx, r, mixedCallers, own)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, takers.leave()) }()
	s, err := measure(r, "mixed", func(h *histogram) (taken int64, err error) {
		until := time.Now().Add(set.length)
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error {
			_, err := putters.work(ctx, func(ctx context.Context, c caller) (int64, error) {
				for time.Now().Before(until) {
					began := time.Now()
					if err := c.put(ctx, bodies(1, bodyBytes, began), 0); err != nil {
						return 0, err
					}
					h.record(time.Since(began))
				}
				return 0, nil
			})
			return err
		})
		group.Go(func() (err error) {
			taken, err = takers.work(ctx, func(ctx context.Context, c caller) (jobs int64, err error) {
				for time.Now().Before(until) {
					n, err := c.take(ctx, 1, 0, func([]byte) {})
					if err != nil {
						return jobs, err
					}
					jobs += int64(n)
				}
				return jobs, nil
			})
			return err
		})
		err = group.Wait()
		return taken, err
	})
	return []sample{s}, err
}

const (
	lateRate    = 2000
	lateDelay   = 2 * time.Second
	lateCallers = 16
	lateWaiters = 32
)

// lateness puts jobs on schedule and measures how late callers that wait for them have them.
func lateness(ctx context.Context, r *running, set settings) (_ []sample, err error) {
	waiters, err := crowdOf(ctx, r, lateWaiters, own)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, waiters.leave()) }()
	putters, err := crowdOf(ctx, r, lateCallers, own)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, putters.leave()) }()
	total := int64(lateRate * max(set.length, 2*time.Second).Seconds())
	s, err := measure(r, "late", func(h *histogram) (taken int64, err error) {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() (err error) {
			taken, err = waiters.takeAll(ctx, total, 1, h)
			return err
		})
		group.Go(func() error { return putters.onSchedule(ctx, total) })
		err = group.Wait()
		return taken, err
	})
	return []sample{s}, err
}

// onSchedule puts so many delayed jobs, each at its time whatever became of the others; a caller that is behind goes on at once.
func (all crowd) onSchedule(ctx context.Context, total int64) error {
	began := time.Now()
	var next atomic.Int64
	_, err := all.work(ctx, func(ctx context.Context, c caller) (int64, error) {
		for {
			n := next.Add(1) - 1
			if n >= total {
				return 0, nil
			}
			select {
			case <-time.After(time.Until(began.Add(time.Duration(n) * time.Second / lateRate))):
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
			if err := c.put(ctx, bodies(1, bodyBytes, time.Now().Add(lateDelay)), lateDelay); err != nil {
				return 0, err
			}
		}
	})
	return err
}

// takeAll takes so many jobs, up to batch a call, and records how late each came.
func (all crowd) takeAll(ctx context.Context, total int64, batch int, h *histogram) (int64, error) {
	var taken atomic.Int64
	return all.work(ctx, func(ctx context.Context, c caller) (jobs int64, err error) {
		for taken.Load() < total {
			n, err := c.take(ctx, batch, takeWait, func(body []byte) { h.record(time.Since(dueOf(body))) })
			if err != nil {
				return jobs, err
			}
			jobs += int64(n)
			taken.Add(int64(n))
		}
		return jobs, nil
	})
}

const (
	herdJobs    = 100_000
	herdDelay   = 6 * time.Second
	herdCallers = 64
	herdBatch   = 100
)

// herd puts jobs that are all due in the same second, and measures how long after it the last one is done.
func herd(ctx context.Context, r *running, _ settings) (_ []sample, err error) {
	all, err := crowdOf(ctx, r, herdCallers, own)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, all.leave()) }()
	due := time.Now().Add(herdDelay).Truncate(time.Second)
	var next atomic.Int64
	_, err = all.work(ctx, func(ctx context.Context, c caller) (int64, error) {
		for next.Add(herdBatch) <= herdJobs {
			if err := c.put(ctx, bodies(herdBatch, bodyBytes, due), time.Until(due)); err != nil {
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
	select {
	case <-time.After(time.Until(due.Add(-takeWait / 2))):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s, err := measure(r, "herd", func(h *histogram) (int64, error) { return all.takeAll(ctx, herdJobs, herdBatch, h) })
	return []sample{s}, err
}
