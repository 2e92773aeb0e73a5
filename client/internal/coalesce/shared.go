// Package coalesce makes concurrent calls share round trips: single puts and acks become batches,
// and calls for one job become polls for many.
package coalesce

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/client/internal/batching"
)

// Limits bound the batches of a client.
type Limits struct {
	// InFlight is how many batches of one kind may be in flight at a time.
	InFlight int
	// MaxCalls and MaxBytes bound one batch.
	MaxCalls, MaxBytes int
	// MaxDelay is how long to hold back a batch that is not full.
	MaxDelay time.Duration
}

// batches returns the limits of batches.
func (l Limits) batches() batching.Limits {
	return batching.Limits{InFlight: l.InFlight, MaxCalls: l.MaxCalls}
}

// Shared is what all batches and polls of a client share.
type Shared struct {
	Limits Limits
	// Gate makes batches and polls leave together.
	Gate *batching.Gate
	// Start runs f in a goroutine. It returns false, and does not, if the client is closed.
	Start func(f func()) bool
	// Lifetime returns the context of batches and polls, which outlive single calls. It ends when the
	// client is closed.
	Lifetime func() context.Context
}
