package fsm

import (
	"testing"
	"time"
)

// TestJitter: a default delay deviates by up to a tenth, evenly over jobs that failed together, and
// is the same on every replica.
func TestJitter(t *testing.T) {
	for _, delay := range DefaultRetryDelays(LatestFormat) {
		var least, most, sum time.Duration
		const fences = 10_000
		for fence := range uint64(fences) {
			got := Jitter(delay, fence) - delay
			least, most, sum = min(least, got), max(most, got), sum+got/fences
		}
		tenth := delay / 10
		if least < -tenth || most > tenth || least > -tenth*99/100 || most < tenth*99/100 || sum.Abs() > tenth/20 {
			t.Errorf("%s deviates by %s to %s, %s on average", delay, least, most, sum)
		}
	}
	for fence, want := range map[uint64]time.Duration{0: 1_087_565_860, 1: 1_044_740_831, 1 << 63: 1_078_479_934} {
		if got := Jitter(time.Second, fence); got != want {
			t.Errorf("a second after fence %d is %d ns, was %d", fence, got, want)
		}
	}
	if got := Jitter(0, 7); got != 0 {
		t.Errorf("no delay became %s", got)
	}
}
