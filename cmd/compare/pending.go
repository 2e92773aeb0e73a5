package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/cmd/compare/peer"
)

const (
	pendingCallers = 16
	pendingBatch   = 100
	pendingDelay   = 10 * time.Hour
	// servingMax is how long servers may take to serve again, servingEvery how often they are asked.
	servingMax   = 5 * time.Minute
	servingEvery = 5 * time.Millisecond
	// The memory of servers is read once it has changed by less than one part in restPart for
	// restSteps times restStep, or after restMax.
	restStep  = 500 * time.Millisecond
	restSteps = 10 // longer than it takes an idle server to give memory back
	restMax   = time.Minute
	restPart  = 200
)

// pending fills servers with delayed jobs, reads what each job costs in memory, kills them and
// measures how long it takes until the first put is answered again.
func pending(ctx context.Context, r *peer.Running, set settings, named bool) (_ []sample, err error) {
	before, err := peer.UsageOf(r.Processes)
	if err != nil {
		return nil, err
	}
	fill, err := fillUp(ctx, r, set.jobs, named)
	if err != nil {
		return nil, err
	}
	after, err := atRest(ctx, r)
	if err != nil {
		return nil, err
	}
	fill.Resident = after.Resident
	fill.PerJob = float64(after.Resident-before.Resident) / float64(set.jobs) / float64(len(r.Processes))
	for _, p := range r.Processes {
		p.Kill()
	}
	began := time.Now()
	for _, p := range r.Processes {
		if err := p.Start(); err != nil {
			return nil, err
		}
	}
	if err := serves(ctx, r); err != nil {
		return nil, err
	}
	again := sample{Phase: "again", Jobs: set.jobs, Seconds: time.Since(began).Seconds()}
	return []sample{fill, again}, nil
}

// atRest waits until the servers' memory changes no more.
func atRest(ctx context.Context, r *peer.Running) (peer.Usage, error) {
	var last []int64
	for until := time.Now().Add(restMax); ; {
		if err := pause(ctx, restStep); err != nil {
			return peer.Usage{}, err
		}
		now, err := peer.UsageOf(r.Processes)
		if err != nil {
			return now, err
		}
		last = append(last, now.Resident)
		if len(last) > restSteps {
			last = last[1:]
			if most := slices.Max(last); most-slices.Min(last) < most/restPart {
				return now, nil
			}
		}
		if time.Now().After(until) {
			return now, nil
		}
	}
}

// fillUp puts delayed jobs, with names of the client's if named.
func fillUp(ctx context.Context, r *peer.Running, total int64, named bool) (_ sample, err error) {
	all, err := crowdOf(ctx, r, pendingCallers, peer.Library)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, all.closeAll()) }()
	return measure(r, "fill", func(h *histogram) (int64, error) {
		var next atomic.Int64
		return all.work(ctx, func(ctx context.Context, _ int, c peer.Caller) (put int64, err error) {
			for next.Add(pendingBatch) <= total {
				began := time.Now()
				some := peer.Batch{Bodies: bodies(pendingBatch, bodyBytes, began), Delay: pendingDelay}
				if named {
					some.IDs = names(pendingBatch)
				}
				if err := c.Put(ctx, some); err != nil {
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
func serves(ctx context.Context, r *peer.Running) error {
	ctx, cancel := context.WithTimeoutCause(ctx, servingMax, fmt.Errorf("it does not serve again within %v", servingMax))
	defer cancel()
	for {
		once, stop := context.WithTimeout(ctx, time.Second)
		c, err := r.Caller(once, peer.Own)
		if err == nil {
			err = errors.Join(c.Put(once, peer.Batch{Bodies: bodies(1, bodyBytes, time.Now()), Delay: pendingDelay}), c.Close())
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
