package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/jepsen/nemesis"
	"github.com/belfrydb/belfry/jepsen/workload"
)

// TestFaultsOfWorkloads: a fault that is said to be brought by a workload names one that there is.
func TestFaultsOfWorkloads(t *testing.T) {
	for _, f := range nemesis.NotInjected() {
		if f.Workload != "" && !slices.Contains(workload.Names(workload.All()), f.Workload) {
			t.Errorf("fault %d (%s) is said to be brought by %q, which is no workload", f.Number, f.Fault, f.Workload)
		}
	}
}

// TestList shows every nemesis, and every fault that none injects.
func TestList(t *testing.T) {
	var out strings.Builder
	if err := list(&out); err != nil {
		t.Fatal(err)
	}
	for _, name := range nemesis.Names(nemesis.All()) {
		if !strings.Contains(out.String(), "  "+name+" ") {
			t.Errorf("the nemesis %s is not listed", name)
		}
	}
	for _, f := range nemesis.NotInjected() {
		if !strings.Contains(out.String(), f.Fault) {
			t.Errorf("the fault %q is not listed", f.Fault)
		}
	}
}

// TestReadme: the README names every invariant, workload and nemesis, and what the others wait for.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`[a-zA-Z0-9-]+`).FindAllString(string(text), -1)
	wanted := slices.Concat(workload.Names(workload.All()), nemesis.Names(nemesis.All()),
		nemesis.Names(nemesis.ContainerFaults()))
	for i := range 47 {
		wanted = append(wanted, fmt.Sprintf("I%d", i+1))
	}
	for i := range 4 {
		wanted = append(wanted, fmt.Sprintf("M%d", i+1))
	}
	for _, f := range nemesis.NotInjected() {
		if f.Workload == "" {
			wanted = append(wanted, fmt.Sprint(f.Number))
		}
	}
	for _, name := range wanted {
		if !slices.Contains(named, name) {
			t.Errorf("it does not name %s", name)
		}
	}
}

// TestPlans: the full plan strikes with every nemesis, and with those that wait for a whole cluster
// beside their like only.
func TestPlans(t *testing.T) {
	struck := map[string]bool{}
	for _, run := range fullPlan(settings{dir: "plan", seed: 1}) {
		faults, err := nemesis.Pick(run.nemeses)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range faults {
			struck[f.Name] = true
			if alone(f) != alone(faults[0]) {
				t.Errorf("%s and %s are in one run: %s", f.Name, faults[0].Name, run.nemeses)
			}
		}
	}
	for _, name := range nemesis.Names(nemesis.All()) {
		if !struck[name] {
			t.Errorf("the full plan does not strike with %s", name)
		}
	}
}
