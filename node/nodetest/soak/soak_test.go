package soak

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	// Without BELFRY_SOAK_TIME there are a few short schedules, the same ones every time.
	seedsDefault  = 6
	lengthDefault = time.Minute

	// stallMax is how long a schedule may take in real time. One that takes longer has a goroutine
	// that waits for a lock whose holder waits for time to pass, or one that never rests.
	stallMax = 5 * time.Minute

	// timersOver is when no timer of a schedule is left, stopped or not. A bubble in which a goroutine
	// is blocked for ever is never given up, its timers keep what their functions refer to, hence the
	// whole world, and a long run would need all memory.
	timersOver = 24 * time.Hour
)

// mayStay are in the stacks of the goroutines that may outlive a life: Raft never answers what its
// machine had not come to when it was stopped, and node waits for such an answer in a goroutine of
// its own; and Raft leaves two behind if it is stopped while it hands its leadership over.
func mayStay() []string {
	return []string{"node.(*instance).outcome.func1", "raft.(*Raft).leadershipTransfer", "raft.(*Raft).leaderLoop.func2"}
}

// TestSoak runs schedules until the time in BELFRY_SOAK_TIME is over, from the seed in
// BELFRY_SOAK_SEED on, or BELFRY_SOAK_RUNS schedules. What goes wrong is kept in the directory
// BELFRY_SOAK_DIR, by default one for temporary files.
func TestSoak(t *testing.T) {
	budget, err := time.ParseDuration(or(os.Getenv("BELFRY_SOAK_TIME"), "0s"))
	if err != nil {
		t.Fatalf("BELFRY_SOAK_TIME: %v", err)
	}
	seed, err := strconv.ParseUint(or(os.Getenv("BELFRY_SOAK_SEED"), "1"), 10, 64)
	if err != nil {
		t.Fatalf("BELFRY_SOAK_SEED: %v", err)
	}
	runs, err := strconv.Atoi(or(os.Getenv("BELFRY_SOAK_RUNS"), "0"))
	if err != nil {
		t.Fatalf("BELFRY_SOAK_RUNS: %v", err)
	}
	var length time.Duration
	if budget == 0 && runs == 0 {
		runs, length = seedsDefault, lengthDefault
	}
	sum := totals{begun: time.Now(), counts: map[string]int{}}
	for told := time.Now(); runs > 0 && sum.schedules < runs || runs == 0 && time.Since(sum.begun) < budget; seed++ {
		var trace bytes.Buffer
		report := inBubble(t, Options{Seed: seed, Length: length, Trace: &trace})
		sum.add(report)
		if len(report.Violations) > 0 {
			t.Errorf("%s\nrepeat the schedule with: make soak SOAKSEED=%d SOAKRUNS=1\n%s", report, seed,
				keep(t, report, trace.Bytes()))
		}
		if time.Since(told) > time.Minute {
			told = time.Now()
			fmt.Println(sum.String())
		}
	}
	t.Logf("%s\n%s", sum.String(), sum.details())
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// totals adds up schedules.
type totals struct {
	begun     time.Time
	schedules int
	failed    []uint64
	virtual   time.Duration
	counts    map[string]int
}

func (a *totals) add(r Report) {
	a.schedules++
	a.virtual += r.Virtual
	if len(r.Violations) > 0 {
		a.failed = append(a.failed, r.Seed)
	}
	for what, n := range r.Counts {
		a.counts[what] += n
	}
}

// String returns the figures that matter in one line.
func (a *totals) String() string {
	wall := time.Since(a.begun)
	return fmt.Sprintf("%d schedules, %.1f virtual cluster-hours in %v (%.0f virtual hours an hour), failed seeds %v",
		a.schedules, a.virtual.Hours(), wall.Round(time.Second), a.virtual.Hours()/wall.Hours(), a.failed)
}

// details returns all that was counted.
func (a *totals) details() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(a.counts)) {
		fmt.Fprintf(&b, "  %9d %s\n", a.counts[what], what)
	}
	return b.String()
}

// keep writes down what is known of a schedule in which something went wrong.
func keep(t *testing.T, report Report, trace []byte) string {
	t.Helper()
	dir := or(os.Getenv("BELFRY_SOAK_DIR"), os.TempDir()) //nolint:usetesting // it is to outlive the test
	path := filepath.Join(dir, fmt.Sprintf("belfry-soak-%d.txt", report.Seed))
	if err := os.WriteFile(path, append([]byte(report.String()), trace...), 0o600); err != nil {
		return fmt.Sprintf("the trace could not be kept: %v", err)
	}
	return "trace: " + path
}

// inBubble runs one schedule in virtual time. A goroutine that does not end is a violation.
func inBubble(t *testing.T, options Options) (report Report) {
	t.Helper()
	stalled := time.AfterFunc(stallMax, func() {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		panic(fmt.Sprintf("seed %d does not come to an end", options.Seed))
	})
	defer stalled.Stop()
	left := bubble(t, func(t *testing.T) { report = Run(t.Context(), options) })
	report.Violations = append(report.Violations, left...)
	return report
}

// bubble runs f in virtual time and returns the stacks of goroutines that should have ended.
func bubble(t *testing.T, f func(t *testing.T)) (left []string) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			if !strings.Contains(fmt.Sprint(p), "blocked goroutines remain") {
				panic(p)
			}
			left = leaks()
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		f(t)
		<-time.After(timersOver)
	})
	return nil
}

// leaks returns the stacks of goroutines that should have ended.
func leaks() (found []string) {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1) // a buffer takes all
	for stack := range strings.SplitSeq(b.String(), "\n\n") {
		inside := strings.Contains(stack, "belfry/node") || strings.Contains(stack, "hashicorp")
		excused := slices.ContainsFunc(append(mayStay(), "soak.bubble"), func(text string) bool {
			return strings.Contains(stack, text)
		})
		if inside && !excused {
			found = append(found, "a goroutine does not end:\n"+stack)
		}
	}
	return found
}
