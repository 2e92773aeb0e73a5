package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	pendingCallers = 16
	pendingBatch   = 100
	pendingDelay   = 10 * time.Hour
	// servingMax is how long servers may take to serve again, servingEvery how often they are asked.
	servingMax   = 2 * time.Minute
	servingEvery = 5 * time.Millisecond
	// restMin is how long servers are left alone before their memory is read.
	restMin = 2 * time.Second
)

// pending fills servers with delayed jobs, reads what each job costs in memory, kills them and measures how long it takes until the first put is answered again.
func pending(ctx context.Context, r *running, set settings) (_ []sample, err error) {
	before, err := used(r.processes)
	if err != nil {
		return nil, err
	}
	fill, err := fillUp(ctx, r, set.jobs)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(restMin):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	after, err := used(r.processes)
	if err != nil {
		return nil, err
	}
	fill.PerJob = float64(after.resident-before.resident) / float64(set.jobs) / float64(len(r.processes))
	for _, p := range r.processes {
		p.kill()
	}
	began := time.Now()
	for _, p := range r.processes {
		if err := p.start(); err != nil {
			return nil, err
		}
	}
	if err := serves(ctx, r); err != nil {
		return nil, err
	}
	again := sample{Phase: "again", Jobs: set.jobs, Seconds: time.Since(began).Seconds()}
	return []sample{fill, again}, nil
}

// fillUp puts delayed jobs.
func fillUp(ctx context.Context, r *running, jobs int64) (_ sample, err error) {
	all, err := crowdOf(ctx, r, pendingCallers, own)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, all.leave()) }()
	return measure(r, "fill", func(h *histogram) (int64, error) {
		var next atomic.Int64
		return all.work(ctx, func(ctx context.Context, c caller) (put int64, err error) {
			for next.Add(pendingBatch) <= jobs {
				began := time.Now()
				if err := c.put(ctx, bodies(pendingBatch, bodyBytes, began), pendingDelay); err != nil {
					return put, err
				}
				h.record(time.Since(began))
				put += pendingBatch
			}
			return put, nil
		})
	})
}

// serves waits until a new caller can put a job.
func serves(ctx context.Context, r *running) error {
	ctx, cancel := context.WithTimeoutCause(ctx, servingMax, fmt.Errorf("it does not serve again within %v", servingMax))
	defer cancel()
	for {
		once, stop := context.WithTimeout(ctx, time.Second)
		c, err := r.caller(once, own)
		if err == nil {
			err = errors.Join(c.put(once, bodies(1, bodyBytes, time.Now()), pendingDelay), c.close())
		}
		stop()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(servingEvery):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
