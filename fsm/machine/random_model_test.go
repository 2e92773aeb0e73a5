package machine_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// The environment sets how much is tried:
//
//	BELFRY_MODEL_TIME      how long, instead of a number of seeds
//	BELFRY_MODEL_SEEDS     how many seeds, seedsDefault if it is not set
//	BELFRY_MODEL_SEED      the first seed; a failure names its own
//	BELFRY_MODEL_COMMANDS  how many commands a seed
const (
	// coverageSeeds is how many seeds meet every outcome of every command.
	coverageSeeds   = 2000
	commandsDefault = 100
)

// effort is how much a run tries.
type effort struct {
	firstSeed uint64
	seeds     uint64 // ignored if until is set
	until     time.Time
	commands  int
}

func effortOf(t *testing.T) effort {
	t.Helper()
	number := func(name string, otherwise uint64) uint64 {
		text := os.Getenv(name)
		if text == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	e := effort{
		firstSeed: number("BELFRY_MODEL_SEED", 1),
		seeds:     number("BELFRY_MODEL_SEEDS", seedsDefault),
		commands:  int(number("BELFRY_MODEL_COMMANDS", commandsDefault)),
	}
	if text := os.Getenv("BELFRY_MODEL_TIME"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("BELFRY_MODEL_TIME: %v", err)
		}
		e.until = time.Now().Add(d)
	}
	return e
}

// TestModelRandom holds the machine against the model on random commands.
func TestModelRandom(t *testing.T) {
	t.Parallel()
	e := effortOf(t)
	began := time.Now()
	seen, failed := e.run(asItIs())
	spent := time.Since(began)
	t.Logf("%s in %s: %.0f commands/s", seen.totals(), spent.Round(time.Millisecond),
		float64(seen.commands)/spent.Seconds())
	if failed != nil {
		t.Fatal(failed.report())
	}
	if seen.seeds >= coverageSeeds {
		seen.checkCoverage(t)
	}
}

// failure is a run that ended in a difference.
type failure struct {
	seed   uint64
	cfg    fsm.Config
	events []event
	wrong  plant
	err    error
}

// run tries seeds on all processors until one fails or the effort is spent.
func (e effort) run(wrong plant) (sightings, *failure) {
	var (
		next  atomic.Uint64
		mu    sync.Mutex
		first *failure
		seen  = newSightings()
		wait  sync.WaitGroup
	)
	next.Store(e.firstSeed)
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for {
				seed := next.Add(1) - 1
				if e.until.IsZero() && seed-e.firstSeed >= e.seeds || !e.until.IsZero() && !time.Now().Before(e.until) {
					return
				}
				s, failed := runSeed(seed, e.commands, wrong)
				mu.Lock()
				seen.merge(s)
				if failed != nil && (first == nil || failed.seed < first.seed) {
					first = failed
				}
				stop := first != nil
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	wait.Wait()
	return seen, first
}

// runSeed makes events from a seed until there were so many commands.
func runSeed(seed uint64, commands int, wrong plant) (sightings, *failure) {
	g, cfg := newGenerator(seed)
	d := newDuel(cfg, wrong)
	g.m = d.model
	d.seen.seeds = 1
	var events []event
	for d.seen.commands < commands || g.bursts > 0 {
		e := g.next()
		events = append(events, e)
		list, err := d.step(&e)
		if err != nil {
			d.abandon()
			return d.seen, &failure{seed: seed, cfg: cfg, events: events, wrong: wrong, err: err}
		}
		g.saw(e, list)
	}
	if err := d.close(); err != nil {
		return d.seen, &failure{seed: seed, cfg: cfg, events: events, wrong: wrong, err: err}
	}
	return d.seen, nil
}

// abandon waits for what is being written, after a failure.
func (d *duel) abandon() {
	for _, s := range d.open {
		if s.beside != nil {
			<-s.beside
		}
	}
}

// replay runs events that were made before.
func (f *failure) replay(events []event) error {
	d := newDuel(f.cfg, f.wrong)
	for i := range events {
		if _, err := d.step(&events[i]); err != nil {
			d.abandon()
			return err
		}
	}
	return d.close()
}

// shrinkFor bounds the time spent on making a failure small.
const shrinkFor = 20 * time.Second

// report returns the smallest list of events found that still fails, and how.
func (f *failure) report() string {
	until := time.Now().Add(shrinkFor)
	fails := func(events []event) bool { return time.Now().Before(until) && f.replay(events) != nil }
	events, err := slices.Clone(f.events), f.err
	if fails(events) {
		events = without(events, fails)
		for i := range events {
			events = smaller(events, i, fails)
		}
		err = f.replay(events)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %v\nconfiguration %+v; %d events of %d:\n", f.seed, err, f.cfg, len(events), len(f.events))
	for i := range events {
		fmt.Fprintln(&b, events[i].String())
	}
	return b.String()
}

// without leaves out elements, in ever smaller pieces, as long as the rest still fails.
func without[T any](list []T, fails func([]T) bool) []T {
	for piece := max(1, len(list)/2); ; piece /= 2 {
		for at := 0; at < len(list); {
			rest := slices.Concat(list[:at], list[min(at+piece, len(list)):])
			if fails(rest) {
				list = rest
			} else {
				at += piece
			}
		}
		if piece <= 1 {
			return list
		}
	}
}

// smaller leaves out parts of one event.
func smaller(events []event, i int, fails func([]event) bool) []event {
	with := func(e event) []event {
		changed := slices.Clone(events)
		changed[i] = e
		return changed
	}
	try := func(e event) bool {
		if fails(with(e)) {
			events = with(e)
			return true
		}
		return false
	}
	e := events[i]
	e.snapshot, e.reads = noSnapshot, nil
	if !try(e) {
		e = events[i]
	}
	e.requests = without(e.requests, func(rs []fsm.Request) bool { e := e; e.requests = rs; return fails(with(e)) })
	for j := range e.requests {
		e.requests = slices.Clone(e.requests)
		e.requests[j].Commands = without(e.requests[j].Commands, func(cs []fsm.Command) bool {
			e := e
			e.requests = slices.Clone(e.requests)
			e.requests[j].Commands = cs
			return fails(with(e))
		})
	}
	return with(e)
}

// String writes an event so that it can be read and repeated by hand.
func (e *event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "at start%+d (%s)", e.stamp-start, time.Duration(e.stamp-start))
	if e.snapshot != noSnapshot {
		fmt.Fprintf(&b, ", snapshot %d", e.snapshot)
	}
	if e.reads != nil {
		fmt.Fprintf(&b, ", reads %+v", *e.reads)
	}
	for i, r := range e.requests {
		if i == printedMax {
			fmt.Fprintf(&b, "\n   and %d requests more", len(e.requests)-i)
			break
		}
		fmt.Fprintf(&b, "\n   request %q %q", r.Caller, r.ID)
		for j, c := range r.Commands {
			if j == printedMax {
				fmt.Fprintf(&b, "\n      and %d commands more", len(r.Commands)-j)
				break
			}
			fmt.Fprintf(&b, "\n      %T%+v", c, c)
		}
	}
	return b.String()
}

// printedMax bounds how much of a large event is written out; its seed has the rest.
const printedMax = 8
