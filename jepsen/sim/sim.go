package sim

import (
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/belfrydb/belfry/jepsen/sim/tally"
)

const (
	stepsDefault      = 180
	modelEveryDefault = 8
	// linesShown is how many lines before a violation are kept with it.
	linesShown = 60
)

// Config says what the worlds are like. The zero value is what the tests and `make sim` run: a seed
// means the same world only under the same configuration.
type Config struct {
	// Steps is how many things happen in a world before it is healed and drained; default 180.
	Steps int
	// ModelEvery says that every so manieth seed is held against fsm/model as well; default 8. It does
	// not change the world.
	ModelEvery uint64
	// Trace, unless nil, gets a line for everything that happens. It does not change the world.
	Trace io.Writer

	// mistakes, unless nil, are put into the product's place, to see whether the judge notices.
	mistakes func() *mistakes
}

// Outcome is what became of a world.
type Outcome struct {
	Seed uint64
	// Hash is of everything that happened, in order.
	Hash uint64
	// Violation is the first thing that was wrong, nil if nothing was. The world ends with it.
	Violation *Violation
	Tally     tally.Tally
}

// Violation is a broken rule.
type Violation struct {
	// Rule is one of a fixed set of names, Text says what happened.
	Rule, Text string
	// Step is the number of the step in which it was noticed.
	Step int
	// Lines tell the steps before it, the last one last.
	Lines []string
}

// String returns everything that is known of the world's end, and how to have it again.
func (o Outcome) String() string {
	if o.Violation == nil {
		return fmt.Sprintf("seed %d: valid, hash %016x", o.Seed, o.Hash)
	}
	v := o.Violation
	return fmt.Sprintf("seed %d: %s: %s\nin step %d, hash %016x; the steps before:\n  %s\nrepeat it with: make sim "+
		"SIMSEED=%d SIMSEEDS=1",
		o.Seed, v.Rule, v.Text, v.Step, o.Hash, strings.Join(v.Lines, "\n  "), o.Seed)
}

// Run lives through the world of a seed. It may be called by many goroutines at a time. A world
// with a violation is lived through twice, the second time to be told; that both are the same is
// checked.
func Run(seed uint64, cfg Config) Outcome {
	o := run(seed, cfg)
	if o.Violation == nil || cfg.Trace != nil {
		return o
	}
	told := &tail{}
	cfg.Trace = told
	again := run(seed, cfg)
	o.Violation.Lines = told.lines()
	if again.Hash != o.Hash {
		o.Violation.Text += fmt.Sprintf("; and it is not repeatable: the second time the hash was %016x", again.Hash)
	}
	return o
}

func run(seed uint64, cfg Config) (o Outcome) {
	if cfg.Steps == 0 {
		cfg.Steps = stepsDefault
	}
	if cfg.ModelEvery == 0 {
		cfg.ModelEvery = modelEveryDefault
	}
	w := newWorld(seed, cfg)
	defer func() {
		if p := recover(); p != nil {
			w.violated("nothing panics", "%v\n%s", p, debug.Stack())
		}
		o = Outcome{Seed: seed, Hash: w.hash, Violation: w.violation, Tally: w.tally}
	}()
	w.live()
	return o
}

// tail keeps the last lines that were written to it.
type tail struct{ kept []string }

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.kept = append(t.kept, strings.TrimRight(string(b), "\n"))
	if len(t.kept) > 2*linesShown {
		t.kept = slices.Delete(t.kept, 0, len(t.kept)-linesShown)
	}
	return len(b), nil
}

func (t *tail) lines() []string { return t.kept[max(0, len(t.kept)-linesShown):] }
