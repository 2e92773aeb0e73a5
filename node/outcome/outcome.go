// Package outcome says what is known about a request when its call ends. It declares the errors on
// which callers of node and its rooms branch, each with the outcome that it stands for. Package
// node gives them its own name to the outside.
package outcome

import (
	"context"
	"errors"
	"fmt"
)

// Outcome is what is known about a request when its call ends.
type Outcome uint8

// The three outcomes.
const (
	// Applied: the request is in the log of a majority, and its results are known.
	Applied Outcome = iota
	// NotApplied: the request was never logged and never will be. It may be sent again, here or
	// elsewhere.
	NotApplied
	// Unknown: the request may have been logged. Only a repeat with the same request id finds out.
	Unknown
)

// String returns "applied", "not applied" or "unknown".
func (o Outcome) String() string {
	switch o {
	case Applied:
		return "applied"
	case NotApplied:
		return "not applied"
	default:
		return "unknown"
	}
}

// refusal is a sentinel error with the outcome that it stands for.
type refusal struct {
	text    string
	outcome Outcome
}

// Error returns the text of the sentinel.
func (r *refusal) Error() string { return r.text }

// The errors that callers branch on, with errors.Is. Each means that nothing was applied, unless it
// is wrapped with ErrUnknownOutcome. None says what became of an earlier attempt at the same
// request.
var (
	// ErrNotLeader: another node leads the shard.
	ErrNotLeader error = &refusal{"this node does not lead the shard", NotApplied}
	// ErrNoLeader: no node is known to lead the shard, or its new leader does not serve yet.
	ErrNoLeader error = &refusal{"the shard has no leader that serves", NotApplied}
	// ErrOverloaded: the shard's queue of requests is full.
	ErrOverloaded error = &refusal{"the shard's queue of requests is full", NotApplied}
	// ErrShuttingDown: the node takes no new work.
	ErrShuttingDown error = &refusal{"the node is shutting down", NotApplied}
	// ErrQuota: a namespace has used up its quota of jobs, bytes or leases; ErrRateLimited: of
	// puts. See QuotaError.
	ErrQuota       error = &refusal{"the namespace has used up its quota", NotApplied}
	ErrRateLimited error = &refusal{"the namespace takes no more puts for the moment", NotApplied}
	// ErrQuotaUnknown: the shard's leader does not know its part of the namespace's quota yet.
	ErrQuotaUnknown error = &refusal{"the shard's leader does not know yet what it may use of the namespace's quota",
		NotApplied}
	// ErrDiskFull: the disk is below its low-water mark and the request would add to it, or far
	// below and the request would not free space.
	ErrDiskFull error = &refusal{"the disk is almost full", NotApplied}
	// ErrMemoryFull: a voter of the shard is above its memory mark, and the request would add to
	// it. See MemoryError.
	ErrMemoryFull error = &refusal{"the memory is almost full", NotApplied}
	// ErrTooFewVoters: the shard has fewer voters than the cluster requires, and the request would
	// not free space. See VotersError.
	ErrTooFewVoters error = &refusal{"the shard has too few voters", NotApplied}
	// ErrNoQueue: the put's queue does not exist, and puts do not create queues. See NoQueueError.
	ErrNoQueue error = &refusal{"there is no such queue", NotApplied}
	// ErrClockAhead: the clock of the shard's leader is too far from the other voters' clocks, or
	// cannot be compared with them, so the leader stamps no entries.
	ErrClockAhead error = &refusal{"the leader's clock does not agree with the other voters'", NotApplied}
	// ErrCanceled: the caller's context ended before the request was logged. The context's error is
	// wrapped with it.
	ErrCanceled error = &refusal{"the call ended before the request was logged", NotApplied}
	// ErrRestoring: a restore of the shard has begun and not ended.
	ErrRestoring error = &refusal{"a restore of the shard has begun and not ended", NotApplied}
	// ErrTooLarge: the request alone exceeds what a log entry may hold.
	ErrTooLarge error = &refusal{"the request is larger than a log entry may be", NotApplied}
	// ErrUnsupported: a node that would have to answer runs an earlier version, which does not know
	// the call.
	ErrUnsupported error = &refusal{"not all nodes run a version that knows this call", NotApplied}
	// ErrUnknownShard: the shard's number is not below the number of shards.
	ErrUnknownShard error = &refusal{"no such shard", NotApplied}
	// ErrNotHere: this node has no replica of the shard, or the replica is restoring its state.
	ErrNotHere error = &refusal{"the shard is not on this node", NotApplied}
	// ErrLeads: the replica cannot be stopped because it leads the shard, or is its only voter.
	ErrLeads error = &refusal{"this node leads the shard", NotApplied}
	// ErrDisproved: the replica does not differ from the others as the caller claims.
	ErrDisproved error = &refusal{"the replica does not differ at that index", NotApplied}
	// ErrOvertaken: the members of the group are no longer those on which the change was based.
	ErrOvertaken error = &refusal{"the members of the group have changed meanwhile", NotApplied}
	// ErrSilent: a member on which a change relies has not answered the group's leader recently.
	ErrSilent error = &refusal{"a member has not answered lately", NotApplied}
	// ErrUnknownOutcome: the request may or may not have been applied. The cause is wrapped with
	// it.
	ErrUnknownOutcome error = &refusal{"the outcome of the request is unknown", Unknown}
)

// Of returns the outcome that err stands for: Applied for nil, and Unknown for an error that is
// not of this package.
func Of(err error) Outcome {
	if err == nil {
		return Applied
	}
	var r *refusal
	if errors.As(err, &r) {
		return r.outcome
	}
	return Unknown
}

// Canceled returns ErrCanceled with the reason why ctx ended.
func Canceled(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrCanceled, context.Cause(ctx))
}
