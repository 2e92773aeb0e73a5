package bench

import (
	"testing"
	"time"
)

// TestSaturated tells a backlog that grows from what is on its way at any moment.
func TestSaturated(t *testing.T) {
	for _, test := range []struct {
		name string
		lags lags
		rate float64
		want bool
	}{
		{"all arrive", lags{half: 3, end: 2}, 1000, false},
		{"much on its way, and no more at the end", lags{half: 500, end: 520}, 1000, false},
		{"a pause at the end", lags{half: 2, end: 60}, 1000, false},
		{"a pause at a high rate", lags{half: 100, end: 2000}, 50_000, false},
		{"it grows", lags{half: 1000, end: 2000}, 1000, true},
		{"it grows from nothing", lags{half: 0, end: 65}, 1000, true},
		{"puts are late themselves", lags{slipped: true}, 1000, true},
	} {
		if got := test.lags.saturated(test.rate); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestPlan says when puts are made, and how many jobs should have come.
func TestPlan(t *testing.T) {
	r := &run{Config: Config{RatePerSecond: 100, Duration: 2 * time.Second}}
	p := r.plan()
	if p.total != 200 || p.due(50).Sub(p.began) != 500*time.Millisecond {
		t.Errorf("%d puts, of which the 50th at %v", p.total, p.due(50).Sub(p.began))
	}
	p.began = p.began.Add(-time.Hour) // long over
	for _, test := range []struct {
		taken, want uint64
		delay       time.Duration
	}{{0, 200, 0}, {150, 50, time.Second}, {200, 0, 0}, {300, 0, 0}, {0, 0, 2 * time.Hour}} {
		if got := p.missing(test.taken, test.delay); got != test.want {
			t.Errorf("%d taken, a delay of %v: %d are missing, want %d", test.taken, test.delay, got, test.want)
		}
	}
}
