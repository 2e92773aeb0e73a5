package checker

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/belfrydb/belfry/jepsen/report"
)

// invariant is the number of an invariant of RELIABILITY §4.1; second opinion has a number of its own.
type invariant uint8

const (
	invariantMax  invariant = 39
	secondOpinion           = invariantMax + 1
	// The promises of the mirror, M1 to M4, which runs without it have not.
	mirrorLost    = secondOpinion + 1
	mirrorTwice   = secondOpinion + 2
	mirrorEarly   = secondOpinion + 3
	mirrorNowhere = secondOpinion + 4
	invariantLast = mirrorNowhere
)

// String returns the invariant's name.
func (i invariant) String() string {
	switch {
	case i == secondOpinion:
		return "porcupine"
	case i > secondOpinion:
		return "M" + strconv.Itoa(int(i-secondOpinion))
	}
	return "I" + strconv.Itoa(int(i))
}

// titles returns the invariants that are checked, and the pass that looks at each.
func titles() map[invariant][2]string {
	return map[invariant][2]string{
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

		secondOpinion: {"porcupine finds single jobs linearizable", "sample"},

		mirrorLost:    {"what was offered to Redisson, or put for its consumers, reaches somebody", "mirror"},
		mirrorTwice:   {"a payload reaches one side, once", "mirror"},
		mirrorEarly:   {"no payload is on Redisson's ready list before it is due", "mirror"},
		mirrorNowhere: {"what is on the ready list of a queue was offered or put there", "mirror"},
	}
}

// violationsKept is how many violations of one invariant are kept in full.
const violationsKept = 20

// findings is what one goroutine found. They are added up.
type findings struct {
	looked     [invariantLast + 1]int64
	counted    [invariantLast + 1]int64
	violations [invariantLast + 1][]report.Violation
	counts     map[string]int64
}

func newFindings() *findings { return &findings{counts: map[string]int64{}} }

// look counts one thing that an invariant was held against.
func (f *findings) look(i invariant) { f.looked[i]++ }

// violated notes a violation at a time since the start of the run.
func (f *findings) violated(i invariant, at time.Duration, format string, args ...any) {
	f.counted[i]++
	if len(f.violations[i]) < violationsKept {
		f.violations[i] = append(f.violations[i], report.Violation{Invariant: i.String(), At: at.Seconds(),
			Text: fmt.Sprintf(format, args...)})
	}
}

// count adds to a figure of the run.
func (f *findings) count(name string, n int64) {
	if n != 0 {
		f.counts[name] += n
	}
}

// add takes over what another found.
func (f *findings) add(other *findings) {
	for i := range f.looked {
		f.looked[i] += other.looked[i]
		f.counted[i] += other.counted[i]
		f.violations[i] = append(f.violations[i], other.violations[i]...)
	}
	for name, n := range other.counts {
		f.counts[name] += n
	}
}

// verdict is what all passes found.
func (c *check) verdict() Verdict {
	v := Verdict{Counts: c.found.counts, Availability: c.available}
	known := titles()
	for i := invariant(1); i <= invariantLast; i++ {
		title, ok := known[i]
		if !ok || i > secondOpinion && !c.mirrored {
			continue
		}
		v.Checks = append(v.Checks, report.Check{
			Invariant: i.String(), Title: title[0], Looked: c.found.looked[i], Violations: c.found.counted[i],
			Seconds: c.seconds[title[1]],
		})
		all := c.found.violations[i]
		slices.SortStableFunc(all, func(a, b report.Violation) int { return cmp.Compare(a.At, b.At) })
		v.Violations = append(v.Violations, all[:min(len(all), violationsKept)]...)
	}
	return v
}
