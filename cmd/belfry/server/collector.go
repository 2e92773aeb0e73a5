package server

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// percentLeast is the smallest GOGC: the heap may grow by at least this percentage of its live
	// bytes. A small one suffices: jobs have no pointers, so a cycle is cheap with any number of jobs.
	percentLeast = 15
	// headroomBytes is how much a small heap may grow. A cycle for every few megabytes of garbage
	// would cost throughput and save no memory worth mentioning.
	headroomBytes = 128 << 20
	percentMost   = 800
	tunePeriod    = time.Second
	// A process that allocates less than idleBytes in a period is idle. After restAfter of that it
	// releases memory to the system, if it can release restBytes or more.
	idleBytes = 4 << 20
	restBytes = 32 << 20
	restAfter = 2 * tunePeriod
	// restEvery is the shortest time between two releases: each released page costs a fault when it is
	// used again.
	restEvery = 10 * time.Second
)

// StartTuning runs TuneCollector until stop is called, which waits for its end. It does nothing if
// gogc, the operator's GOGC, is set.
func StartTuning(ctx context.Context, gogc string) (stop func()) {
	if gogc != "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { TuneCollector(ctx) })
	return func() {
		cancel()
		group.Wait()
	}
}

// TuneCollector sets how often the garbage collector runs, by the size of the heap, until ctx ends.
// It also releases memory to the system when the process has become idle. It is for a process that
// the operator has not tuned with GOGC. A GOMEMLIMIT stays in force.
func TuneCollector(ctx context.Context) {
	ticker := time.NewTicker(tunePeriod)
	defer ticker.Stop()
	current := 0
	var idle idleness
	for {
		now := readHeap()
		if percent := collectorPercent(now.live); percent != current {
			debug.SetGCPercent(percent)
			current = percent
		}
		if idle.shouldRelease(now) {
			debug.FreeOSMemory()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// idleness decides when a process should release memory. An idle process has no garbage collection
// that would release it.
type idleness struct {
	allocated uint64        // at the last check
	quiet     time.Duration // how long the process has been idle
	since     time.Duration // since the last release
	floor     uint64        // least held since then: fragments that cannot be released
}

// shouldRelease reports whether to release memory now. It is called once every tunePeriod.
func (i *idleness) shouldRelease(h heap) bool {
	busy := h.allocated-i.allocated >= idleBytes
	i.allocated = h.allocated
	i.since += tunePeriod
	i.floor = min(i.floor, h.held)
	if busy {
		i.quiet = 0
		return false
	}
	if i.quiet += tunePeriod; i.quiet < restAfter || i.since < restEvery || h.held < max(h.live, i.floor)+restBytes {
		return false
	}
	i.since, i.floor = 0, math.MaxUint64
	return true
}

// collectorPercent returns GOGC for a heap with that many live bytes. It returns steps of 25, so
// that the setting seldom changes: each change stops the world for a moment.
func collectorPercent(live uint64) int {
	percent := uint64(percentMost)
	if live > 0 {
		percent = min(percent, headroomBytes*100/live)
	}
	return max(percentLeast, int(percent)/25*25) //nolint:gosec // at most percentMost
}

// heap has the runtime's metrics of the heap, in bytes.
type heap struct {
	live      uint64 // what the last collection found alive
	held      uint64 // what the process holds of the system's memory for the heap
	allocated uint64 // the total of all allocations so far
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	h := heap{live: samples[0].Value.Uint64(), allocated: samples[1].Value.Uint64()}
	for _, s := range samples[2:] {
		h.held += s.Value.Uint64()
	}
	return h
}
