package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/cmd/compare/peer"
)

const (
	parkedCallers = 10_000
	// parkedWait is below a minute, the longest that Belfry lets a call wait.
	parkedWait = 55 * time.Second
	// parkedSettle is how long callers have to get to the server after the last of them was started;
	// parkedLength is how long they are watched.
	parkedSettle = 5 * time.Second
	parkedLength = 5 * time.Second
	parkedJobs   = 500
	parkedEvery  = 10 * time.Millisecond
)

// parked has many callers wait, measures what they cost the servers, and then how long it takes
// from the call of a put to a waiter that has the job.
func parked(ctx context.Context, r *peer.Running, _ settings) (_ []sample, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before, err := peer.UsageOf(r.Processes)
	if err != nil {
		return nil, err
	}
	waiters, err := crowdOf(ctx, r, parkedCallers, peer.Own) // they leave as ctx ends
	if err != nil {
		return nil, err
	}
	putters, err := crowdOf(ctx, r, 1, peer.Own)
	if err != nil {
		return nil, err
	}
	p := &parking{arrivals: newHistogram()}
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for _, c := range waiters {
		group.Go(func() { p.wait(ctx, c) })
	}
	if err := pause(ctx, parkedSettle); err != nil {
		return nil, err
	}
	cost, err := measure(r, "parked", func(*histogram) (int64, error) { return parkedCallers, pause(ctx, parkedLength) })
	if err != nil {
		return nil, err
	}
	if failed := p.failure(); failed != nil {
		return nil, failed
	}
	// of all servers: a call waits at one or at two of them
	cost.PerJob = float64(cost.Resident-before.Resident) / parkedCallers
	wake, err := measure(r, "wake", func(*histogram) (int64, error) { return parkedJobs, p.wake(ctx, putters[0]) })
	if err != nil {
		return nil, err
	}
	wake.times(p.arrivals)
	return []sample{cost, wake}, nil
}

// parking is what the callers of parked share.
type parking struct {
	arrivals *histogram
	arrived  atomic.Int64

	mu     sync.Mutex
	failed error
}

// wait takes jobs until ctx ends.
func (p *parking) wait(ctx context.Context, c peer.Caller) {
	for ctx.Err() == nil {
		_, err := c.Take(ctx, peer.Wanted{Most: 1, Wait: parkedWait}, func(body []byte) {
			p.arrivals.record(time.Since(dueOf(body)))
			p.arrived.Add(1)
		})
		if err != nil && ctx.Err() == nil {
			p.mu.Lock()
			if p.failed == nil {
				p.failed = err // the others will say the same
			}
			p.mu.Unlock()
			return
		}
	}
}

func (p *parking) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// wake puts jobs one by one, and returns once all have arrived.
func (p *parking) wake(ctx context.Context, c peer.Caller) error {
	for range parkedJobs {
		if err := c.Put(ctx, peer.Batch{Bodies: bodies(1, bodyBytes, time.Now())}); err != nil {
			return err
		}
		if err := pause(ctx, parkedEvery); err != nil {
			return err
		}
	}
	for until := time.Now().Add(parkedWait); p.arrived.Load() < parkedJobs; {
		if err := errors.Join(p.failure(), pause(ctx, parkedEvery)); err != nil {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("of %d jobs %d came", parkedJobs, p.arrived.Load())
		}
	}
	return nil
}
