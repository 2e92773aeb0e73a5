package raftgroup

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/outcome"
)

func TestProposalErrors(t *testing.T) {
	tests := []struct {
		name    string
		raft    error
		want    error
		outcome outcome.Outcome
	}{
		{"committed", nil, nil, outcome.Applied},
		{"enqueue timeout", raft.ErrEnqueueTimeout, outcome.ErrOverloaded, outcome.NotApplied},
		{"not the leader", raft.ErrNotLeader, outcome.ErrNotLeader, outcome.NotApplied},
		{"leadership transfer", raft.ErrLeadershipTransferInProgress, outcome.ErrNoLeader, outcome.NotApplied},
		{"aborted by restore", raft.ErrAbortedByRestore, outcome.ErrNoLeader, outcome.NotApplied},
		{"leadership lost", raft.ErrLeadershipLost, outcome.ErrUnknownOutcome, outcome.Unknown},
		{"shutdown", raft.ErrRaftShutdown, outcome.ErrUnknownOutcome, outcome.Unknown},
		{"storage failed", errors.New("input/output error"), outcome.ErrUnknownOutcome, outcome.Unknown},
		{"wrapped", fmt.Errorf("applying: %w", raft.ErrNotLeader), outcome.ErrNotLeader, outcome.NotApplied},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := ProposalError(tt.raft)
			if !errors.Is(err, tt.want) {
				t.Errorf("error is %v, want %v", err, tt.want)
			}
			if tt.raft != nil && !errors.Is(err, tt.raft) {
				t.Errorf("error %v does not wrap its cause %v", err, tt.raft)
			}
			if got := outcome.Of(err); got != tt.outcome {
				t.Errorf("outcome is %v, want %v", got, tt.outcome)
			}
		})
	}
}
