package sim

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
	countKinds
)

// Tally counts what happened in worlds.
type Tally [countKinds]uint64

// Add adds what happened in other worlds.
func (t *Tally) Add(other Tally) {
	for i, n := range other {
		t[i] += n
	}
}

// countNames are what the counts are called, in their order.
func countNames() []string {
	return []string{
		"seeds", "violations", "seeds held against the model as well", "commands", "entries", "grants",
		"jobs handed out again", "acks",
		"stale leases refused", "requests answered from memory", "leader changes", "entries that survived their leader",
		"proposals lost", "unknown outcomes", "calls refused unapplied", "unknown outcomes retried", "late duplicates",
		"entries out of stamping order", "entries of the pacer", "snapshots", "snapshots written again entries later",
		"replicas restarted", "snapshots of others installed", "steps of clocks",
		"workers that stalled beyond their lease", "workers that died", "puts routed by an old count",
		"puts routed once more", "jobs that the books were vague about",
	}
}

// String returns a line for each count.
func (t Tally) String() string {
	var b strings.Builder
	for i, name := range countNames() {
		fmt.Fprintf(&b, "%10d %s\n", t[i], name)
	}
	return b.String()
}
