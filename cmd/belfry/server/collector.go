package server

import (
	"context"
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
)

// TuneCollector sets how often the garbage collector of the process runs, following the size of the heap, until ctx ends.
// It is for a process that an operator has not tuned by GOGC. A limit by GOMEMLIMIT holds as well.
func TuneCollector(ctx context.Context) {
	ticker := time.NewTicker(tunePeriod)
	defer ticker.Stop()
	current := 0
	for {
		if percent := collectorPercent(liveBytes()); percent != current {
			debug.SetGCPercent(percent)
			current = percent
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
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

func liveBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
