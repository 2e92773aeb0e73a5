package server

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// The collector may let the heap grow by this share of what is alive. Little suffices: the jobs have no pointers, so
	// a cycle costs little however many there are.
	percentLeast = 15
	// A small heap may grow by this much all the same: a cycle for each few megabytes of garbage would cost throughput and
	// save nothing that anyone would notice.
	headroomBytes = 128 << 20
	percentMost   = 800
	tunePeriod    = time.Second
	// A process that allocates less than idleBytes in a period is idle, and gives memory back once it has been for restAfter, if that is restBytes or more.
	idleBytes = 4 << 20
	restBytes = 32 << 20
	restAfter = 2 * tunePeriod
	// restEvery is how often it does so at the most: pages that are given back cost a fault each when they are used again.
	restEvery = 10 * time.Second
)

// TuneCollector sets how often the garbage collector of the process runs, following the size of the heap, and gives memory back to the system when the process has become idle,
// until ctx ends. It is for a process that an operator has not tuned by GOGC. A limit by GOMEMLIMIT holds as well.
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
		if idle.rests(now) {
			debug.FreeOSMemory()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// idleness tells when a process should give memory back: while it is idle no collection comes that would.
type idleness struct {
	allocated uint64        // at the last look
	quiet     time.Duration // for how long there was little
	since     time.Duration // since memory was given back
	floor     uint64        // what was held at least since then: the rest is in pieces that cannot be given back
}

// rests reports whether to do so now. It is asked once every tunePeriod.
func (i *idleness) rests(h heap) bool {
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

// collectorPercent returns GOGC for a heap with so many live bytes, in steps of 25 so that it seldom changes: setting it
// stops the world for a moment.
func collectorPercent(live uint64) int {
	percent := uint64(percentMost)
	if live > 0 {
		percent = min(percent, headroomBytes*100/live)
	}
	return max(percentLeast, int(percent)/25*25) //nolint:gosec // at most percentMost
}

// heap is what the runtime tells about the heap, in bytes.
type heap struct {
	live      uint64 // what the last collection found alive
	held      uint64 // what the process has of the system for it
	allocated uint64 // all that was ever allocated
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	h := heap{live: samples[0].Value.Uint64(), allocated: samples[1].Value.Uint64()}
	for _, s := range samples[2:] {
		h.held += s.Value.Uint64()
	}
	return h
}
