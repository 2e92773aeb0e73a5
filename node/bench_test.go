package node

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/clock"
)

// benchNode opens a node with the default number of shards and the log on the disk of the temporary
// directory, synced.
func benchNode(b *testing.B, shards int) *Node {
	b.Helper()
	cfg := testConfig(b, b.TempDir())
	cfg.Shards = shards
	return openNode(b, cfg)
}

// body is the 100 bytes that every benchmark job carries.
func body() []byte { return make([]byte, 100) }

// runCallers has callers issue requests of put commands until b.N commands are through, and reports
// commands a second.
func runCallers(b *testing.B, n *Node, callers, commands int) {
	b.Helper()
	var left, next atomic.Int64
	left.Store(int64(b.N))
	failed := make(chan error, callers)
	b.ResetTimer()
	start := time.Now()
	for range callers {
		go func() {
			shard := uint32(next.Add(1)) % uint32(n.ShardCount())
			req := &fsm.Request{}
			for range commands {
				req.Commands = append(req.Commands, &fsm.Put{
					Queue: fmt.Sprintf("bench-%d", shard), Partitions: 1, Given: fsm.GivenDelay, Delay: time.Hour, Body: body(),
				})
			}
			var err error
			for err == nil && left.Add(-int64(commands)) > -int64(commands) {
				_, err = n.Do(b.Context(), shard, req)
			}
			failed <- err
		}()
	}
	for range callers {
		if err := <-failed; err != nil {
			b.Error(err)
		}
	}
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "commands/s")
	reportEntries(b, n)
}

// reportEntries reports how many commands shared an entry, and how long entries and requests took.
func reportEntries(b *testing.B, n *Node) {
	b.Helper()
	var entries, commands, requests uint64
	var commit, propose, apply float64
	for _, s := range n.Stats().Shards {
		entries, commands, requests = entries+s.Entries, commands+s.Commands, requests+s.Applied
		commit, propose, apply = commit+s.CommitSeconds.Sum, propose+s.ProposeSeconds.Sum, apply+s.ApplySeconds.Sum
	}
	b.ReportMetric(float64(commands)/float64(entries), "commands/entry")
	b.ReportMetric(1000*commit/float64(entries), "commit-ms")
	b.ReportMetric(1000*propose/float64(requests), "propose-ms")
	b.ReportMetric(1000*apply/float64(entries), "apply-ms")
}

// BenchmarkReserveAck has 512 callers take jobs one at a time and ack them, through the waiters.
func BenchmarkReserveAck(b *testing.B) {
	n := benchNode(b, 6)
	const callers = 512
	for shard := range uint32(6) {
		for left := b.N/6 + callers; left > 0; left -= 1000 {
			req := &fsm.Request{}
			for range 1000 {
				req.Commands = append(req.Commands, &fsm.Put{Queue: "bench", Partitions: 1, Body: body()})
			}
			if _, err := n.Do(b.Context(), shard, req); err != nil {
				b.Fatal(err)
			}
		}
	}
	failed := make(chan error, callers)
	b.ResetTimer()
	start := time.Now()
	for i := range callers {
		go func() { failed <- takeJobs(b, n, uint32(i%6), b.N/callers) }()
	}
	for range callers {
		if err := <-failed; err != nil {
			b.Error(err)
		}
	}
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "jobs/s")
	reportEntries(b, n)
}

// takeJobs reserves and acks jobs, one after the other.
func takeJobs(b *testing.B, n *Node, shard uint32, jobs int) error {
	reserve := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"bench"}, Max: 1}}}
	for range jobs {
		reply, err := n.Reserve(b.Context(), shard, reserve, Wait{For: time.Minute})
		if err != nil {
			return err
		}
		if len(reply.Results[0].Grants) != 1 {
			return fmt.Errorf("granted %+v", reply.Results[0].Grants)
		}
		ack := &fsm.Request{Commands: []fsm.Command{&fsm.Ack{Ref: refOf(reply.Results[0].Grants[0])}}}
		if _, err := n.Do(b.Context(), shard, ack); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkWake puts a job that one of 10,000 parked calls on 100 queues is waiting for, and has
// that call wait again.
func BenchmarkWake(b *testing.B) {
	n := benchNode(b, 1)
	const waiters, queues = 10_000, 100
	granted := make(chan error, waiters)
	ctx, cancel := context.WithCancel(b.Context())
	var parked sync.WaitGroup
	for i := range waiters {
		parked.Go(func() {
			req := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{fmt.Sprintf("bench-%d", i%queues)},
				Max: 1}}}
			for ctx.Err() == nil {
				_, err := n.Reserve(ctx, 0, req, Wait{For: time.Hour})
				if ctx.Err() == nil {
					granted <- err
				}
			}
		})
	}
	for n.Stats().Shards[0].Waiters < waiters {
		runtime.Gosched()
	}
	b.ResetTimer()
	for i := range b.N {
		put := &fsm.Put{Queue: fmt.Sprintf("bench-%d", i%queues), Partitions: 1, Body: body()}
		if _, err := n.Do(b.Context(), 0, &fsm.Request{Commands: []fsm.Command{put}}); err != nil {
			b.Fatal(err)
		}
		if err := <-granted; err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	cancel()
	parked.Wait()
}

// BenchmarkLateness puts jobs that fall due one by one while a caller waits for them, and reports
// how late they are granted.
func BenchmarkLateness(b *testing.B) {
	n := benchNode(b, 1)
	late := make([]time.Duration, 0, b.N)
	reserve := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"bench"}, Max: 1}}}
	for range b.N {
		put := &fsm.Put{Queue: "bench", Partitions: 1, Given: fsm.GivenDelay, Delay: 5 * time.Millisecond}
		if _, err := n.Do(b.Context(), 0, &fsm.Request{Commands: []fsm.Command{put}}); err != nil {
			b.Fatal(err)
		}
		reply, err := n.Reserve(b.Context(), 0, reserve, Wait{For: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		late = append(late, clock.System().Wall().Sub(reply.Results[0].Grants[0].Due))
	}
	slices.Sort(late)
	b.ReportMetric(late[len(late)/2].Seconds()*1000, "p50-ms")
	b.ReportMetric(late[len(late)*99/100].Seconds()*1000, "p99-ms")
}

// BenchmarkPut has callers put jobs of 100 bytes through one node with synced logs.
func BenchmarkPut(b *testing.B) {
	for _, bc := range []struct{ shards, callers, commands int }{
		{6, 64, 100}, {6, 512, 1}, {1, 64, 100}, {1, 512, 1}, {6, 1, 1},
	} {
		b.Run(fmt.Sprintf("shards=%d/callers=%d/commands=%d", bc.shards, bc.callers, bc.commands), func(b *testing.B) {
			runCallers(b, benchNode(b, bc.shards), bc.callers, bc.commands)
		})
	}
}
