package sim

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The environment sets how much is simulated:
//
//	BELFRY_SIM_TIME   how long, instead of a number of seeds
//	BELFRY_SIM_SEEDS  how many seeds, seedsDefault if it is not set
//	BELFRY_SIM_SEED   the first seed; a failure names its own

// effort is how much a run simulates.
type effort struct {
	first, seeds uint64
	until        time.Time // if it is set, seeds does not count
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
	e := effort{first: number("BELFRY_SIM_SEED", 1), seeds: number("BELFRY_SIM_SEEDS", seedsDefault)}
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
func (e effort) run(cfg Config) (sum Tally, failed *Outcome) {
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
				if time.Since(told) > time.Minute {
					told = time.Now()
					fmt.Printf("%d seeds in %v, the last one %d\n", sum[Seeds], told.Sub(began).Round(time.Second), seed)
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
	t.Logf("%.0f seeds/s, %.0f commands/s in %v on %d processors\n%s", float64(sum[Seeds])/spent.Seconds(),
		float64(sum[Commands])/spent.Seconds(), spent.Round(time.Millisecond), runtime.GOMAXPROCS(0), sum)
	if failed != nil {
		t.Fatal(failed)
	}
}
