package workload

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestDrainAll empties a cluster: every node hands out its share, and none is asked for more before
// the others had theirs.
func TestDrainAll(t *testing.T) {
	f := newFake(t, "n1", "n2", "n3")
	for i := range 6*share + 1 {
		f.jobs = append(f.jobs, fmt.Sprint("lease-", i))
	}
	if err := DrainAll(t.Context(), f.target(), []string{"q"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if len(f.jobs) > 0 {
		t.Errorf("%d jobs are left", len(f.jobs))
	}
	for node, least := range map[string]int{"n1": 2 * share, "n2": 2 * share, "n3": 2 * share} {
		if f.taken[node] < least || f.taken[node] > least+share {
			t.Errorf("%s handed out %d jobs", node, f.taken[node])
		}
	}
}

// TestDrainAllBegins each queue at another node, so that also few jobs come from more than one.
func TestDrainAllBegins(t *testing.T) {
	f := newFake(t, "n1", "n2", "n3")
	f.jobs = []string{"lease"}
	if err := DrainAll(t.Context(), f.target(), []string{"a", "b", "c"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	first := map[string]string{}
	for _, o := range f.history.Ops() {
		for _, queue := range []string{"a", "b", "c", probeQueue} {
			if text := fmt.Sprint(o.Request); first[queue] == "" && strings.Contains(text, fmt.Sprintf("queues:%q", queue)) {
				first[queue] = o.Node
			}
		}
	}
	if first[probeQueue] == "" {
		t.Error("what a probe that failed has left is not drained")
	}
	if first["a"] == first["b"] || first["b"] == first["c"] || first["a"] == first["c"] {
		t.Errorf("the queues begin at %v", first)
	}
}

// TestDrainAllFails has one node hand out nothing: that the others emptied the queues is not
// enough.
func TestDrainAllFails(t *testing.T) {
	f := newFake(t, "n1", "n2", "n3")
	f.refuses = "n2"
	err := DrainAll(f.endAfter(t, "n2", 10), f.target(), []string{"q", "r"}, time.Minute)
	if err == nil || !strings.Contains(err.Error(), "[probe q r]") {
		t.Errorf("with a node that refuses: %v", err)
	}
}

// TestProbeAll takes jobs through their lives in two shards, and fails where only one is reached.
func TestProbeAll(t *testing.T) {
	f := newFake(t, "n1", "n2")
	f.shards = 2
	if err := ProbeAll(t.Context(), f.target(), 2, time.Minute); err != nil {
		t.Fatal(err)
	}
	if f.taken["n1"] != 16 || f.taken["n2"] != 16 || len(f.jobs) > 0 {
		t.Errorf("handed out %v, left %d", f.taken, len(f.jobs))
	}
	if err := ProbeAll(f.endAfter(t, "n1", 5), f.target(), 3, time.Minute); err == nil {
		t.Error("of three shards two are reached, and nobody says so")
	}
	f.refuses = "n2"
	if err := ProbeAll(f.endAfter(t, "n2", 5), f.target(), 2, time.Minute); err == nil ||
		!strings.Contains(err.Error(), "n2") {
		t.Errorf("with a node that refuses: %v", err)
	}
}
