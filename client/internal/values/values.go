// Package values converts between messages and the values that users of the SDK see.
package values

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A State is a job's state. The public packages have it under the same name, with its
// documentation.
type State string

const statePrefix = "JOB_STATE_"

// StateOf returns the state of a message, empty if it is not set. A state of a later version keeps
// its number.
func StateOf(s belfryv1.JobState) State {
	switch s {
	case belfryv1.JobState_JOB_STATE_UNSPECIFIED:
		return ""
	case belfryv1.JobState_JOB_STATE_DELAYED: // the three that most answers have
		return "DELAYED"
	case belfryv1.JobState_JOB_STATE_READY:
		return "READY"
	case belfryv1.JobState_JOB_STATE_RESERVED:
		return "RESERVED"
	default:
		return State(strings.TrimPrefix(s.String(), statePrefix))
	}
}

// StateNumber returns the state's number in a message, unspecified for the empty state. ok is false
// for a word that is not a state.
func StateNumber(s State) (state belfryv1.JobState, ok bool) {
	if s == "" {
		return belfryv1.JobState_JOB_STATE_UNSPECIFIED, true
	}
	n, ok := belfryv1.JobState_value[statePrefix+string(s)]
	return belfryv1.JobState(n), ok
}

// TimeOf returns the time of a message, zero if it is not set.
func TimeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// Timestamp returns a time for a message, nil if the time is zero.
func Timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// DurationOf returns the duration of a message, nil if it is not set.
func DurationOf(d *durationpb.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	return new(d.AsDuration())
}

// Duration returns a duration for a message, nil for nil.
func Duration(d *time.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(*d)
}

// CountOf returns the number of a message, nil if it is not set.
func CountOf(n *uint32) *int {
	if n == nil {
		return nil
	}
	return new(int(*n))
}

// Each returns what f makes of the entries of a list, in order; nil for an empty list.
func Each[T, U any](list []T, f func(T) U) (all []U) {
	for _, entry := range list {
		all = append(all, f(entry))
	}
	return all
}
