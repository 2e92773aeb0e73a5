package outcome_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/belfrydb/belfry/node/outcome"
)

func TestOutcomeOfSentinels(t *testing.T) {
	tests := []struct {
		err  error
		want outcome.Outcome
	}{
		{outcome.ErrNotLeader, outcome.NotApplied},
		{outcome.ErrNoLeader, outcome.NotApplied},
		{outcome.ErrOverloaded, outcome.NotApplied},
		{outcome.ErrShuttingDown, outcome.NotApplied},
		{outcome.ErrDiskFull, outcome.NotApplied},
		{outcome.ErrClockAhead, outcome.NotApplied},
		{outcome.ErrCanceled, outcome.NotApplied},
		{outcome.ErrTooLarge, outcome.NotApplied},
		{outcome.ErrUnknownShard, outcome.NotApplied},
		{outcome.ErrUnknownOutcome, outcome.Unknown},
		{context.DeadlineExceeded, outcome.Unknown},
		{errors.New("foreign"), outcome.Unknown},
	}
	for _, tt := range tests {
		if got := outcome.Of(fmt.Errorf("shard 3: %w", tt.err)); got != tt.want {
			t.Errorf("outcome of %q is %v, want %v", tt.err, got, tt.want)
		}
	}
	if got := fmt.Sprint(outcome.Applied, outcome.NotApplied, outcome.Unknown); got != "applied not applied unknown" {
		t.Errorf("outcomes read %q", got)
	}
}

func TestCanceledKeepsTheReason(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	<-ctx.Done()
	err := outcome.Canceled(ctx)
	if !errors.Is(err, outcome.ErrCanceled) || !errors.Is(err, context.DeadlineExceeded) ||
		outcome.Of(err) != outcome.NotApplied {
		t.Errorf("error is %v with outcome %v", err, outcome.Of(err))
	}
}
