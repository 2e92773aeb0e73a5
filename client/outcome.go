package client

import (
	"strings"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// An Outcome says what became of the change that a failed call asked for. It is a text, for
// messages and logs.
type Outcome string

// What may have become of a change.
const (
	// OutcomeApplied says that the change was made.
	OutcomeApplied Outcome = "APPLIED"
	// OutcomeNotApplied says that the call made no change and will not make one. If an earlier
	// attempt with the same request id ended with OutcomeUnknown, that outcome stays unknown after
	// a refusal that comes from the moment, such as NO_LEADER: repeat the call until it is
	// answered.
	OutcomeNotApplied Outcome = "NOT_APPLIED"
	// OutcomeUnknown says that the change may have been made, or may be made later. Repeat the call
	// with the same request id to find out. [ErrUnknownOutcome] matches such an error.
	OutcomeUnknown Outcome = "UNKNOWN"
)

// outcomeOf returns the outcome of a message, empty if it has none that this version knows.
func outcomeOf(o belfryv1.Outcome) Outcome {
	switch o {
	case belfryv1.Outcome_OUTCOME_APPLIED:
		return OutcomeApplied
	case belfryv1.Outcome_OUTCOME_NOT_APPLIED:
		return OutcomeNotApplied
	case belfryv1.Outcome_OUTCOME_UNKNOWN:
		return OutcomeUnknown
	default:
		return ""
	}
}

// outcomeNamed is outcomeOf for a name, which may be in lower case and without its prefix.
func outcomeNamed(name string) Outcome {
	return outcomeOf(belfryv1.Outcome(
		belfryv1.Outcome_value["OUTCOME_"+strings.TrimPrefix(strings.ToUpper(name), "OUTCOME_")]))
}
