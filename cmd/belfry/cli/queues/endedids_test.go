package queues

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestEndedIDs says in words for how long the ids of ended jobs are remembered. A queue younger
// than the window is none of which less is remembered.
func TestEndedIDs(t *testing.T) {
	forever := true
	for _, test := range []struct {
		held      time.Duration
		shortened bool
		settings  *belfryv1.QueueSettings
		want      string
	}{
		{124600 * time.Microsecond, false, &belfryv1.QueueSettings{DedupWindow: clitest.In(10 * time.Minute)},
			"for 10m after the job has ended"},
		{10 * time.Minute, false, &belfryv1.QueueSettings{DedupWindow: clitest.In(10 * time.Minute)},
			"for 10m after the job has ended"},
		{time.Minute, true, &belfryv1.QueueSettings{DedupWindow: clitest.In(time.Hour)},
			"for 1m after the job has ended instead of 1h, because a shard remembers no more than 10,000,000"},
		{0, false, &belfryv1.QueueSettings{DedupWindow: clitest.In(0)}, "no"},
		{time.Minute, false, &belfryv1.QueueSettings{DedupForever: &forever}, "without end"},
		{time.Minute, true, &belfryv1.QueueSettings{DedupForever: &forever},
			"for 1m after the job has ended, not without end, because a shard remembers no more than 10,000,000"},
	} {
		q := &belfryv1.Queue{
			DedupWindowHeld: clitest.In(test.held), DedupWindowShortened: test.shortened, Settings: test.settings,
		}
		if got := endedIDs(q); got != test.want {
			t.Errorf("%v held: %q, want %q", test.held, got, test.want)
		}
	}
}
