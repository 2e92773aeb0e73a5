package admin

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// TestDedupShortened tells a queue that is younger than its window from one whose older ids had to
// go.
func TestDedupShortened(t *testing.T) {
	const minute = fsm.Time(time.Minute)
	for _, test := range []struct {
		name                string
		created, since, now fsm.Time
		settings            fsm.Settings
		want                bool
	}{
		{"younger than the window", 100 * minute, 100 * minute, 101 * minute, fsm.Settings{}, false},
		{"older than the window", 100 * minute, 190 * minute, 200 * minute, fsm.Settings{}, false},
		{"ids had to go", 100 * minute, 195 * minute, 200 * minute, fsm.Settings{}, true},
		{"of a young queue", 199 * minute, 199*minute + 1, 200 * minute, fsm.Settings{}, true},
		{"without end", 100 * minute, 100 * minute, 200 * minute, fsm.Settings{DedupForever: true}, false},
		{"not without end", 100 * minute, 101 * minute, 200 * minute, fsm.Settings{DedupForever: true}, true},
		{"a window of nothing", 100 * minute, 200 * minute, 200 * minute, fsm.Settings{DedupWindowSet: true}, false},
	} {
		part := &queuePart{
			Queue: &fsm.Queue{Created: test.created, DedupSince: test.since, Settings: test.settings}, now: test.now,
		}
		if got := dedupShortened(part); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
