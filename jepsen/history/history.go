// Package history holds what clients asked and were told in one run, in the order of true time, and
// keeps it in a file.
package history

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Op is one call of a client, from the moment it was sent until it was answered or given up. A call
// that is repeated, with the same request id or the same job id, is an Op each time.
type Op struct {
	// Client is the name of the client, which has one call under way at a time; Node is the node that
	// it asked, by name.
	Client, Node string
	// Workload is the name of the workload that the call is part of.
	Workload string
	// Token is the id of the token that the call carried; empty if it carried none. Forged says that
	// it was not that token's secret.
	Token  string
	Forged bool
	// Invoked and Returned are when the call was sent and when it ended, since the start of the run,
	// by the harness's own clock.
	Invoked, Returned time.Duration
	// Outcome is what the caller knows. Unknown is also a call without an answer.
	Outcome belfryv1.Outcome
	// Reason is that of the error, and Message what it said; unspecified and empty for a call that was
	// answered.
	Reason  belfryv1.Reason
	Message string
	// Witness is that of the error, if it has one; those of an answer are in Response.
	Witness *belfryv1.Witness
	// Request is what was asked; one of the requests of QueueService or AdminService that change or
	// read queues and jobs.
	Request proto.Message
	// Response is what was answered; nil unless the call ended without an error.
	Response proto.Message
}

// OK reports whether the call was answered without an error.
func (o *Op) OK() bool { return o.Response != nil }

// History is the calls of a run. Add may be called from any goroutine; what reads it must come
// after the last Add.
type History struct {
	// Start is the true time of the start of the run, to which the times of all calls are relative.
	Start time.Time

	mu       sync.Mutex
	ops      []*Op
	passages []Passage
	statuses []Status
}

// New returns an empty history that begins now.
func New() *History { return &History{Start: time.Now()} }

// Now returns the time since the start of the run. It is monotonic.
func (h *History) Now() time.Duration { return time.Since(h.Start) }

// Add takes a call that has ended.
func (h *History) Add(o *Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// Len returns how many calls have ended so far.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

// Ops returns all calls in the order in which they were sent.
func (h *History) Ops() []*Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	// they stay sorted for the next call
	slices.SortStableFunc(h.ops, func(a, b *Op) int { return cmp.Compare(a.Invoked, b.Invoked) })
	return slices.Clone(h.ops)
}
