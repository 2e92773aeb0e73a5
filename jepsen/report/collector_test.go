package report

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCollectorCountsEachCallInItsSecond(t *testing.T) {
	var c Collector
	c.Add(Call{Ended: 2500 * time.Millisecond, Kind: Refused})
	c.Add(Call{Ended: 2999999999, Kind: Unknown})
	c.Add(Call{Ended: 0, Kind: Applied, Latency: 1500 * time.Microsecond})
	c.Add(Call{Ended: time.Second - 1, Kind: Applied,
		Lateness: []time.Duration{3 * time.Millisecond, -time.Second, 2 * time.Millisecond}})
	c.Add(Call{Ended: -time.Minute, Kind: Applied, Latency: 250 * time.Microsecond})
	want := []Second{
		{Applied: 3, Latency: Quantiles{2, 0.25, 1.5, 1.5}, Lateness: Quantiles{3, 2, 3, 3}},
		{},
		{NotApplied: 1, Unknown: 1},
	}
	for _, length := range []time.Duration{0, 1500 * time.Millisecond, 2001 * time.Millisecond, 3 * time.Second} {
		if diff := cmp.Diff(want, c.Seconds(length)); diff != "" {
			t.Errorf("of %v (-want +got):\n%s", length, diff)
		}
	}
	if diff := cmp.Diff(append(want, Second{}), c.Seconds(3*time.Second+1)); diff != "" {
		t.Errorf("the run goes on after the last call (-want +got):\n%s", diff)
	}
}

func TestCollectorGivesQuantilesOfAll(t *testing.T) {
	var c Collector
	for i := 1000; i > 0; i-- {
		c.Add(Call{Kind: Applied, Latency: time.Duration(i) * time.Millisecond})
	}
	if diff := cmp.Diff([]Second{{Applied: 1000, Latency: Quantiles{1000, 500, 990, 1000}}}, c.Seconds(0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCollectorIsForManyGoroutines(t *testing.T) {
	var c Collector
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range 100 {
				c.Add(Call{Ended: time.Duration(i) * 20 * time.Millisecond, Kind: Applied, Latency: 1})
				c.Seconds(0)
			}
		})
	}
	group.Wait()
	if total := sum(c.Seconds(0)); total.Applied != 800 {
		t.Errorf("%d of 800 calls", total.Applied)
	}
}

func TestCollectorPanicsAtNoKind(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a call of no kind was counted")
		}
	}()
	new(Collector).Add(Call{})
}
