// Package checker holds a run against the promises: what clients were told, what the nodes applied,
// and what was left in the end.
package checker

import (
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/access"
	"github.com/belfrydb/belfry/jepsen/checker/availability"

	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/jepsen/report"
	"github.com/belfrydb/belfry/node/journal"
)

// Run is all that is known of a run that has ended. Only History and Journals must be there; what
// is zero was not part of the run.
type Run struct {
	History *history.History
	// Journals are what the nodes applied, one for each life of a process.
	Journals []Journal
	// Clocks says how wrong nodes' clocks were, and when; a node that is not named had the true time.
	Clocks []Clock
	// Elections are those that nodes said they had won.
	Elections []Election
	// Removals are nodes that had left the cluster.
	Removals []Removal
	// Flips says what became of bits that were flipped in files.
	Flips Flips
	// Probes are what was measured after the last fault had ended: service, convergence, and what must
	// not grow.
	Probes []Probe
	// Faults are the spans of time in which something was wrong, all of them; nil if that is not
	// known, which is not the same as that there were none. What must be quick is looked at where
	// there was none for a while.
	Faults []Span
	// Healed is when the last fault had ended, as the time since the start; Drained when the queues
	// had been emptied through every node. 0 if that was not done.
	Healed, Drained time.Duration
	// Secured says that every call needed a token, Roots are those that may do everything and that the
	// history does not tell of.
	Secured bool
	Roots   []access.Root
	// Strikes are the faults with what each leaves whole, Stalls the times in which the harness itself
	// did not get the processor.
	Strikes []availability.Strike
	Stalls  []Span
	// ClockBound is how far a shard's clock may be from true time; 0 means 250 ms.
	ClockBound time.Duration
	// Sample is how many jobs the second opinion looks at; 0 means 200 and one in 500 calls, up to
	// 2,000.
	Sample int
}

// Journal is what one life of a node's process applied, in that order.
type Journal struct {
	Node    string
	Entries []journal.Entry
}

// Clock is a span of time, since the start of the run, in which a node's clock was wrong. Its error
// was within Least and Most all the time.
type Clock struct {
	Node        string
	From, To    time.Duration
	Least, Most time.Duration
}

// Election is one that a node won. At is when the node said so, in true time.
type Election struct {
	Node, Group string
	Term        uint64
	At          time.Time
}

// Removal is a span of time in which a node was no member and was to serve nothing. To is 0 if it
// never came back.
type Removal struct {
	Node     string
	From, To time.Duration
}

// Span is a span of time since the start of the run.
type Span struct{ From, To time.Duration }

// Flips counts flipped bits of files: each was noticed by the server, or lay where nothing is read
// any more.
type Flips struct {
	Injected, Noticed, Unread int64
}

// Probe is one measurement after the last fault: the run says what it measured, how long it took,
// and how long it may take.
type Probe struct {
	// Name is for people, such as "shard 3 does put, reserve and ack".
	Name        string
	Took, Limit time.Duration
	// Failure says what went wrong; empty if nothing did.
	Failure string
}

// Verdict is what the checker found.
type Verdict struct {
	Checks     []report.Check
	Violations []report.Violation
	// Counts says how much was looked at, by name.
	Counts map[string]int64
	// Availability is what was found of each of the run's strikes.
	Availability []availability.Result
}

// Valid reports whether nothing was found that must not be.
func (v *Verdict) Valid() bool { return len(v.Violations) == 0 }

// clockBoundDefault is that of the server.
const clockBoundDefault = 500 * time.Millisecond

// Check looks at a whole run. It takes about as long as the run had million operations, times five
// seconds, and changes nothing of the run.
func Check(run *Run) Verdict {
	c := newCheck(run)
	c.timed("merge", c.merge)
	c.together(pass{"replay", c.replay}, pass{"callers", c.callers}, pass{"sample", c.sample}, pass{"given", c.given},
		pass{"availability", c.availability})
	c.timed("answers", c.join)
	c.together(pass{"effects", c.effects}, pass{"told", c.follow}, pass{"keys", c.keys},
		pass{"schedules", c.schedules}, pass{"order", c.order}, pass{"clients", c.clients},
		pass{"remains", c.remains}, pass{"mirror", c.mirror}, pass{"access", c.access}, pass{"quotas", c.quotas},
		pass{"tasks", c.tasks})
	return c.verdict()
}
