package chart

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/format"
)

// drawn returns the charts of the last hour.
func drawn(t *testing.T, c format.Clock, all []*belfryv1.QueueMinute, since time.Time) []string {
	t.Helper()
	var out []string
	for _, chart := range LastHour(c, all, since) {
		var text strings.Builder
		if err := chart.Draw(c).Render(&text); err != nil {
			t.Fatal(err)
		}
		out = append(out, text.String())
	}
	return out
}

// TestLastHour: what is not known is marked and not drawn as 0, a minute without lateness is a gap, and
// each chart says its numbers in words and as a table.
func TestLastHour(t *testing.T) {
	zone := time.FixedZone("", 2*3600)
	c := format.Clock{Now: time.Date(2026, 11, 29, 10, 30, 20, 0, time.UTC), Zone: zone}
	minute := func(ago int) *timestamppb.Timestamp {
		return timestamppb.New(c.Now.Truncate(time.Minute).Add(-time.Duration(ago) * time.Minute))
	}
	all := []*belfryv1.QueueMinute{
		{Start: minute(75), Puts: 999},
		{Start: minute(10), Puts: 1200, Reserves: 3, LateP50: durationpb.New(time.Second),
			LateP99: durationpb.New(2 * time.Second)},
		{Start: minute(0), Puts: 4, Failures: 2},
		{Start: minute(-1), Puts: 998},
	}
	got := drawn(t, c, all, c.Now.Add(-30*time.Minute))
	for i, wants := range [][]string{
		{`aria-label="Jobs, by minutes: put at most 1` + "\u202f" + `200, handed out at most 3, acked at most 0, ` +
			`failed at most 2; before 12:00 nothing is known"`, `<rect class="unknown" x="0.0" y="0.0" width="29`,
			`<span>11:31</span><span>12:30</span>`, `>12:20</th><td>1` + "\u202f" + `200</td><td>3</td><td>0</td><td>0</td>`,
			`>12:30</th><td>4</td><td>0</td><td>0</td><td>2</td>`, "in gray, nothing is known"},
		{`aria-label="Lateness, by minutes: half of the jobs at most 1 s, 99 of 100 at most 2 s; before`,
			`>12:20</th><td>1 s</td><td>2 s</td>`, `d="M493.0 3.0h4.0"`},
	} {
		for _, want := range wants {
			if !strings.Contains(got[i], want) {
				t.Errorf("want %q in %s", want, got[i])
			}
		}
		if strings.Contains(got[i], "999") || strings.Contains(got[i], "998") {
			t.Errorf("a minute of another hour is there: %s", got[i])
		}
	}
	// A minute of which a part is known is drawn, those before are not.
	if !strings.Contains(got[0], `<path class="line2" d="M293.0 79.0h4.0L305.0 79.0`) {
		t.Errorf("the line of what never happened: %s", got[0])
	}
	if known := drawn(t, c, nil, c.Now.Add(-2*time.Hour)); strings.Contains(known[0], "unknown") ||
		!strings.Contains(known[0], "Nothing happened.") || !strings.Contains(known[1], `minutes: nothing"`) {
		t.Errorf("a queue of which nothing is to be said: %s", known)
	}
}
