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

// load is what callers do as fast as they can.
type load struct {
	callers, batch, size int
	kind                 peer.Kind
	// queues is the number of queues that each caller uses in turn; 0 means one.
	queues int
	// these are the numbers of the queues, if they are not the first ones.
	these []int
}

// queue returns the queue of a caller's nth call.
func (l load) queue(caller, n int) int {
	number := caller + n
	switch {
	case len(l.these) > 0:
		return l.these[number%len(l.these)]
	case l.queues > 1:
		return number * spread % l.queues
	}
	return 0
}

// spread has callers that begin one queue apart meet in none: a prime that is no factor of the
// numbers of queues.
const spread = 7

// putAndTake has callers put for a while, and then take until nothing is left.
func putAndTake(ctx context.Context, r *peer.Running, length time.Duration, l load) (_ []sample, err error) {
	all, err := crowdOf(ctx, r, l.callers, l.kind)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, all.closeAll()) }()
	put, err := measure(r, "put", func(h *histogram) (int64, error) { return all.putFor(ctx, length, l, h) })
	if err != nil {
		return nil, err
	}
	take, err := measure(r, "take", func(h *histogram) (int64, error) {
		return all.takeUntilEmpty(ctx, put.Jobs, takeMax*length, l, h)
	})
	if err != nil {
		return nil, err
	}
	return []sample{put, take}, nil
}

// putFor has all callers put for so long.
func (all crowd) putFor(ctx context.Context, length time.Duration, l load, h *histogram) (int64, error) {
	until := time.Now().Add(length)
	return all.work(ctx, func(ctx context.Context, caller int, c peer.Caller) (put int64, err error) {
		for n := 0; time.Now().Before(until); n++ {
			began := time.Now()
			if err := c.Put(ctx, peer.Batch{Queue: l.queue(caller, n), Bodies: bodies(l.batch, l.size, began)}); err != nil {
				return put, err
			}
			h.record(time.Since(began))
			put += int64(l.batch)
		}
		return put, nil
	})
}

// takeUntilEmpty has all callers take until so many jobs are done, or for so long.
func (all crowd) takeUntilEmpty(ctx context.Context, total int64, length time.Duration, l load,
	h *histogram) (int64, error) {
	var left atomic.Int64
	left.Store(total)
	until := time.Now().Add(length)
	return all.work(ctx, func(ctx context.Context, caller int, c peer.Caller) (taken int64, err error) {
		for n, empty := 0, 0; left.Load() > 0 && time.Now().Before(until); n++ {
			began := time.Now()
			some, err := c.Take(ctx, peer.Wanted{Queue: l.queue(caller, n), Most: l.batch}, func([]byte) {})
			if err != nil {
				return taken, err
			}
			if empty++; some > 0 {
				empty = 0
				h.record(time.Since(began))
			}
			taken += int64(some)
			left.Add(-int64(some))
			if empty >= max(1, l.queues) {
				if err := pause(ctx, emptyPause); err != nil {
					return taken, err
				}
			}
		}
		return taken, nil
	})
}

const mixedCallers = 32 // of each kind

// mixed has some callers put and others take meanwhile. It counts the jobs that are taken, and
// times the puts.
func mixed(ctx context.Context, r *peer.Running, set settings) (_ []sample, err error) {
	putters, err := crowdOf(ctx, r, mixedCallers, peer.Library)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, putters.closeAll()) }()
	takers, err := crowdOf(ctx, r, mixedCallers, peer.Library)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, takers.closeAll()) }()
	s, err := measure(r, "mixed", func(h *histogram) (taken int64, err error) {
		until := time.Now().Add(set.length)
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error {
			_, err := putters.putFor(ctx, set.length, load{batch: 1, size: bodyBytes}, h)
			return err
		})
		group.Go(func() (err error) {
			taken, err = takers.work(ctx, func(ctx context.Context, _ int, c peer.Caller) (taken int64, err error) {
				for time.Now().Before(until) {
					n, err := c.Take(ctx, peer.Wanted{Most: 1}, func([]byte) {})
					if err != nil {
						return taken, err
					}
					taken += int64(n)
				}
				return taken, nil
			})
			return err
		})
		err = group.Wait()
		return taken, err
	})
	return []sample{s}, err
}

// shardCount is how many shards the work shards loads. It is how many there are by default.
const shardCount = 6

// shards loads one shard, and then six by as many queues, with the same callers and the same
// servers.
func shards(ctx context.Context, r *peer.Running, set settings) (_ []sample, err error) {
	queues, err := inShards(ctx, r, shardCount)
	if err != nil {
		return nil, err
	}
	var samples []sample
	for _, part := range []struct {
		suffix string
		these  []int
	}{{"-one", queues[:1]}, {"-six", queues}} {
		some, err := putAndTake(ctx, r, set.length, load{callers: 64, batch: 100, size: bodyBytes, kind: peer.Library,
			these: part.these})
		if err != nil {
			return nil, err
		}
		for i := range some {
			some[i].Phase += part.suffix
		}
		samples = append(samples, some...)
	}
	return samples, nil
}

// inShards makes queues until there is one in each of so many shards, and returns their numbers.
func inShards(ctx context.Context, r *peer.Running, count int) ([]int, error) {
	const tries = 200
	taken := map[uint32]bool{}
	var queues []int
	for n := range tries {
		made, err := r.SDK.Admin().CreateQueue(ctx, peer.QueueName(n), 1, nil)
		if err != nil {
			return nil, fmt.Errorf("making a queue: %w", err)
		}
		if len(made.Shards) != 1 {
			return nil, fmt.Errorf("a queue with one partition was made in %d shards", len(made.Shards))
		}
		if shard := made.Shards[0]; !taken[shard] {
			taken[shard] = true
			if queues = append(queues, n); len(queues) == count {
				return queues, nil
			}
		}
	}
	return nil, fmt.Errorf("%d queues are in %d shards only", tries, len(queues))
}
