package schedule

import (
	"context"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cron"
)

// TestTimesEndWithTheCall: firings are not looked for when the caller is gone.
func TestTimesEndWithTheCall(t *testing.T) {
	zones, err := cron.BuiltInZones()
	if err != nil {
		t.Fatal(err)
	}
	rule, err := cron.Compile(&cron.Spec{Cron: "@hourly"}, zones)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, want := range []int{5, 0} {
		if list := times(ctx, "s", rule, time.Unix(0, 0), 5); len(list) != want {
			t.Errorf("%d firings, want %d", len(list), want)
		}
		cancel()
	}
}
