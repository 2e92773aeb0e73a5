package flips

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// outcome is what became of damage.
type outcome int

// The outcomes. All but violated are as they should be, and lastBatch is what DESIGN.md of storage
// says cannot be found.
const (
	reported   outcome = iota // the start was refused, naming a damaged file
	foundLive                 // what read it failed, naming a damaged file, and the process was told to end
	unread                    // nothing that can be read has changed, and the part is one of which bytes are never read
	superseded                // it was written anew, or a newer file took its place, before anything read it
	lastBatch                 // the last batch of a log is gone whose mark was not synced when the power was cut
	violated
	outcomes
)

// String names the outcome in tables.
func (o outcome) String() string {
	return [...]string{"reported at start", "found in use", "unread", "superseded", "last batch, no mark", "VIOLATED"}[o]
}

// row is a line of a table.
type row struct {
	live  bool // the files were in use
	wound wound
	part  part // empty if there are several
}

// Report counts what became of all damage.
type Report struct {
	// Trials is the number of disks that were damaged, Flips that of the bits flipped in them.
	Trials, Flips int
	// Violations tell what must not happen, and how to repeat it.
	Violations []string
	// Replaced is how often a damaged disk was replaced by an empty one.
	Replaced int

	rows map[row]*[outcomes]int
}

func newReport() *Report { return &Report{rows: map[row]*[outcomes]int{}} }

// note counts one trial.
func (r *Report) note(d *damage, live bool, o outcome) {
	at := row{live: live, wound: d.wound, part: d.part}
	if d.wound != flipOne {
		at.part = ""
	}
	if r.rows[at] == nil {
		r.rows[at] = &[outcomes]int{}
	}
	r.rows[at][o]++
	r.Trials++
	r.Flips += d.flips()
}

// add adds another report.
func (r *Report) add(other *Report) {
	r.Trials += other.Trials
	r.Flips += other.Flips
	r.Replaced += other.Replaced
	r.Violations = append(r.Violations, other.Violations...)
	for at, counts := range other.rows {
		if r.rows[at] == nil {
			r.rows[at] = &[outcomes]int{}
		}
		for o, n := range counts {
			r.rows[at][o] += n
		}
	}
}

// of returns how many trials ended so.
func (r *Report) of(o outcome) (n int) {
	for _, counts := range r.rows {
		n += counts[o]
	}
	return n
}

// Table returns the counts: what was damaged by what became of it.
func (r *Report) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-46s", "damage")
	for o := range outcomes {
		fmt.Fprintf(&b, " %20s", o)
	}
	rows := slices.SortedFunc(maps.Keys(r.rows), func(x, y row) int {
		return cmp.Or(cmp.Compare(boolean(x.live), boolean(y.live)), cmp.Compare(x.wound, y.wound),
			cmp.Compare(x.part, y.part))
	})
	line := func(name string, counts func(o outcome) int) {
		fmt.Fprintf(&b, "\n%-46s", name)
		for o := range outcomes {
			fmt.Fprintf(&b, " %20d", counts(o))
		}
	}
	for _, at := range rows {
		name := at.wound.String()
		if at.part != "" {
			name += ", " + string(at.part)
		}
		if at.live {
			name = "in use: " + name
		}
		line(name, func(o outcome) int { return r.rows[at][o] })
	}
	line("all", r.of)
	return b.String()
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}
