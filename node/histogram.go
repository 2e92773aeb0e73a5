package node

import (
	"slices"
	"sync"
	"time"
)

// histogram collects values for a Histogram. The zero value is not usable; see newHistogram.
type histogram struct {
	bounds []float64

	mu     sync.Mutex
	counts []uint64
	sum    float64
	count  uint64
}

// newHistogram returns a histogram whose first bound is first and whose others each double the one before.
func newHistogram(first float64, bounds int) *histogram {
	h := &histogram{bounds: make([]float64, bounds), counts: make([]uint64, bounds+1)}
	for i := range h.bounds {
		h.bounds[i] = first
		first *= 2
	}
	return h
}

// newSeconds returns a histogram of durations in seconds, from 50 µs to 26 s.
func newSeconds() *histogram { return newHistogram(50e-6, 20) }

// observe adds a duration in seconds.
func (h *histogram) observe(d time.Duration) { h.add(d.Seconds()) }

// add adds values under one lock.
func (h *histogram) add(values ...float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range values {
		i, _ := slices.BinarySearch(h.bounds, v)
		h.counts[i]++
		h.sum += v
	}
	h.count += uint64(len(values))
}

// value returns what was collected.
func (h *histogram) value() Histogram {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Histogram{Bounds: h.bounds, Counts: slices.Clone(h.counts), Sum: h.sum, Count: h.count}
}
