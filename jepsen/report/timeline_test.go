package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEmptySecondsAreGaps(t *testing.T) {
	seconds := []Second{
		{Applied: 1, NotApplied: 1, Latency: Quantiles{1, 1, 10, 100}},
		{},
		{Applied: 2, Latency: Quantiles{2, 10, 10, 10}},
		{Applied: 1, Latency: Quantiles{1, 0, 100, 100}},
	}
	p := quantilesPlot(plot{}, seconds, func(s Second) Quantiles { return s.Latency })
	got := map[string]string{}
	for _, s := range append(p.Series, throughputPlot(seconds).Series...) {
		got[s.Name] = s.Path
	}
	// Of 0.1 ms at 100 to 100 ms at 0.
	want := map[string]string{
		"p50":     "M0 66.67H1M2 33.33H3V100H4",
		"p99":     "M0 33.33H1M2 33.33H3V0H4",
		"max":     "M0 0H1M2 33.33H3V0H4",
		"applied": "M0 100V50H1V100H0ZM2 100V0H3V50H4V100H3V100H2Z",
		"refused": "M0 50V0H1V50H0Z",
		"unknown": "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPlotOfNothingIsEmpty(t *testing.T) {
	for _, p := range []plot{throughputPlot(make([]Second, 3)),
		quantilesPlot(plot{}, nil, func(s Second) Quantiles { return s.Latency })} {
		if !p.Empty() || len(p.Ticks) != 3 {
			t.Errorf("%+v", p)
		}
	}
}

func TestLanesKeepFaultsApart(t *testing.T) {
	r := made{3600, 400, 0}.report()
	seen := map[int]bool{}
	for _, row := range timelineOf(r).Rows {
		count := 0
		for _, lane := range row.Lanes {
			for i, b := range lane {
				count++
				seen[b.ID] = true
				if f := r.Faults[b.ID-1]; f.Name != row.Name || i > 0 && r.Faults[lane[i-1].ID-1].To > f.From {
					t.Errorf("fault %d is in a lane of %s, after %d", b.ID, row.Name, lane[max(0, i-1)].ID)
				}
			}
		}
		if count != row.Count {
			t.Errorf("%s has %d bars of %d", row.Name, count, row.Count)
		}
	}
	if len(seen) != len(r.Faults) {
		t.Errorf("%d of %d faults have a bar", len(seen), len(r.Faults))
	}
}

func TestShadesSayHowManyFaultsAreUnderWay(t *testing.T) {
	got := shades([]Fault{{From: 1, To: 10}, {From: 2, To: 5}, {From: 3, To: 4}, {From: 3, To: 4}, {From: 10, To: 12},
		{From: 20, To: 20}})
	want := []shade{{"1", "1", 1}, {"2", "1", 2}, {"3", "1", 3}, {"4", "1", 2}, {"5", "5", 1}, {"10", "2", 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMarksOfCloseViolationsAreOne(t *testing.T) {
	line := &timeline{Length: 100}
	got := line.marks([]Violation{{"I2", 50, "b"}, {"I1", 10, "a"}, {"I3", 53.5, "c"}, {"I4", 54.5, "d"}, {"I5", 99, "e"}})
	want := []mark{
		{ID: 2, At: "10", Label: "I1", Text: "I1 at 0:10.0: a"},
		{ID: 1, At: "50", Label: "2×", Text: "I2 at 0:50.0: b — and 1 more until 0:53.5"},
		{ID: 4, At: "54.5", Label: "I4", Text: "I4 at 0:54.5: d"},
		{ID: 5, At: "99", Label: "I5", Class: "last", Text: "I5 at 1:39.0: e"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPhasesDivideTheRun(t *testing.T) {
	line := &timeline{Length: 80}
	want := []phase{{"clients work, faults strike", "0", "75"}, {"recovery, drain", "75", "25"}}
	if diff := cmp.Diff(want, line.phases(60)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, load := range []float64{0, 80, 81} {
		if got := line.phases(load); got != nil {
			t.Errorf("after a load of %v s of 80 s: %v", load, got)
		}
	}
}

func TestAxisReachesToTheLastThing(t *testing.T) {
	for _, c := range []struct {
		report Report
		want   float64
		ticks  int
	}{
		{Report{}, 1, 2},
		{Report{Seconds: make([]Second, 60)}, 60, 7},
		{Report{Seconds: make([]Second, 60), Faults: []Fault{{To: 61.5}}}, 62, 5},
		{Report{Violations: []Violation{{At: 3599.5}}}, 3600, 7},
		{Report{Violations: []Violation{{At: secondsMax}}}, secondsMax, 5},
	} {
		got := timelineOf(&c.report)
		if got.Length != c.want || len(got.Ticks) != c.ticks {
			t.Errorf("%v long with %d ticks, want %v with %d", got.Length, len(got.Ticks), c.want, c.ticks)
		}
	}
}
