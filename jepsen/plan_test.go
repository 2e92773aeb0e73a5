package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/jepsen/nemesis"
	"github.com/belfrydb/belfry/jepsen/network"
)

// TestFullPlan strikes with every kind, every pair of the core kinds and every composite once, and
// mixes nothing with what must be alone.
func TestFullPlan(t *testing.T) {
	plan := fullPlan(settings{seed: 7, dir: "suite"})
	struck := map[string]int{}
	dirs := map[string]bool{}
	for _, one := range plan {
		names := strings.Split(one.nemeses, ",")
		faults, err := nemesis.Pick(one.nemeses)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range faults {
			struck[names[i]]++
			if alone(f) != alone(faults[0]) {
				t.Errorf("%s and %s are in one run", names[0], names[i])
			}
		}
		if !one.rhythm.Once || dirs[one.dir] {
			t.Errorf("%s: once %v, a directory of its own %v", one.dir, one.rhythm.Once, !dirs[one.dir])
		}
		dirs[one.dir] = true
	}
	want := map[string]int{}
	for _, name := range slices.Concat(nemesis.Names(nemesis.All()), composites()) {
		want[name] = 1
	}
	core := coreKinds()
	for i, a := range core {
		for _, b := range core[:i] {
			want[b+"+"+a] = 1
		}
	}
	if diff := cmp.Diff(want, struck); diff != "" {
		t.Errorf("how often each strikes (-want +got):\n%s", diff)
	}
	slices.Sort(core)
	if len(slices.Compact(core)) != 12 {
		t.Errorf("these are not twelve core kinds: %v", core)
	}
}

// TestNames of the plan are those of kinds, each once. What changes the cluster waits until it is
// whole, so nothing comes before it in a combination.
func TestNames(t *testing.T) {
	kinds := nemesis.Names(nemesis.All())
	for _, one := range slices.Concat(coreKinds(), composites()) {
		for place, name := range strings.Split(one, "+") {
			i := slices.Index(kinds, name)
			if i < 0 {
				t.Errorf("there is no kind %q", name)
			} else if alone(nemesis.All()[i]) && place > 0 {
				t.Errorf("%s is to begin with a whole cluster and comes later in %s", name, one)
			}
		}
	}
	for _, name := range coreKinds() { // of which both orders would be wrong
		if alone(nemesis.All()[slices.Index(kinds, name)]) {
			t.Errorf("%s is to be alone and is in pairs", name)
		}
	}
	slices.Sort(kinds)
	if len(slices.Compact(slices.Clone(kinds))) != len(kinds) {
		t.Errorf("a kind is there twice: %v", kinds)
	}
}

// TestPlansRepeat makes each plan twice from a seed, and once from another.
func TestPlansRepeat(t *testing.T) {
	base := settings{seed: 3, dir: "suite"}
	other := settings{seed: 4, dir: "suite"}
	all := cmp.AllowUnexported(settings{})
	if diff := cmp.Diff(fullPlan(base), fullPlan(base), all); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(fullPlan(base), fullPlan(other), all) {
		t.Error("two seeds give one plan")
	}
	seen := map[string]bool{}
	for n := range 12 {
		one := shortRun(base, n)
		if diff := cmp.Diff(one, shortRun(base, n), all); diff != "" {
			t.Error(diff)
		}
		faults, err := nemesis.Pick(one.nemeses)
		if err != nil || len(faults) == 0 {
			t.Fatalf("run %d has %q: %v", n, one.nemeses, err)
		}
		for _, f := range faults {
			seen[f.Name] = true
			if alone(f) != alone(faults[0]) {
				t.Errorf("run %d mixes %s", n, one.nemeses)
			}
		}
	}
	for _, name := range slices.Concat(nemesis.Names(nemesis.All()), composites()) {
		if !seen[name] {
			t.Errorf("%s is in none of 12 runs", name)
		}
	}
}

// TestPlanKeepsNetwork lets the plan choose the network only if no flag has.
func TestPlanKeepsNetwork(t *testing.T) {
	if got := shortRun(settings{network: network.Namespaces}, 2).network; got != network.Namespaces {
		t.Errorf("asked for namespaces, the run has %v", got)
	}
	if got := shortRun(settings{}, 2).network; got != network.Loopback {
		t.Errorf("one of three runs is to be on loopback, this has %v", got)
	}
}
