package flips

import (
	"os"
	"strconv"
	"testing"
	"time"
)

const (
	// Without the environment a short share runs, from a seed that is the same every time and from one
	// that is not.
	flipsDefault  = 600
	trialsDefault = 25

	// trialsPerWorld is how often the disks of one cluster are damaged.
	trialsPerWorld = 25
)

// number returns a number from the environment.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
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

// seeds returns the seeds to run: that of the environment, else 1 and another one.
func seeds(t *testing.T) []uint64 {
	t.Helper()
	if seed := number(t, "BELFRY_FLIPS_SEED", 0); seed > 0 {
		return []uint64{seed}
	}
	return []uint64{1, uint64(time.Now().Unix())}
}

// TestFlipsInStores flips BELFRY_FLIPS bits in files of single groups.
func TestFlipsInStores(t *testing.T) {
	for _, seed := range seeds(t) {
		begun := time.Now()
		report := runStores(t, Options{Seed: seed, Flips: int(number(t, "BELFRY_FLIPS", flipsDefault))})
		conclude(t, report, seed, begun)
	}
}

// TestFlipsInClusters damages disks of clusters of three BELFRY_FLIPS_TRIALS times.
func TestFlipsInClusters(t *testing.T) {
	trials := int(number(t, "BELFRY_FLIPS_TRIALS", trialsDefault))
	for _, seed := range seeds(t) {
		begun, report := time.Now(), newReport()
		for world := uint64(0); report.Trials < trials && len(report.Violations) == 0; world++ {
			report.add(runWorld(t, Options{Seed: seed}, world))
		}
		conclude(t, report, seed, begun)
	}
}

func conclude(t *testing.T, report *Report, seed uint64, begun time.Time) {
	t.Helper()
	t.Logf("seed %d: %d disks damaged, %d bits flipped, %d disks replaced, %v\n%s", seed, report.Trials, report.Flips,
		report.Replaced,
		time.Since(begun).Round(time.Millisecond), report.Table())
	for _, violation := range report.Violations {
		t.Errorf("%s\nrepeat it with: make flips FLIPS=%d FLIPSTRIALS=%d FLIPSSEED=%d", violation, report.Flips,
			report.Trials, seed)
	}
	if report.of(reported) == 0 {
		t.Error("no damage at all was reported")
	}
}

func runStores(t *testing.T, o Options) (report *Report) {
	t.Helper()
	bubble(t, func(*testing.T) { report = RunStores(o) })
	return report
}
