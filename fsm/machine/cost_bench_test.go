package machine_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// costRound is how many jobs each step of BenchmarkCost handles before the processor's time is
// read, 100 an entry.
const costRound = 1000

// BenchmarkCost is what Apply costs a job in processor time, with as many jobs pending all the
// while as its name says: put with a random due time, reserved when due, acked.
// -fsm.pending=10000000 for the figures of record. The memory of finished leases fills up alike in
// all.
func BenchmarkCost(b *testing.B) {
	for _, pending := range []int{1000, *pendingJobs} {
		b.Run(fmt.Sprint(pending), func(b *testing.B) { benchmarkCost(b, pending) })
	}
}

func benchmarkCost(b *testing.B, pending int) {
	step, rounds := 180*time.Millisecond, time.Duration(max(1, pending/costRound)) // an hour of due times for ten million
	if *pendingSpan > 0 {
		step = *pendingSpan / (2 * rounds)
	}
	span := 2 * step * rounds
	d, rng := newDriver(), rand.New(rand.NewPCG(1, 2))
	reserve := [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{
		Queues: []string{"orders"}, Max: 100,
	}}})}
	for filled := 0; filled < pending; filled += costRound {
		d.apply(b, d.putEntryWithin(rng, costRound, span))
	}
	runtime.GC()
	var cost [3]time.Duration
	timed := func(kind int, entries [][]byte) (results []fsm.Result) {
		before := cpuTime(b)
		for _, entry := range entries {
			results = append(results, d.apply(b, entry)...)
		}
		cost[kind] += cpuTime(b) - before
		return results
	}
	b.ResetTimer()
	for n := 0; n < b.N; n += costRound {
		var puts, reserves, acks [][]byte
		for range costRound / 100 {
			puts = append(puts, d.putEntryWithin(rng, 100, span))
		}
		timed(0, puts)
		d.now += fsm.Time(step)
		for range costRound / 100 {
			reserves = append(reserves, codec.AppendEntry(nil, d.now, reserve))
		}
		for _, r := range timed(1, reserves) {
			commands := make([]fsm.Command, len(r.Grants))
			for i, g := range r.Grants {
				commands[i] = &fsm.Ack{Ref: fsm.Ref{Queue: g.Queue, Serial: g.Serial, Fence: g.Fence}}
			}
			acks = append(acks, codec.AppendEntry(nil, d.now,
				[][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: commands})}))
		}
		timed(2, acks)
	}
	for kind, name := range [...]string{"put-cpu-ns", "reserve-cpu-ns", "ack-cpu-ns"} {
		b.ReportMetric(float64(cost[kind])/float64(b.N), name)
	}
}

// BenchmarkBesideSnapshot is what Apply costs while a snapshot is open, in processor time of 100
// puts and a Reserve of 100: jobs that fall due lie on as many pages, each of which is copied at
// its first change.
func BenchmarkBesideSnapshot(b *testing.B) {
	const step = 18 * time.Millisecond
	span := 2 * step * time.Duration(*pendingJobs/100)
	d, rng := newDriver(), rand.New(rand.NewPCG(1, 2))
	reserve := [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{
		Queues: []string{"orders"}, Max: 100,
	}}})}
	for filled := 0; filled < *pendingJobs; filled += costRound {
		d.apply(b, d.putEntryWithin(rng, costRound, span))
	}
	report := func(name string) {
		cost := make([]time.Duration, 1000)
		for i := range cost {
			puts := d.putEntryWithin(rng, 100, span)
			d.now += fsm.Time(step)
			before := cpuTime(b)
			d.apply(b, puts)
			d.apply(b, codec.AppendEntry(nil, d.now, reserve))
			cost[i] = cpuTime(b) - before
		}
		slices.Sort(cost)
		b.ReportMetric(float64(cost[500].Microseconds()), name+"-p50-us")
		b.ReportMetric(float64(cost[990].Microseconds()), name+"-p99-us")
	}
	b.ResetTimer()
	for range b.N {
		report("alone")
		s := d.m.Snapshot()
		report("beside")
		d.m.Release(s)
	}
}

// cpuTime is the processor time that this process has used.
func cpuTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
