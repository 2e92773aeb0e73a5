// Package tally counts what happens in simulated worlds.
package tally

import (
	"fmt"
	"strings"
)

// Count is a thing that is counted in a world.
type Count int

// The counts.
const (
	Seeds Count = iota
	Violations
	Modelled
	Commands
	Entries
	Grants
	GrantedAgain
	Acks
	StaleRefused
	Replayed
	Leads
	Survived
	Lost
	Unknowns
	Refused
	Retries
	Duplicates
	OutOfOrder
	Expires
	Snapshots
	WrittenLater
	Restores
	Installs
	ClockSteps
	Stalls
	Deaths
	Misrouted
	Rerouted
	Vague
	KeyedGrants
	OrderedGrants
	KeyedPuts
	KeyedAcks
	ReplacedJobs
	Successors
	ScheduledJobs
	MissedTimes
	LateFirings
	kinds
)

// Tally counts what happened in worlds.
type Tally [kinds]uint64

// Add adds what happened in other worlds.
func (t *Tally) Add(other Tally) {
	for i, n := range other {
		t[i] += n
	}
}

// Names are what the counts are called, in their order.
func Names() []string {
	return []string{
		"seeds", "violations", "seeds held against the model as well", "commands", "entries", "grants",
		"jobs handed out again", "acks",
		"stale leases refused", "requests answered from memory", "leader changes", "entries that survived their leader",
		"proposals lost", "unknown outcomes", "calls refused unapplied", "unknown outcomes retried", "late duplicates",
		"entries out of stamping order", "entries of the pacer", "snapshots", "snapshots written again entries later",
		"replicas restarted", "snapshots of others installed", "steps of clocks",
		"workers that stalled beyond their lease", "workers that died", "puts routed by an old count",
		"puts routed once more", "jobs that the books were vague about",
		"grants held against the limit of their key", "grants held against the order of their key", "puts with a key",
		"acks of jobs with a key", "jobs replaced", "successors begun", "jobs of schedules", "nominal times missed",
		"firings that came too late",
	}
}

// Keyed is how many operations on jobs with a key were checked.
func (t Tally) Keyed() uint64 { return t[KeyedGrants] + t[KeyedPuts] + t[KeyedAcks] }

// OfLedger returns the count that has a figure of the reference ledger; false if there is none.
func OfLedger(figure string) (Count, bool) {
	switch figure {
	case "jobs replaced":
		return ReplacedJobs, true
	case "successors begun":
		return Successors, true
	case "jobs of schedules":
		return ScheduledJobs, true
	case "nominal times missed":
		return MissedTimes, true
	case "firings that came too late":
		return LateFirings, true
	default:
		return 0, false
	}
}

// String returns a line for each count.
func (t Tally) String() string {
	var b strings.Builder
	for i, name := range Names() {
		fmt.Fprintf(&b, "%10d %s\n", t[i], name)
	}
	return b.String()
}
