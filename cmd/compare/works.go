package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/cmd/compare/peer"
	"golang.org/x/sync/errgroup"
)

// A work is what all peers are given to do.
type work struct {
	name, about string
	belfry      bool // only for Belfry
	sized       bool // by -pending
	do          func(ctx context.Context, r *peer.Running, s settings) ([]sample, error)
}

// doneBy reports whether a peer takes part in a work. If it should take part and cannot, why is not
// empty.
func (w work) doneBy(p peer.Queue) (why string, ok bool) {
	if w.belfry && !p.Belfry {
		return "", false
	}
	return p.Does(w.name)
}

func allWorks() []work {
	throughput := func(name, about string, l load) work {
		if l.size == 0 {
			l.size = bodyBytes
		}
		return work{name: name, about: about, do: func(ctx context.Context, r *peer.Running, s settings) ([]sample, error) {
			return putAndTake(ctx, r, s.length, l)
		}}
	}
	return []work{
		throughput("batch", "64 callers, 100 jobs a call, by the usual library",
			load{callers: 64, batch: 100, kind: peer.Library}),
		throughput("batchplain", "64 callers, 100 jobs a call, a connection each", load{
			callers: 64, batch: 100, kind: peer.Own,
		}),
		throughput("single", "64 callers, one job a call, a connection each", load{callers: 64, batch: 1, kind: peer.Own}),
		throughput("single256", "256 callers, one job a call, a connection each", load{
			callers: 256, batch: 1, kind: peer.Own,
		}),
		throughput("lone", "one caller, one job a call", load{callers: 1, batch: 1, kind: peer.Own}),
		throughput("shared64", "64 callers, one job a call, one client library between them",
			load{callers: 64, batch: 1, kind: peer.Shared}),
		throughput("shared256", "256 callers, one job a call, one client library between them",
			load{callers: 256, batch: 1, kind: peer.Shared}),
		throughput("shared512", "512 callers, one job a call, one client library between them",
			load{callers: 512, batch: 1, kind: peer.Shared}),
		throughput("large", "16 callers, one job of 60,000 bytes a call, a connection each",
			load{callers: 16, batch: 1, size: largeBytes, kind: peer.Own}),
		throughput("queues", "64 callers, one job a call, over 1,000 queues in turn, by the usual library",
			load{callers: 64, batch: 1, queues: 1000, kind: peer.Library}),
		{name: "mixed", about: "32 callers put one job a call, 32 take one a call, by the usual library", do: mixed},
		{name: "shards", about: "64 callers, 100 jobs a call, by the library: one queue in one shard, then six queues in " +
			"six shards", belfry: true, do: shards},
		{name: "steady", about: "2,000 puts a second on schedule, by the usual library; latency counts from the scheduled " +
			"time", do: steady},
		{
			name: "lateness", about: "2,000 jobs a second with a delay of 2 s, put on schedule; 32 callers wait for them, by " +
				"the usual library",
			do: func(ctx context.Context, r *peer.Running, s settings) ([]sample, error) {
				return lateness(ctx, r, s, peer.Library)
			},
		},
		{
			name: "lateplain", about: "the same with a connection for each caller",
			do: func(ctx context.Context, r *peer.Running, s settings) ([]sample, error) {
				return lateness(ctx, r, s, peer.Own)
			},
		},
		{name: "herd", about: "100,000 jobs due in the same second; 64 callers take up to 100 a call, by the usual library",
			do: herd},
		{name: "parked", about: "10,000 callers wait, each on a connection; then jobs are put one by one", do: parked},
		{
			name: "pending", sized: true, about: "jobs due in 10 hours; then the servers are killed and started again",
			do: func(ctx context.Context, r *peer.Running, s settings) ([]sample, error) {
				return pending(ctx, r, s, false)
			},
		},
		{
			name: "pendingids", sized: true, about: "the same with ids of 16 bytes that the client chose",
			do: func(ctx context.Context, r *peer.Running, s settings) ([]sample, error) {
				return pending(ctx, r, s, true)
			},
		},
		{name: "snapshots", sized: true, about: "2,000 puts a second on schedule while jobs wait and a log of large jobs " +
			"makes the servers write snapshots", belfry: true, do: snapshots},
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
	// emptyPause is how long a caller rests that found nothing in any queue.
	emptyPause = time.Millisecond
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

// names returns so many ids of 16 bytes.
func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		var raw [8]byte
		binary.BigEndian.PutUint64(raw[:], rand.Uint64()) //nolint:gosec // no secret
		all[i] = hex.EncodeToString(raw[:])
	}
	return all
}

// crowd is so many callers, connected.
type crowd []peer.Caller

// crowdOf connects callers of a kind. Once ctx ends, their connections do: some peers' callers know
// no other way to give up.
func crowdOf(ctx context.Context, r *peer.Running, size int, k peer.Kind) (crowd, error) {
	all := make(crowd, 0, size)
	for range size {
		c, err := r.Caller(ctx, k)
		if err != nil {
			return nil, errors.Join(err, all.closeAll())
		}
		context.AfterFunc(ctx, func() { _ = c.Close() }) // the callers wait for no more
		all = append(all, c)
	}
	return all, nil
}

func (all crowd) closeAll() error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// work has all callers work side by side until each returns, and returns how many jobs they did.
// Callers are numbered from 0 on.
func (all crowd) work(ctx context.Context, do func(ctx context.Context, n int, c peer.Caller) (int64, error)) (int64,
	error) {
	var done atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for n, c := range all {
		group.Go(func() error {
			some, err := do(ctx, n, c)
			done.Add(some)
			return err
		})
	}
	err := group.Wait()
	return done.Load(), err
}

// pause waits for so long or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting: %w", context.Cause(ctx))
	}
}
