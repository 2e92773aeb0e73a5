// Package report is what a run says about itself: the verdict as JSON, and a page that shows it.
package report

import "time"

// Report is one run. Times without a date are seconds since its start.
type Report struct {
	// Command repeats the run; Commit is the version of the program that was run.
	Command string    `json:"command"`
	Commit  string    `json:"commit"`
	Started time.Time `json:"started"`
	Seed    uint64    `json:"seed"`
	Nodes   int       `json:"nodes"`
	// Workloads and Nemeses are what was asked for.
	Workloads []string `json:"workloads"`
	Nemeses   []string `json:"nemeses"`
	// Verdict is "valid" or "invalid"; Violations says why, the first of each invariant in full.
	Verdict    Verdict     `json:"verdict"`
	Violations []Violation `json:"violations"`
	// Checks are the invariants that were checked, in order of their numbers, with how much each had
	// to look at.
	Checks []Check `json:"checks"`
	// Counts says what happened, by name: calls, operations, jobs, elections, snapshots, bytes lost in
	// power cuts, and so on.
	Counts map[string]int64 `json:"counts"`
	// Seconds are one each, from the start of the run.
	Seconds []Second `json:"seconds"`
	// Faults are in the order of their beginnings.
	Faults []Fault `json:"faults"`
	// Probes are what was tried after the last fault, in that order.
	Probes []Probe `json:"probes,omitempty"`
	// LoadSeconds is for how long clients worked, CheckSeconds how long the check took from a history
	// in memory.
	LoadSeconds  float64 `json:"loadSeconds"`
	CheckSeconds float64 `json:"checkSeconds"`
}

// Verdict is what is said of a run. There is nothing between the two: what could not be decided is
// invalid.
type Verdict string

// The verdicts.
const (
	Valid   Verdict = "valid"
	Invalid Verdict = "invalid"
)

// Violation is something that must not be.
type Violation struct {
	// Invariant is the name of what it violates, such as "I8"; finding.Titles has them all.
	Invariant string `json:"invariant"`
	// At is when it showed, in seconds since the start of the run.
	At float64 `json:"at"`
	// Text says what was seen, with shard, index and job.
	Text string `json:"text"`
}

// Check is one invariant over one run.
type Check struct {
	Invariant string `json:"invariant"`
	// Title is the invariant in a few words.
	Title string `json:"title"`
	// Looked is how many things were looked at: 0 means that the run had nothing to show about it.
	Looked     int64   `json:"looked"`
	Violations int64   `json:"violations"`
	Seconds    float64 `json:"seconds"`
}

// Second is what clients saw in one second, by when calls ended.
type Second struct {
	Applied    int64 `json:"applied"`
	NotApplied int64 `json:"notApplied"`
	Unknown    int64 `json:"unknown"`
	// Latency is that of calls that change something and do not wait, answered without an error;
	// Lateness how long after its due time a job was handed out for the first time.
	Latency  Quantiles `json:"latency"`
	Lateness Quantiles `json:"lateness"`
}

// Quantiles are in milliseconds; Count is of how many.
type Quantiles struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// Fault is one fault from its beginning until it was healed.
type Fault struct {
	// Name is the nemesis, Text what it did to whom.
	Name string  `json:"name"`
	Text string  `json:"text"`
	From float64 `json:"from"`
	To   float64 `json:"to"`
	// Outage is the longest time in which some shard answered no call that changes something; it
	// begins with the fault or during it, and may end after it.
	Outage float64 `json:"outage"`
	// Effect is what it left whole; nil if availability is not judged. Availability is what was found
	// of that.
	Effect       *Effect       `json:"effect,omitempty"`
	Availability *Availability `json:"availability,omitempty"`
}

// Effect is what a fault leaves whole, by which availability is judged. Its times are those of
// Fault.
type Effect struct {
	// Began is when the fault began to act, Struck when it was in force, Healing when its end began.
	Began   float64 `json:"began"`
	Struck  float64 `json:"struck"`
	Healing float64 `json:"healing"`
	// Healthy are the nodes that stay whole and connected, and are a majority.
	Healthy []string `json:"healthy"`
	// Victims are the nodes of which status must name one; empty if it need not.
	Victims []string `json:"victims,omitempty"`
	// Allowed is how many seconds longer than promised for all faults the service may be interrupted,
	// Why the reason.
	Allowed float64 `json:"allowed,omitempty"`
	Why     string  `json:"why,omitempty"`
}

// Availability is what clients of the nodes saw that a fault spared.
type Availability struct {
	// Unjudged says why it was not judged; empty if it was.
	Unjudged string `json:"unjudged,omitempty"`
	// Served is, by node, for how many seconds at most a shard did not take puts or reserves through
	// it; Named, by node, how many seconds after the fault its status named it.
	Served map[string]float64 `json:"served,omitempty"`
	Named  map[string]float64 `json:"named,omitempty"`
	// Slack is how many seconds more were allowed because the machine stalled.
	Slack float64 `json:"slack,omitempty"`
}

// Probe is something that was tried after the last fault. Took and Limit are in seconds; Failure
// says what went wrong, empty if nothing did.
type Probe struct {
	Name    string  `json:"name"`
	Took    float64 `json:"took"`
	Limit   float64 `json:"limit"`
	Failure string  `json:"failure,omitempty"`
}
