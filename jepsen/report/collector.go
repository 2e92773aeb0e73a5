package report

import (
	"slices"
	"sync"
	"time"
)

// Kind is how a call ended.
type Kind uint8

// The kinds of ends.
const (
	// Applied calls were answered without an error.
	Applied Kind = iota + 1
	// Refused calls had no effect.
	Refused
	// Unknown calls may have had one.
	Unknown
)

// Call is one that has ended.
type Call struct {
	// Ended is when, since the start of the run. What ended before it counts in the first second.
	Ended time.Duration
	Kind  Kind
	// Latency is 0 for a call that does not count as one that changes something and does not wait.
	Latency time.Duration
	// Lateness holds one for each job that the call handed out for the first time. An early one counts
	// as 0 here: that it was early is for the checker.
	Lateness []time.Duration
}

// Collector makes seconds of calls. Its zero value is ready, and any goroutine may use it.
//
// It keeps each duration, 8 bytes of it, until the end: little beside the call's place in the
// history, the quantiles are exact, and a call that is told of late still counts in its second.
type Collector struct {
	mu      sync.Mutex
	seconds map[int]*collected
}

// collected is one second.
type collected struct {
	calls             [Unknown]int64 // by Kind, less one
	latency, lateness []time.Duration
}

// Add takes one call into its second. It keeps nothing of the slice, and panics at a Kind that is
// none.
func (c *Collector) Add(call Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := max(0, int(call.Ended/time.Second))
	s := c.seconds[at]
	if s == nil {
		if c.seconds == nil {
			c.seconds = make(map[int]*collected)
		}
		s = &collected{}
		c.seconds[at] = s
	}
	s.calls[call.Kind-1]++
	if call.Latency > 0 {
		s.latency = append(s.latency, call.Latency)
	}
	for _, late := range call.Lateness {
		s.lateness = append(s.lateness, max(0, late))
	}
}

// Seconds returns what was seen in each second of a run of so long, and of calls that ended after
// it.
func (c *Collector) Seconds(length time.Duration) []Second {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := int((length + time.Second - 1) / time.Second)
	for at := range c.seconds {
		n = max(n, at+1)
	}
	seconds := make([]Second, n)
	for at, s := range c.seconds {
		seconds[at] = Second{
			Applied: s.calls[Applied-1], NotApplied: s.calls[Refused-1], Unknown: s.calls[Unknown-1],
			Latency: quantiles(s.latency), Lateness: quantiles(s.lateness),
		}
	}
	return seconds
}

// quantiles sorts the durations that it is given.
func quantiles(durations []time.Duration) Quantiles {
	n := len(durations)
	if n == 0 {
		return Quantiles{}
	}
	slices.Sort(durations)
	// The smallest value that a share of all does not exceed.
	rank := func(percent int) float64 { return milliseconds(durations[(n*percent+99)/100-1]) }
	return Quantiles{Count: int64(n), P50: rank(50), P99: rank(99), Max: milliseconds(durations[n-1])}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
