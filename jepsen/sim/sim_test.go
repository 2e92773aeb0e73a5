package sim

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfrydb/belfry/jepsen/sim/tally"
)

// The environment sets how much is simulated:
//
//	BELFRY_SIM_TIME   how long, instead of a number of seeds
//	BELFRY_SIM_KEYED  how many operations on jobs with a key are checked, instead of a number of seeds
//	BELFRY_SIM_SEEDS  how many seeds, seedsDefault if it is not set
//	BELFRY_SIM_SEED   the first seed; a failure names its own

// effort is how much a run simulates.
type effort struct {
	first, seeds uint64
	keyed        uint64    // operations on jobs with a key; if it is not 0, seeds does not count
	until        time.Time // if it is set, seeds and keyed do not count
}

func effortOf(t *testing.T) effort {
	t.Helper()
	number := func(name string, otherwise uint64) uint64 {
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
	e := effort{first: number("BELFRY_SIM_SEED", 1), seeds: number("BELFRY_SIM_SEEDS", seedsDefault),
		keyed: number("BELFRY_SIM_KEYED", 0)}
	if e.keyed > 0 {
		e.seeds = math.MaxUint64
	}
	if text := os.Getenv("BELFRY_SIM_TIME"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("BELFRY_SIM_TIME: %v", err)
		}
		e.until = time.Now().Add(d)
	}
	return e
}

// run simulates on all processors, each world in one goroutine, until one fails or the effort is
// spent. It returns the failure of the lowest seed.
func (e effort) run(cfg Config) (sum tally.Tally, failed *Outcome) {
	var (
		next atomic.Uint64
		stop atomic.Bool
		mu   sync.Mutex
		wait sync.WaitGroup

		began = time.Now()
		told  = began
	)
	next.Store(e.first)
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for !stop.Load() {
				seed := next.Add(1) - 1
				if e.until.IsZero() && seed-e.first >= e.seeds || !e.until.IsZero() && !time.Now().Before(e.until) {
					return
				}
				o := Run(seed, cfg)
				mu.Lock()
				sum.Add(o.Tally)
				if e.until.IsZero() && e.keyed > 0 && sum.Keyed() >= e.keyed {
					stop.Store(true)
				}
				if time.Since(told) > time.Minute {
					told = time.Now()
					fmt.Printf("%d seeds in %v, the last one %d; %d operations on jobs with a key\n", sum[tally.Seeds],
						told.Sub(began).Round(time.Second), seed, sum.Keyed())
				}
				if o.Violation != nil && (failed == nil || seed < failed.Seed) {
					failed = &o
					stop.Store(true)
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return sum, failed
}

// TestSim simulates worlds, in which nothing may be wrong.
func TestSim(t *testing.T) {
	t.Parallel()
	e := effortOf(t)
	began := time.Now()
	sum, failed := e.run(Config{})
	spent := time.Since(began)
	perSecond := func(count tally.Count) float64 { return float64(sum[count]) / spent.Seconds() }
	t.Logf("%.0f seeds/s, %.0f commands/s in %v on %d processors; %d operations on jobs with a key were checked\n%s",
		perSecond(tally.Seeds), perSecond(tally.Commands), spent.Round(time.Millisecond), runtime.GOMAXPROCS(0), sum.Keyed(),
		sum)
	if failed != nil {
		t.Fatal(failed)
	}
}
