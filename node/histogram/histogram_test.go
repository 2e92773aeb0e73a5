package histogram_test

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/node/histogram"
	"github.com/google/go-cmp/cmp"
)

func TestHistogram(t *testing.T) {
	h := histogram.Doubling(1, 3)
	h.Add(0.5, 1, 1.5, 4, 5)
	h.Observe(2 * time.Second)
	want := histogram.Values{Bounds: []float64{1, 2, 4}, Counts: []uint64{2, 2, 1, 1}, Sum: 14, Count: 6}
	if diff := cmp.Diff(want, h.Value()); diff != "" {
		t.Errorf("histogram (-want +got):\n%s", diff)
	}
}
