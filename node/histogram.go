package node

import (
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node/storage"
)

// histogram collects values for a Histogram. The zero value is not usable; see newHistogram.
type histogram struct {
	bounds []float64

	mu     sync.Mutex
	counts []uint64
	sum    float64
	count  uint64
}

// newHistogram returns a histogram whose lowest bound is first. Each further bound is twice the one
// before.
func newHistogram(first float64, bounds int) *histogram {
	values := make([]float64, bounds)
	for i := range values {
		values[i] = first
		first *= 2
	}
	return newHistogramOf(values)
}

// newHistogramOf returns a histogram with these bounds, in ascending order.
func newHistogramOf(bounds []float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
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

// histogramOf returns the latencies of a store in seconds.
func histogramOf(l *storage.Latency) Histogram {
	h := Histogram{Counts: l.Buckets[:], Sum: l.Sum.Seconds()}
	for i := range storage.LatencyBuckets - 1 {
		h.Bounds = append(h.Bounds, storage.LatencyBound(i).Seconds())
	}
	for _, n := range h.Counts { // not l.Count, which may have been read a moment before
		h.Count += n
	}
	return h
}

// value returns what was collected.
func (h *histogram) value() Histogram {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Histogram{Bounds: h.bounds, Counts: slices.Clone(h.counts), Sum: h.sum, Count: h.count}
}
