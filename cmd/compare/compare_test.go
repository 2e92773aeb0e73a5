package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 100}, 3}} {
		if got := median(c.of); got != c.want {
			t.Errorf("the median of %v is %v, want %v", c.of, got, c.want)
		}
	}
}

// TestHistogram has early and late ones in one order.
func TestHistogram(t *testing.T) {
	h := newHistogram()
	if h.at(50) != 0 {
		t.Error("nothing has a median")
	}
	for _, ms := range []int{-2, -1, 1, 2, 3, 4, 5, 6, 7, 8} {
		h.record(time.Duration(ms) * time.Millisecond)
	}
	for percent, want := range map[float64]float64{0: -2, 20: 1, 60: 4, 100: 8} {
		if got := h.at(percent); math.Abs(got-want) > 0.01 {
			t.Errorf("percentile %v is %v ms, want %v", percent, got, want)
		}
	}
}

func TestChoose(t *testing.T) {
	all := []string{"a", "b", "c"}
	same := func(s string) string { return s }
	if got, err := choose(all, "", same); err != nil || len(got) != 3 {
		t.Errorf("all are %v, %v", got, err)
	}
	if got, err := choose(all, "c,a", same); err != nil || strings.Join(got, "") != "ca" {
		t.Errorf("chosen are %v, %v", got, err)
	}
	if _, err := choose(all, "c,d", same); err == nil || !strings.Contains(err.Error(), `"d"`) {
		t.Errorf("an unknown one: %v", err)
	}
}

// TestTables: ratios are those of medians, and what could not be done is said.
func TestTables(t *testing.T) {
	samples := []sample{
		{Work: "batch", Phase: "put", Peer: "belfry-one", Jobs: 400, Seconds: 1, CPU: 0.001},
		{Work: "batch", Phase: "put", Peer: "belfry-one", Jobs: 600, Seconds: 1, CPU: 0.001},
		{Work: "batch", Phase: "put", Peer: "redis-always", Jobs: 100, Seconds: 1},
		{Work: "herd", Phase: failedPhase, Peer: "redis-always", Failed: "too slow"},
	}
	all := record{Runs: []invocation{{Seconds: 1, Versions: map[string]string{"belfry-one": "1"}}}, Samples: samples}
	var b bytes.Buffer
	tables(&b, markdown, all)
	text := b.String()
	for _, want := range []string{"| belfry-one | 500 | (400–600) | 5.00 |", "| redis-always | 100 | (100–100) | 1.00 |",
		"redis-always could not do herd, 1 times: too slow"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}
