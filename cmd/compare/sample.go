package main

import (
	"fmt"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/cmd/compare/peer"
)

// A sample is what one peer did in one phase of a work, in one round.
type sample struct {
	Round int    `json:"round"`
	Work  string `json:"work"`
	Phase string `json:"phase"`
	Peer  string `json:"peer"`
	// Jobs were done in Seconds; CPU is what the servers used for them, ClientCPU what this process
	// did, in seconds, Resident the servers' memory afterwards, in bytes.
	Jobs      int64   `json:"jobs"`
	Seconds   float64 `json:"seconds"`
	CPU       float64 `json:"cpuSeconds"`
	ClientCPU float64 `json:"clientCpuSeconds"`
	Resident  int64   `json:"residentBytes"`
	// PerJob is by how much the memory of one server grew with each job or call that waits, in bytes.
	// Of the works that fill or park.
	PerJob float64 `json:"bytesPerJob,omitempty"`
	// Least, Half, Most99 and Most are the least, the median, the 99th percentile and the greatest of
	// what the phase measures of each call or job, in milliseconds; negative is early.
	Least  float64 `json:"leastMs"`
	Half   float64 `json:"p50Ms"`
	Most99 float64 `json:"p99Ms"`
	Most   float64 `json:"mostMs"`
	// Failed says why the peer could not do the work; then there is nothing else.
	Failed string `json:"failed,omitempty"`
}

// failedPhase is the phase of samples of works that could not be done.
const failedPhase = "failed"

// String returns a line for the terminal.
func (s sample) String() string {
	text := fmt.Sprintf("round %d  %-10s %-8s %-19s", s.Round+1, s.Work, s.Phase, s.Peer)
	if s.Failed != "" {
		return text + " " + s.Failed
	}
	if s.Phase == "again" {
		return text + fmt.Sprintf("%9.2f s until the first put", s.Seconds)
	}
	return text + fmt.Sprintf("%9.0f jobs/s  p50 %.2f ms  p99 %.2f ms  CPU s / 100,000 %.2f (clients %.2f)",
		s.rate(), s.Half, s.Most99, s.per100k(s.CPU), s.per100k(s.ClientCPU))
}

// rate is in jobs a second.
func (s sample) rate() float64 { return float64(s.Jobs) / max(s.Seconds, 1e-9) }

// per100k is what 100,000 jobs cost of which all cost so much.
func (s sample) per100k(cost float64) float64 { return cost / float64(max(s.Jobs, 1)) * 100_000 }

// measure fills in a sample what work did.
func measure(r *peer.Running, phase string, work func(h *histogram) (int64, error)) (sample, error) {
	before, err := peer.UsageOf(r.Processes)
	if err != nil {
		return sample{}, err
	}
	client := ownCPU()
	began := time.Now()
	h := newHistogram()
	jobs, err := work(h)
	took := time.Since(began)
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w", phase, err)
	}
	clientAfter := ownCPU()
	after, err := peer.UsageOf(r.Processes)
	if err != nil {
		return sample{}, err
	}
	s := sample{Phase: phase, Jobs: jobs, Seconds: took.Seconds(), CPU: (after.CPU - before.CPU).Seconds(),
		ClientCPU: (clientAfter - client).Seconds(), Resident: after.Resident}
	s.times(h)
	return s, nil
}

// times sets what a histogram says.
func (s *sample) times(h *histogram) {
	s.Least, s.Half, s.Most99, s.Most = h.at(0), h.at(50), h.at(99), h.at(100)
}

// ownCPU is the processor time of this process, 0 if the system does not say.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
