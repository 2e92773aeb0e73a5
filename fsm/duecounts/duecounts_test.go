package duecounts

import (
	"math/rand/v2"
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// TestDueCounts holds the table against a map: it grows, is used up by slices that pass, and
// shrinks, and never has to wait until all has moved.
func TestDueCounts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	c, want := New(3), map[dueKey]uint32{}
	largest := 0
	var keys []dueKey // one for each job
	for n := range 600_000 {
		most := 200 // jobs at a time; the slices wander, so that most are new
		if n < 100_000 {
			most = 40_000
		}
		if len(keys) < most && rng.IntN(4) > 0 || len(keys) == 0 {
			k := dueLevel(1 + rng.IntN(3)).key(fsm.Time(n/10 + rng.IntN(50_000)))
			keys = append(keys, k)
			change(t, &c, want, k, 1)
		} else {
			i := rng.IntN(len(keys))
			k := keys[i]
			keys[i] = keys[len(keys)-1]
			keys = keys[:len(keys)-1]
			change(t, &c, want, k, ^uint32(0))
		}
		largest = max(largest, len(c.slots))
	}
	if largest < 65536 || len(c.slots) > largest/8 {
		t.Errorf("the largest of the tables had %d slots, the last %d", largest, len(c.slots))
	}
}

// change counts n jobs in both and compares the slice and one beside it.
func change(t *testing.T, c *Counts, want map[dueKey]uint32, k dueKey, n uint32) {
	t.Helper()
	if c.used >= len(c.slots)/4*3 && c.old != nil {
		t.Fatalf("%d slots of %d are used, and %d of those before have not moved", c.used, len(c.slots), len(c.old)-c.moved)
	}
	c.add(k, n)
	if want[k] += n; want[k] == 0 {
		delete(want, k)
	}
	for _, k := range [...]dueKey{k, k + 1} {
		if got := c.jobs(k); got != uint64(want[k]) {
			t.Fatalf("slice %x has %d jobs, want %d", k, got, want[k])
		}
	}
}
