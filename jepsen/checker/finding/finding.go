// Package finding has the invariants that a run is checked for, and collects what checks looked at
// and what they found.
package finding

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/belfrydb/belfry/jepsen/report"
)

// Invariant is the number of an invariant; Titles has them all. Numbers above Max are checks of
// other promises.
type Invariant uint8

// Max is the last invariant of a cluster, Last the last of all. SecondOpinion is the check of a
// sample by another program. MirrorLost to MirrorNowhere are the promises of the mirror, M1 to M4;
// runs without a mirror do not have them.
const (
	Max           Invariant = 47
	SecondOpinion           = Max + 1
	MirrorLost              = SecondOpinion + 1
	MirrorTwice             = SecondOpinion + 2
	MirrorEarly             = SecondOpinion + 3
	MirrorNowhere           = SecondOpinion + 4
	Last                    = MirrorNowhere
)

// String returns the invariant's name.
func (i Invariant) String() string {
	switch {
	case i == SecondOpinion:
		return "porcupine"
	case i > SecondOpinion:
		return "M" + strconv.Itoa(int(i-SecondOpinion))
	}
	return "I" + strconv.Itoa(int(i))
}

// Titles returns the invariants that are checked, and the pass that looks at each.
func Titles() map[Invariant][2]string {
	return map[Invariant][2]string{
		1:  {"an ok put is delivered, or still there, or ended for a reason; the drain leaves nothing", "remains"},
		2:  {"nothing comes from nowhere: what is delivered was put so", "effects"},
		3:  {"what was refused did not happen", "effects"},
		4:  {"what is unknown happened once or never", "effects"},
		5:  {"an id is put once, and a repeat is answered as the first", "replay"},
		6:  {"serials and fences are never used again", "replay"},
		7:  {"each entry of a batch stands alone, as it was answered", "answers"},
		8:  {"no job is handed out before its due time in shard time", "replay"},
		9:  {"shard time never decreases", "replay"},
		10: {"shard time is not ahead of true time by more than clocks allow", "replay"},
		11: {"jobs are handed out soon after they are due, once healed", "clients"},
		12: {"no wake-up is lost: a waiting reserve gets a job that is due", "clients"},
		13: {"jobs leave a partition by priority, due time and put order", "replay"},
		14: {"no job that is due is passed over", "replay"},
		15: {"fences grow, and there is one live lease at a time", "replay"},
		16: {"a stale lease is refused and changes nothing", "replay"},
		17: {"a job is not handed out again before its lease ends, unless it was given back", "replay"},
		18: {"a lease is never shorter than was asked for", "replay"},
		19: {"what was acked is not delivered again", "replay"},
		20: {"each repeated delivery has its cause", "replay"},
		21: {"attempts are counted one by one", "replay"},
		22: {"after its last attempt a job is dead, once, until it is redriven", "replay"},
		23: {"what was cancelled is not delivered", "replay"},
		24: {"nack, release, reschedule, purge and settings take effect once, at their index", "replay"},
		25: {"replicas have the same state at the same index", "merge"},
		26: {"a snapshot restores to what it was taken of", "replay"},
		27: {"the same log gives the same state and answers in another process", "replay"},
		28: {"what was committed is final", "merge"},
		29: {"there is one leader a term", "given"},
		30: {"no two shards own the same partition or job", "remains"},
		31: {"a node that was removed serves nothing", "given"},
		32: {"flipped bits are noticed", "given"},
		33: {"counters add up", "replay"},
		34: {"reads show what the log gives at their index, and all that was answered before", "answers"},
		35: {"service and replicas recover after the last fault", "given"},
		36: {"answers are what the log gives, in an order that callers saw", "answers"},
		37: {"no job crosses queues or tenants, limits and quotas hold, and who has no good token does nothing", "replay"},
		38: {"what is refused for overload is refused whole", "effects"},
		39: {"while a majority is whole, each of its nodes serves every shard within 5 s of a fault, and its status names " +
			"the fault within 10 s", "availability"},
		40: {"a task acts on jobs that matched since it began, on each once, and on no more than it may", "tasks"},
		41: {"a task that has ended met every job that matched all the while, and counted what the log has", "tasks"},
		42: {"a task that was started ends, and begins nothing after its end or its stop", "tasks"},
		43: {"a key has as many leases as it may at most, and none beyond its rate or while it is paused", "keys"},
		44: {"the jobs of an ordered key are handed out in the order in which they were put", "keys"},
		45: {"a replaced job is handed out with its last content and no later than it may be, and its successor follows " +
			"it, once", "keys"},
		46: {"a nominal time of a schedule has one job at most, and none before it has come", "schedules"},
		47: {"each nominal time has its job, or is counted as missed or skipped for a reason", "schedules"},

		SecondOpinion: {"porcupine finds single jobs linearizable", "sample"},

		MirrorLost:    {"what was offered to Redisson, or put for its consumers, reaches somebody", "mirror"},
		MirrorTwice:   {"a payload reaches one side, once", "mirror"},
		MirrorEarly:   {"no payload is on Redisson's ready list before it is due", "mirror"},
		MirrorNowhere: {"what is on the ready list of a queue was offered or put there", "mirror"},
	}
}

