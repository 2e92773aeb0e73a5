// Package histogram counts values in buckets for metrics.
package histogram

import (
	"slices"
	"sync"
	"time"
)

// Values are the values that a Histogram has collected, in buckets. Counts[i] is the number of
// values at most Bounds[i] and above Bounds[i-1]. The last of Counts has no bound and holds the
// rest.
type Values struct {
	Bounds []float64
	Counts []uint64
	Sum    float64
	Count  uint64
}

// Histogram collects values. Its methods may be called from any goroutine. New makes one; the zero
// value is not usable.
type Histogram struct {
	bounds []float64

	mu     sync.Mutex
	counts []uint64
	sum    float64
	count  uint64
}

// Doubling returns a histogram whose lowest bound is first. Each further bound is twice the one
// before.
func Doubling(first float64, bounds int) *Histogram {
	values := make([]float64, bounds)
	for i := range values {
		values[i] = first
		first *= 2
	}
	return New(values)
}

// New returns a histogram with these bounds, in ascending order.
func New(bounds []float64) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

// Seconds returns a histogram of durations in seconds, from 50 µs to 26 s.
func Seconds() *Histogram { return Doubling(50e-6, 20) }

// Observe adds a duration; the values are seconds.
func (h *Histogram) Observe(d time.Duration) { h.Add(d.Seconds()) }

// Add adds values under one lock.
func (h *Histogram) Add(values ...float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range values {
		i, _ := slices.BinarySearch(h.bounds, v)
		h.counts[i]++
		h.sum += v
	}
	h.count += uint64(len(values))
}

// Value returns what was collected.
func (h *Histogram) Value() Values {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Values{Bounds: h.bounds, Counts: slices.Clone(h.counts), Sum: h.sum, Count: h.count}
}
