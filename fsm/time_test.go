package fsm

import (
	"math"
	"testing"
	"time"
)

func TestTimesAreWholeMilliseconds(t *testing.T) {
	const ms = Time(time.Millisecond)
	for _, tc := range []struct {
		name      string
		got, want Time
	}{
		{"ceil of a whole one", (5 * ms).Ceil(), 5 * ms},
		{"ceil rounds up", (5*ms + 1).Ceil(), 6 * ms},
		{"after nothing, due already", (5*ms + 999_999).After(0), 5 * ms},
		{"after a delay, never early", (5*ms + 1).After(2 * time.Millisecond), 8 * ms},
		{"after a delay that ends whole", (5 * ms).After(2 * time.Millisecond), 7 * ms},
		{"after less than a millisecond", (5 * ms).After(1), 6 * ms},
		{"sum beyond the end", (5 * ms).Add(math.MaxInt64), TimeMax},
		{"after beyond the end", (5 * ms).After(math.MaxInt64), TimeMax},
		{"ceil of the end", TimeMax.Ceil(), TimeMax},
		{"ceil beyond the end", Time(math.MaxInt64).Ceil(), TimeMax},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, tc.got, tc.want)
		}
	}
	if got := (5*ms + 1).CeilMillis(); got != 6 {
		t.Errorf("CeilMillis is %d, want 6", got)
	}
}
