package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

const (
	// latenessAim bounds the 99th percentile of lateness while replicas and leaderships move. In a
	// bubble neither disk nor processor nor network cost any time: what is late waited for a timer.
	latenessAim = 100 * time.Millisecond
	flowPeriod  = 100 * time.Millisecond
)

// flow is jobs that are put through and delivered to callers of all members, one queue for each
// shard.
type flow struct {
	t      *testing.T
	queues []string
	going  sync.WaitGroup

	mu   sync.Mutex
	all  []*member
	late []time.Duration // of the deliveries since the last check
	puts []time.Duration
}

// newFlow begins a flow through some members.
func newFlow(ctx context.Context, t *testing.T, first ...*member) *flow {
	f := &flow{t: t, all: first, queues: make([]string, testShards)}
	for i, found := 0, 0; found < testShards; i++ {
		name := fmt.Sprintf("flow%d", i)
		if shard := node.ShardOf(name, 0, testShards); f.queues[shard] == "" {
			f.queues[shard], found = name, found+1
		}
	}
	for shard := range uint32(testShards) {
		for consumer := range 2 {
			f.going.Go(func() { f.consume(ctx, shard, consumer) })
		}
		f.going.Go(func() { f.put(ctx, shard) })
	}
	return f
}

// through returns one of the members.
func (f *flow) through(i int) *Router {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[i%len(f.all)].cluster.Router()
}

// set changes the members that callers know.
func (f *flow) set(all ...*member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = all
}

// put puts a job every flowPeriod, waiting for no answer.
func (f *flow) put(ctx context.Context, shard uint32) {
	tick := time.NewTicker(flowPeriod)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		f.going.Go(func() {
			began := time.Now()
			for attempt := 0; ctx.Err() == nil; attempt++ {
				put := &fsm.Put{Queue: f.queues[shard], Partitions: 1, Given: fsm.GivenDelay, Delay: 200 * time.Millisecond}
				_, err := f.through(i+attempt).Do(ctx, shard, &fsm.Request{Commands: []fsm.Command{put}})
				if err == nil {
					f.note(&f.puts, time.Since(began))
					return
				}
				pass(10 * time.Millisecond)
			}
		})
	}
}

// consume takes jobs and acks them.
func (f *flow) consume(ctx context.Context, shard uint32, consumer int) {
	for i := consumer; ctx.Err() == nil; i++ {
		r := f.through(i)
		reserve := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{f.queues[shard]}, Max: 1}}}
		reply, err := r.Reserve(ctx, shard, reserve, node.Wait{For: 10 * time.Second})
		if err != nil {
			pass(10 * time.Millisecond)
			continue
		}
		for _, job := range reply.Jobs {
			if job.Attempt == 1 {
				f.note(&f.late, time.Duration(time.Now().UnixNano()-int64(job.Due)))
			}
			ack := &fsm.Ack{Ref: fsm.Ref{Queue: f.queues[shard], Serial: job.Serial, Fence: job.Fence}}
			_, _ = r.Do(ctx, shard, &fsm.Request{Commands: []fsm.Command{ack}})
		}
	}
}

func (f *flow) note(into *[]time.Duration, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*into = append(*into, d)
}

// check checks what was delivered since the last check.
func (f *flow) check(phase string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for what, all := range map[string]*[]time.Duration{"lateness": &f.late, "put": &f.puts} {
		slices.Sort(*all)
		n := len(*all)
		if n == 0 || (*all)[n*99/100] > latenessAim {
			f.t.Errorf("%s: %s of %d jobs, the worst of them %v; want 99%% within %v", phase, what, n, (*all)[max(0, n-20):],
				latenessAim)
			continue
		}
		f.t.Logf("%s: %s of %d jobs: 99%% within %v, all within %v", phase, what, n, (*all)[n*99/100], (*all)[n-1])
		*all = nil
	}
}

// gossip makes members know each other's addresses.
func gossip(all ...*member) {
	for _, m := range all {
		for _, other := range all {
			m.known.Hear(other.id(), other.addr)
		}
	}
}

// pass lets time pass. For none there is no timer: the race detector of Go 1.26 crashes where
// several goroutines of a bubble receive at once from timers that are due already.
func pass(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	<-timer.C
}

// TestGrowthUnderLoad grows a cluster from one node to five and empties two of them while jobs
// flow.
func TestGrowthUnderLoad(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		a := newMember(t, network, dir, "a", nil)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		f := newFlow(ctx, t, a)
		pass(2 * time.Second)
		f.check("one node")
		b, c := newMember(t, network, dir, "b", a), newMember(t, network, dir, "c", a)
		gossip(a, b, c)
		f.set(a, b, c) // callers come to a node that has only just joined
		await(t, "three nodes", func() bool { return settled(a.cluster, 3, a, b, c) })
		f.check("to three")
		d, e := newMember(t, network, dir, "d", a), newMember(t, network, dir, "e", a)
		gossip(a, b, c, d, e)
		f.set(a, b, c, d, e)
		pass(20 * time.Second)
		f.check("to five")
		for _, m := range []*member{a, d} {
			await(t, "the drain of "+m.id(), func() bool {
				err := b.cluster.Drain(t.Context(), m.id(), 3) // the first one may have the catalog led by another node just now
				if err != nil && node.OutcomeOf(err) != node.NotApplied {
					t.Fatal(err)
				}
				return err == nil
			})
		}
		await(t, "two empty nodes", func() bool {
			left := 0
			for _, m := range []*member{a, d} {
				replicas, leads := holds(t, b.cluster, m.id())
				left += replicas + leads
			}
			return left == 0
		})
		f.check("two drained")
		f.set(b, c, e)
		a.stop()
		d.stop()
		pass(3 * time.Second)
		f.check("two stopped")
		stop()
		f.going.Wait()
	})
}
