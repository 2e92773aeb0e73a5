package node

import "github.com/belfrydb/belfry/node/outcome"

// Outcome is what is known about a request when its call ends. See package outcome.
type Outcome = outcome.Outcome

// The three outcomes.
const (
	Applied    = outcome.Applied
	NotApplied = outcome.NotApplied
	Unknown    = outcome.Unknown
)

// OutcomeOf returns the outcome that err stands for: Applied for nil, and Unknown for an error that
// is not of this package.
func OutcomeOf(err error) Outcome { return outcome.Of(err) }

// The errors that callers branch on, with errors.Is. Package outcome says what each means.
var (
	ErrNotLeader      = outcome.ErrNotLeader
	ErrNoLeader       = outcome.ErrNoLeader
	ErrOverloaded     = outcome.ErrOverloaded
	ErrShuttingDown   = outcome.ErrShuttingDown
	ErrQuota          = outcome.ErrQuota
	ErrRateLimited    = outcome.ErrRateLimited
	ErrShareUnknown   = outcome.ErrShareUnknown
	ErrDiskFull       = outcome.ErrDiskFull
	ErrMemoryFull     = outcome.ErrMemoryFull
	ErrTooFewVoters   = outcome.ErrTooFewVoters
	ErrNoQueue        = outcome.ErrNoQueue
	ErrClockAhead     = outcome.ErrClockAhead
	ErrCanceled       = outcome.ErrCanceled
	ErrRestoring      = outcome.ErrRestoring
	ErrTooLarge       = outcome.ErrTooLarge
	ErrUnknownShard   = outcome.ErrUnknownShard
	ErrNotHere        = outcome.ErrNotHere
	ErrLeads          = outcome.ErrLeads
	ErrDisproved      = outcome.ErrDisproved
	ErrOvertaken      = outcome.ErrOvertaken
	ErrSilent         = outcome.ErrSilent
	ErrUnknownOutcome = outcome.ErrUnknownOutcome
)
