package fsm

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestFormatTime: a time is formatted as the time package does it.
func TestFormatTime(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	times := []Time{0, 1, TimeMax, 951_782_400_000_000_000, 1_709_164_800_000_000_000, 4_107_542_400_000_000_000}
	for range 100_000 {
		at := Time(r.Int64N(int64(TimeMax)))
		times = append(times, at, at-at%second, at-at%Time(time.Millisecond))
	}
	for _, at := range times {
		if got, want := FormatTime(at), time.Unix(0, int64(at)).UTC().Format(time.RFC3339Nano); got != want {
			t.Fatalf("%d is %s, should be %s", at, got, want)
		}
	}
}
