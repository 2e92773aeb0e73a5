//go:build jepsen

package server

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// TestFaultyClock reads the file that the harness's own test writes, at the beginning of 2000:
// three seconds late, a quarter too fast, seven seconds missed.
func TestFaultyClock(t *testing.T) {
	path := filepath.Join("testdata", "clock.golden")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c, err := openFaultyClock(path)
		if err != nil {
			t.Fatal(err)
		}
		right := c.Source.Monotonic()
		if missed := right - c.Monotonic(); missed != 7*time.Second {
			t.Errorf("the monotonic clock missed %v", missed)
		}
		for _, passed := range []time.Duration{0, 4 * time.Second, time.Hour} {
			time.Sleep(passed - time.Since(began))
			want := fsm.Time(began.Add(-3*time.Second + passed + passed/4).UnixNano())
			if got := c.Wall(); got != want {
				t.Errorf("after %v it is off by %v", passed, time.Duration(got-want))
			}
		}
	})
}

// TestRightClock has a file of zeros, as the harness makes it: both clocks are right.
func TestRightClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clock")
	if err := os.WriteFile(path, make([]byte, clockWords*8), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		c, err := openFaultyClock(path)
		if err != nil {
			t.Fatal(err)
		}
		if wall, mono := c.Wall(), c.Monotonic(); wall != fsm.Time(time.Now().UnixNano()) || mono != c.Source.Monotonic() {
			t.Errorf("the clocks read %v and %v", wall, mono)
		}
	})
}

// TestInstrument takes what it is given from the environment, and refuses what it cannot use.
func TestInstrument(t *testing.T) {
	for name, set := range map[string]struct{ variable, value string }{
		"no such journal": {journalVariable, filepath.Join(t.TempDir(), "none")},
		"no such clock":   {clockVariable, filepath.Join(t.TempDir(), "none")},
		"no number":       {snapshotVariable, "many"},
		"nothing":         {snapshotVariable, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(set.variable, set.value)
			if _, err := instrument(node.Config{Name: "n1"}); err == nil {
				t.Errorf("%s=%s is taken", set.variable, set.value)
			}
		})
	}
	t.Run("all", func(t *testing.T) {
		dir := t.TempDir()
		t.Setenv(journalVariable, dir)
		t.Setenv(clockVariable, filepath.Join("testdata", "clock.golden"))
		t.Setenv(snapshotVariable, "4096")
		cfg, err := instrument(node.Config{Name: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Applied == nil || cfg.Clock == nil || cfg.SnapshotBytes != 4096 || cfg.TrailingBytes != 4096 {
			t.Errorf("the node gets %+v", cfg)
		}
		if files, err := filepath.Glob(filepath.Join(dir, "n1-*.journal")); err != nil || len(files) != 1 {
			t.Errorf("journals: %v, %v", files, err)
		}
	})
}
