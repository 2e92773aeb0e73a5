package machine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
)

// ledgerSeeds is how many seeds TestLedgerRandom tries unless the environment says otherwise.
const ledgerSeeds = 500

// verdict takes what a ledger finds.
type verdict struct {
	looked map[ledger.Rule]int
	found  []string
}

// Look implements ledger.Report.
func (v *verdict) Look(rule ledger.Rule) { v.looked[rule]++ }

// Violated implements ledger.Report.
func (v *verdict) Violated(rule ledger.Rule, _ fsm.Time, text string) {
	v.found = append(v.found, fmt.Sprintf("I%d: %s", rule, text))
}

// Count implements ledger.Report.
func (*verdict) Count(string, int64) {}

// TestLedgerRandom has the ledger judge what the machine does on random commands: it finds nothing,
// whatever is asked, and counts what the machine counts.
func TestLedgerRandom(t *testing.T) {
	t.Parallel()
	e := effortOf(t)
	looked := map[ledger.Rule]int{}
	for seed := e.firstSeed; seed < e.firstSeed+min(e.seeds, ledgerSeeds); seed++ {
		v := judgeSeed(t, seed, e.commands)
		if len(v.found) > 0 {
			t.Fatalf("seed %d: %s", seed, v.found[0])
		}
		for rule, n := range v.looked {
			looked[rule] += n
		}
	}
	for _, rule := range [...]ledger.Rule{5, 6, 8, 13, 14, 15, 16, 18, 21, 22, 23, 24, 33, 43, 44, 45, 46, 47} {
		if looked[rule] == 0 {
			t.Errorf("rule %d was not held against anything", rule)
		}
	}
}

// judgeSeed runs the commands of a seed on a machine that forgets nothing early, beside a ledger.
func judgeSeed(t *testing.T, seed uint64, commands int) *verdict {
	t.Helper()
	g, cfg := newGenerator(seed)
	g.bursts = 0
	d := newDuel(fsm.Config{Seed: seed, WakeMax: cfg.WakeMax}, asItIs())
	g.m = d.model
	v := &verdict{looked: map[ledger.Rule]int{}}
	shard := ledger.New(ledger.Config{Report: v, WakeMax: cfg.WakeMax})
	for index := uint64(1); d.seen.commands < commands; index++ {
		e := g.next()
		e.requests = slices.DeleteFunc(e.requests, isNotForLedger)
		list, err := d.step(&e)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		g.saw(e, list)
		shard.Enter(judged(d, &e, index, list))
		shard.Audit(d.machine.Machine)
		if len(v.found) > 0 {
			break
		}
	}
	d.abandon()
	return v
}

// isNotForLedger reports whether no server would log a request, or has the ledger take the state from the
// machine after it.
func isNotForLedger(r fsm.Request) bool {
	return slices.ContainsFunc(r.Commands, func(c fsm.Command) bool {
		switch c.Kind() {
		case fsm.KindImport, fsm.KindResetClock:
			return true
		case fsm.KindLead, fsm.KindExpire: // the leader's own
			return r.ID != ""
		default:
			return false
		}
	})
}

// judged is an event as a ledger takes it.
func judged(d *duel, e *event, index uint64, list []fsm.Result) *ledger.Entry {
	entry := &ledger.Entry{Index: index, Format: max(d.machine.format, fsm.FirstFormat), Clock: d.machine.Clock(),
		At: d.machine.Clock()}
	for i := range e.requests {
		for _, c := range e.requests[i].Commands {
			n := len(entry.Commands)
			entry.Commands = append(entry.Commands, ledger.Command{Entry: entry, Number: uint32(n), Request: &e.requests[i],
				Command: c, Result: list[n]})
		}
	}
	return entry
}
