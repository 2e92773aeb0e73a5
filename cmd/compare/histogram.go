package main

import (
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// histogram holds durations, also negative ones. Any goroutine may record.
type histogram struct {
	mu          sync.Mutex
	late, early *hdr.Histogram
}

const histogramMax = int64(10 * time.Minute / time.Microsecond)

func newHistogram() *histogram {
	return &histogram{late: hdr.New(1, histogramMax, 3), early: hdr.New(1, histogramMax, 3)}
}

func (h *histogram) record(d time.Duration) {
	micros := min(d.Microseconds(), histogramMax)
	h.mu.Lock()
	defer h.mu.Unlock()
	if micros < 0 {
		h.early.RecordValue(min(-micros, histogramMax)) //nolint:errcheck // it is in range
		return
	}
	h.late.RecordValue(micros) //nolint:errcheck // likewise
}

// at returns a percentile in milliseconds, 0 if nothing was recorded.
func (h *histogram) at(percent float64) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	early, late := h.early.TotalCount(), h.late.TotalCount()
	if early+late == 0 {
		return 0
	}
	place := percent / 100 * float64(early+late)
	if place < float64(early) {
		return -float64(h.early.ValueAtPercentile(100*(1-place/float64(early)))) / 1000
	}
	if late == 0 {
		return -float64(h.early.Min()) / 1000
	}
	if place == float64(early) {
		return float64(h.late.Min()) / 1000
	}
	return float64(h.late.ValueAtPercentile(100*(place-float64(early))/float64(late))) / 1000
}
