package raftgroup

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/outcome"
)

// ProposalError translates the error of a Raft proposal. It alone decides which errors mean that
// the entry was never logged; outcome_test.go has a row for each. All others mean an unknown
// outcome.
func ProposalError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		// Answered by a follower's or candidate's main loop, or by a leader that is removing itself:
		// never dispatched.
		return fmt.Errorf("%w: %w", outcome.ErrNotLeader, err)
	case errors.Is(err, raft.ErrEnqueueTimeout):
		// Raft's main loop did not take the entry, so it is busy or blocked: never dispatched.
		return fmt.Errorf("%w: %w", outcome.ErrOverloaded, err)
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		// The leader is handing over and takes nothing: never dispatched.
		return fmt.Errorf("%w: %w", outcome.ErrNoLeader, err)
	case errors.Is(err, raft.ErrAbortedByRestore):
		// An operator's restore replaced the state; the entry's effects are not in it.
		return fmt.Errorf("%w: %w", outcome.ErrNoLeader, err)
	default:
		// ErrLeadershipLost: a successor may have the entry. ErrRaftShutdown: also answered for committed
		// entries. A storage error: the entry may be durable all the same. Anything else: not known to
		// this table.
		return fmt.Errorf("%w: %w", outcome.ErrUnknownOutcome, err)
	}
}