// violationsKept is how many violations of one invariant are kept in full.
const violationsKept = 20

// Set is what one goroutine looked at and found; Add joins sets. One goroutine at a time may use
// it.
type Set struct {
	looked     [Last + 1]int64
	counted    [Last + 1]int64
	violations [Last + 1][]report.Violation
	counts     map[string]int64
}

// New returns an empty set.
func New() *Set { return &Set{counts: map[string]int64{}} }

// Look counts one thing that an invariant was held against.
func (f *Set) Look(i Invariant) { f.looked[i]++ }

// Violated notes a violation at a time since the start of the run.
func (f *Set) Violated(i Invariant, at time.Duration, format string, args ...any) {
	f.counted[i]++
	if len(f.violations[i]) < violationsKept {
		f.violations[i] = append(f.violations[i], report.Violation{Invariant: i.String(), At: at.Seconds(),
			Text: fmt.Sprintf(format, args...)})
	}
}

// Count adds to a figure of the run.
func (f *Set) Count(name string, n int64) {
	if n != 0 {
		f.counts[name] += n
	}
}

// Add takes over what another set has.
func (f *Set) Add(other *Set) {
	for i := range f.looked {
		f.looked[i] += other.looked[i]
		f.counted[i] += other.counted[i]
		f.violations[i] = append(f.violations[i], other.violations[i]...)
	}
	for name, n := range other.counts {
		f.counts[name] += n
	}
}

// LookMany counts n things that an invariant was held against.
func (f *Set) LookMany(i Invariant, n int64) { f.looked[i] += n }

// Raise sets a figure of the run to n, if it is less.
func (f *Set) Raise(name string, n int64) { f.counts[name] = max(f.counts[name], n) }

// Counts returns the figures of the run by name.
func (f *Set) Counts() map[string]int64 { return f.counts }

// Looked returns how many things an invariant was held against.
func (f *Set) Looked(i Invariant) int64 { return f.looked[i] }

// Broken returns how often an invariant was violated, and the first of these violations.
func (f *Set) Broken(i Invariant) (n int64, kept []report.Violation) {
	return f.counted[i], f.violations[i]
}

// Checks returns a line for each invariant up to last, and their violations, of each invariant the
// earliest first. seconds is how long each pass took by its name.
func (f *Set) Checks(seconds map[string]float64,
	last Invariant) (checks []report.Check, violations []report.Violation) {
	known := Titles()
	for i := Invariant(1); i <= last; i++ {
		title, ok := known[i]
		if !ok {
			continue
		}
		checks = append(checks, report.Check{
			Invariant: i.String(), Title: title[0], Looked: f.looked[i], Violations: f.counted[i], Seconds: seconds[title[1]],
		})
		all := f.violations[i]
		slices.SortStableFunc(all, func(a, b report.Violation) int { return cmp.Compare(a.At, b.At) })
		violations = append(violations, all[:min(len(all), violationsKept)]...)
	}
	return checks, violations
}
