package node

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
)

func TestProposalErrors(t *testing.T) {
	tests := []struct {
		name    string
		raft    error
		want    error
		outcome Outcome
	}{
		{"committed", nil, nil, Applied},
		{"enqueue timeout", raft.ErrEnqueueTimeout, ErrOverloaded, NotApplied},
		{"not the leader", raft.ErrNotLeader, ErrNotLeader, NotApplied},
		{"leadership transfer", raft.ErrLeadershipTransferInProgress, ErrNoLeader, NotApplied},
		{"aborted by restore", raft.ErrAbortedByRestore, ErrNoLeader, NotApplied},
		{"leadership lost", raft.ErrLeadershipLost, ErrUnknownOutcome, Unknown},
		{"shutdown", raft.ErrRaftShutdown, ErrUnknownOutcome, Unknown},
		{"storage failed", errors.New("input/output error"), ErrUnknownOutcome, Unknown},
		{"wrapped", fmt.Errorf("applying: %w", raft.ErrNotLeader), ErrNotLeader, NotApplied},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := proposalError(tt.raft)
			if !errors.Is(err, tt.want) {
				t.Errorf("error is %v, want %v", err, tt.want)
			}
			if tt.raft != nil && !errors.Is(err, tt.raft) {
				t.Errorf("error %v does not wrap its cause %v", err, tt.raft)
			}
			if got := OutcomeOf(err); got != tt.outcome {
				t.Errorf("outcome is %v, want %v", got, tt.outcome)
			}
		})
	}
}

func TestOutcomeOfSentinels(t *testing.T) {
	tests := []struct {
		err  error
		want Outcome
	}{
		{ErrNotLeader, NotApplied},
		{ErrNoLeader, NotApplied},
		{ErrOverloaded, NotApplied},
		{ErrShuttingDown, NotApplied},
		{ErrDiskFull, NotApplied},
		{ErrClockAhead, NotApplied},
		{ErrCanceled, NotApplied},
		{ErrTooLarge, NotApplied},
		{ErrUnknownShard, NotApplied},
		{ErrUnknownOutcome, Unknown},
		{context.DeadlineExceeded, Unknown},
		{errors.New("foreign"), Unknown},
	}
	for _, tt := range tests {
		if got := OutcomeOf(fmt.Errorf("shard 3: %w", tt.err)); got != tt.want {
			t.Errorf("outcome of %q is %v, want %v", tt.err, got, tt.want)
		}
	}
	if got := fmt.Sprint(Applied, NotApplied, Unknown); got != "applied not applied unknown" {
		t.Errorf("outcomes read %q", got)
	}
}

func TestCanceledKeepsTheReason(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	<-ctx.Done()
	err := canceled(ctx)
	if !errors.Is(err, ErrCanceled) || !errors.Is(err, context.DeadlineExceeded) || OutcomeOf(err) != NotApplied {
		t.Errorf("error is %v with outcome %v", err, OutcomeOf(err))
	}
}
