package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/jepsen/nemesis"
	"github.com/belfrydb/belfry/jepsen/network"
)

// coreKinds are the kinds of fault of which every pair strikes in the full plan, in the order in
// which two of them begin: what needs a leader comes before what leaves none.
func coreKinds() []string {
	return []string{
		"transfer", "clock-forward", "delay", "client-cut", "one-way", "isolate-leader", "disk-slow", "pause-one", "restart",
		"kill-leader", "kill-all", "power-all",
	}
}

// composites are the faults that strike together in every plan. Workers die in every run, by the
// workload deaths.
func composites() []string {
	return []string{
		"pause-one+power-all", "isolate-one+power-all", "kill-at-snapshot+kill-leader", "clock-back+kill-leader",
		"isolate-one+kill-all", "kill-one+disk-hung",
		"clock-skew-transfer+kill-leader", "replace-node+halves+kill-one",
	}
}

// alone reports whether a kind of fault changes the members of the cluster, or the contents of a
// node's disk. Such faults wait for a whole cluster and are not mixed with others.
func alone(f nemesis.Fault) bool {
	switch f.Number {
	case 33, 34, 35, 36, 37, 38, 46, 49, 50, 51, 52, 53:
		return true
	default:
		return false
	}
}

// fullPlan is every kind of fault once, every pair of the core kinds, and the composites, some in
// each run.
func fullPlan(base settings) (plan []settings) {
	var mixed, single []string
	for _, f := range nemesis.All() {
		if alone(f) {
			single = append(single, f.Name)
		} else {
			mixed = append(mixed, f.Name)
		}
	}
	mixed = append(mixed, composites()...)
	core := coreKinds()
	for i, a := range core {
		for _, b := range core[i+1:] {
			if pair := a + "+" + b; !slices.Contains(mixed, pair) { // one is a composite as well
				mixed = append(mixed, pair)
			}
		}
	}
	random := rand.New(rand.NewPCG(base.seed, 2))
	for _, names := range [][]string{mixed, single} {
		random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	}
	const mixedInOne, singleInOne = 14, 5
	for part := range slices.Chunk(mixed, mixedInOne) {
		plan = append(plan, base.next(len(plan), part))
	}
	for part := range slices.Chunk(single, singleInOne) {
		plan = append(plan, base.next(len(plan), part))
	}
	for i := range plan {
		plan[i].rhythm.Once = true
		plan[i].time = time.Hour // it ends when each fault has struck
	}
	return plan
}

// shortRun is the n-th run of a plan that continues until its time is over. It has a few faults
// that go together, the next ones in an order that the seed decides, so each fault strikes after a
// few runs. Each fourth run has faults that are not mixed with others.
func shortRun(base settings, n int) settings {
	single, round := n%4 == 3, n-n/4
	if single {
		round = n / 4
	}
	var names []string
	for _, f := range nemesis.All() {
		if alone(f) == single {
			names = append(names, f.Name)
		}
	}
	if !single {
		names = append(names, composites()...)
	}
	random := rand.New(rand.NewPCG(base.seed, 3))
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	const inOne = 10
	var next []string
	for i := range min(len(names), inOne) {
		next = append(next, names[(round*inOne+i)%len(names)])
	}
	return base.next(n, next)
}

// next returns the settings of a run of a plan.
func (s settings) next(n int, nemeses []string) settings {
	s.seed += uint64(n)
	s.nemeses = strings.Join(nemeses, ",")
	s.dir = fmt.Sprintf("%s/%03d", s.dir, n+1)
	if s.network == network.Auto && n%3 == 2 { // namespaces where they can be made, and loopback in one of three
		s.network = network.Loopback
	}
	// One run in four has a secured cluster, and so have runs that rotate secrets. It is not the last
	// of four, which strikes alone.
	s.secured = s.secured || s.workloads == "all" && n%4 == 1
	return s
}
