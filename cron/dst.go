package cron

import "strconv"

// DST says what happens to local times that a change of the clock leaves out or repeats. A gap is
// where the clock is put forward, a fold where it is put back.
type DST uint8

// The policies.
const (
	// Once is cronie's rule. A fixed time that falls into a gap fires at the first instant after it,
	// and one that a fold repeats fires at the first of its two instants. A time is fixed if none of
	// its seconds, minutes and hours is written with * or /; all others follow real time, as with
	// Literal.
	Once DST = iota
	// Literal fires whenever the local clock shows a time of the rule: never in a gap, twice in a
	// fold. It is what Temporal's schedules do.
	Literal
	// Skip fires at the first instant at which the local clock shows a time of the rule: never in a
	// gap, once in a fold. It is what EventBridge Scheduler does.
	Skip
)

// String returns the name of the policy on the wire.
func (d DST) String() string {
	switch d {
	case Once:
		return "ONCE"
	case Literal:
		return "LITERAL"
	case Skip:
		return "SKIP"
	default:
		return "DST(" + strconv.Itoa(int(d)) + ")"
	}
}
