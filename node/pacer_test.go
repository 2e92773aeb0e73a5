package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

func TestPacerSettlesWhatNobodyAskedFor(t *testing.T) {
	tests := []struct {
		name string
		// jobs are put at once, with this delay, and reserved once if leased.
		jobs    int
		delay   time.Duration
		leased  bool
		overdue time.Duration // after which the pacer has something to do
		entries uint64        // that it takes
	}{
		{"nothing", 0, 0, false, time.Second, 0},
		{"a job that is ready already", 1, 0, false, time.Second, 0},
		{"a job that falls due", 1, time.Second, false, time.Second, 1},
		{"jobs that fall due together", 100, time.Second, false, time.Second, 1},
		{"more than one step", 2*fsm.StepMax + 1, time.Second, false, time.Second, 3},
		{"a lease that lapses", 1, 0, true, time.Minute, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				n := openNode(t, testConfig(t, dir))
				var puts []fsm.Command
				for range tt.jobs {
					puts = append(puts, put("orders", "x", tt.delay))
				}
				do(t, n, 0, puts...)
				if tt.leased {
					reserve(t, n, 0, "orders", 0)
				}
				before := lastIndex(n)
				time.Sleep(tt.overdue + (100 * time.Millisecond) - time.Millisecond)
				expectEntries(t, n, before, 0)
				time.Sleep(2 * time.Millisecond)
				expectEntries(t, n, before, tt.entries)
				time.Sleep(time.Hour)
				expectEntries(t, n, before, tt.entries)
				if counts := queueOf(t, n, "orders").Counts; counts.Ready != uint64(tt.jobs) {
					t.Errorf("%d jobs are ready, want %d", counts.Ready, tt.jobs)
				}
			})
		})
	}
}

func TestPacerLeavesToCallersWhatTheySettle(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		for i := range 20 {
			do(t, n, 0, put("orders", "x", time.Duration(i+1)*time.Second))
		}
		before := lastIndex(n)
		for range 20 {
			if g := reserve(t, n, 0, "orders", time.Minute); len(g) != 1 {
				t.Fatalf("granted %+v", g)
			}
		}
		expectEntries(t, n, before, 20)
	})
}

func TestPacerFollowsAnEarlierDeadline(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		do(t, n, 0, put("orders", "late", time.Hour))
		synctest.Wait()
		do(t, n, 0, put("orders", "early", time.Second))
		before := lastIndex(n)
		time.Sleep(time.Second + (100 * time.Millisecond))
		expectEntries(t, n, before, 1)
	})
}
