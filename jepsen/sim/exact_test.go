package sim

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// exactSeeds are lived through again and again.
const exactSeeds = 24

// printHashes makes this test binary print the hashes of its worlds and nothing else.
const printHashes = "BELFRY_SIM_PRINT_HASHES"

// hashes returns a line for each of the first worlds: its hash and what was counted in it.
func hashes() string {
	var b strings.Builder
	for seed := uint64(1); seed <= exactSeeds; seed++ {
		o := Run(seed, Config{})
		fmt.Fprintf(&b, "%d %016x %v\n", seed, o.Hash, o.Tally)
	}
	return b.String()
}

// A seed is the same world on any number of processors, beside others or alone, in this process and
// in another.
func TestBitExact(t *testing.T) {
	if os.Getenv(printHashes) != "" {
		fmt.Print("\nhashes:\n", hashes(), ":hashes\n")
		return
	}
	want := hashes()
	beside := make(chan string)
	for range 4 {
		go func() { beside <- hashes() }()
	}
	for range 4 {
		if got := <-beside; got != want {
			t.Errorf("beside others\n%s\nalone\n%s", got, want)
		}
	}
	for _, processors := range []int{1, 2 * runtime.GOMAXPROCS(0)} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBitExact$")
		cmd.Env = append(os.Environ(), printHashes+"=1", fmt.Sprint("GOMAXPROCS=", processors), "GODEBUG=randautoseed=1")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("running the test in another process: %v", err)
		}
		_, after, _ := strings.Cut(string(out), "\nhashes:\n")
		if got, _, _ := strings.Cut(after, ":hashes\n"); got != want {
			t.Errorf("in another process with GOMAXPROCS=%d\n%s\nin this one\n%s", processors, got, want)
		}
	}
}

// Nothing that only looks changes a world: neither a reader of the trace nor the reference model.
func TestLookingChangesNothing(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= exactSeeds; seed++ {
		var text bytes.Buffer
		want := Run(seed, Config{}).Hash
		if got := Run(seed, Config{Trace: &text}).Hash; got != want {
			t.Errorf("seed %d: hash %016x with a trace, %016x without", seed, got, want)
		}
		if got := Run(seed, Config{ModelEvery: 1}).Hash; got != want {
			t.Errorf("seed %d: hash %016x with the model, %016x without", seed, got, want)
		}
		if lines := strings.Count(text.String(), "\n"); lines < 100 {
			t.Errorf("seed %d: a trace of %d lines", seed, lines)
		}
	}
}

// The hash tells worlds apart, also those that come apart late.
func TestHashTellsApart(t *testing.T) {
	t.Parallel()
	seen := map[uint64]string{}
	for seed := uint64(1); seed <= exactSeeds; seed++ {
		for _, steps := range []int{stepsDefault, stepsDefault - 1} {
			who := fmt.Sprintf("seed %d with %d steps", seed, steps)
			h := Run(seed, Config{Steps: steps}).Hash
			if seen[h] != "" {
				t.Errorf("%s has the hash of %s", who, seen[h])
			}
			seen[h] = who
		}
	}
}

// A violation is told with its seed, the steps before it, and how to have it again.
func TestViolationIsTold(t *testing.T) {
	t.Parallel()
	p := plantedLeases()[0]
	for seed := uint64(1); seed <= plantedSeeds; seed++ {
		o := Run(seed, Config{mistakes: p.make})
		if o.Violation == nil {
			continue
		}
		text := o.String()
		for _, want := range []string{fmt.Sprintf("seed %d: %s: at entry", seed, o.Violation.Rule), "in step ",
			"*fsm.Reserve", "VIOLATION", fmt.Sprintf("SIMSEED=%d", seed)} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
		if strings.Contains(text, "not repeatable") {
			t.Error(text)
		}
		return
	}
	t.Error("nothing was noticed")
}

// A machine that panics is a violation, not the end of the run.
func TestPanicIsToldAsViolation(t *testing.T) {
	t.Parallel()
	o := Run(1, Config{mistakes: func() *mistakes {
		return &mistakes{after: func(*shard, *entry) { panic("planted") }}
	}})
	if o.Violation == nil || o.Violation.Rule != "nothing panics" || !strings.Contains(o.Violation.Text, "planted") {
		t.Errorf("got %v", o)
	}
}
