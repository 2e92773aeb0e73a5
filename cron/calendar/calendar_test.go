package calendar

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/cron"
	"github.com/belfrydb/belfry/fsm"
)

func calendars(t *testing.T) *Calendars {
	t.Helper()
	zones, err := cron.BuiltInZones()
	if err != nil {
		t.Fatal(err)
	}
	return New(zones)
}

func at(t *testing.T, text string) fsm.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return fsm.Time(v.UnixNano())
}

// TestCalendar: every field of a spec counts, and the due time is the nominal time plus the jitter.
func TestCalendar(t *testing.T) {
	c := calendars(t)
	spec := fsm.ScheduleSpec{Cron: "30 2 * * *", TimeZone: "Europe/Berlin"}
	after := at(t, "2027-03-26T12:00:00Z")
	next := func(change func(*fsm.ScheduleSpec)) string {
		t.Helper()
		changed := spec
		change(&changed)
		calendar, err := c.Of("report", &changed)
		if err != nil {
			t.Fatal(err)
		}
		nominal := calendar.Next(after)
		if changed.Jitter == 0 && nominal != 0 && calendar.Due(nominal) != nominal {
			t.Errorf("a firing at %d without jitter is due at %d", nominal, calendar.Due(nominal))
		}
		return fsm.FormatTime(nominal)
	}
	none := fsm.FormatTime(0)
	for name, tc := range map[string]struct {
		change func(*fsm.ScheduleSpec)
		want   string
	}{
		"as it is": {func(*fsm.ScheduleSpec) {}, "2027-03-27T01:30:00Z"},
		"zone":     {func(s *fsm.ScheduleSpec) { s.TimeZone = "" }, "2027-03-27T02:30:00Z"},
		"excluded": {func(s *fsm.ScheduleSpec) { s.Exclude = []string{"* * 27 3 *"} }, "2027-03-28T01:00:00Z"},
		"start":    {func(s *fsm.ScheduleSpec) { s.Start = at(t, "2027-03-28T00:00:00Z") }, "2027-03-28T01:00:00Z"},
		"start, LITERAL": {func(s *fsm.ScheduleSpec) {
			s.Start, s.DST = at(t, "2027-03-28T00:00:00Z"), uint8(cron.Literal)
		}, "2027-03-29T00:30:00Z"},
		"end":   {func(s *fsm.ScheduleSpec) { s.End = at(t, "2027-03-26T13:00:00Z") }, none},
		"every": {func(s *fsm.ScheduleSpec) { s.Cron, s.Every = "", time.Hour }, "2027-03-26T13:00:00Z"},
		"phase": {func(s *fsm.ScheduleSpec) {
			s.Cron, s.Every, s.Phase = "", time.Hour, time.Minute
		}, "2027-03-26T12:01:00Z"},
	} {
		if got := next(tc.change); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	spec.Jitter = time.Minute
	calendar, err := c.Of("report", &spec)
	if err != nil {
		t.Fatal(err)
	}
	want := after.Add(cron.JitterOf("report", time.Unix(0, int64(after)), time.Minute))
	if got := calendar.Due(after); got != want || got == after {
		t.Errorf("due at %d, want %d", got, want)
	}
	if calendar.ZoneData() != c.Zones().Version() {
		t.Errorf("zone data %q", calendar.ZoneData())
	}
}

// TestRulesAreBounded: compiled rules are kept, but not without end; a rule that is none is an error.
func TestRulesAreBounded(t *testing.T) {
	for excludes := range 2 {
		c := calendars(t)
		most := expressionsMax / (1 + excludes)
		for i := range most + 10 {
			spec := &fsm.ScheduleSpec{Every: time.Second, Start: fsm.Time(i), Exclude: []string{"* * 24 12 *"}[:excludes]}
			if _, err := c.Of("s", spec); err != nil {
				t.Fatal(err)
			}
		}
		if len(c.rules) != 10 || c.expressions != 10*(1+excludes) {
			t.Errorf("%d rules with %d expressions are kept", len(c.rules), c.expressions)
		}
		if _, err := c.Of("s", &fsm.ScheduleSpec{Cron: "61 * * * *"}); err == nil {
			t.Error("no error for a minute of 61")
		}
	}
}

// TestCompilesBeside: one rule is found while another one is compiled.
func TestCompilesBeside(t *testing.T) {
	c := calendars(t)
	kept, slow := &fsm.ScheduleSpec{Every: time.Second}, &fsm.ScheduleSpec{Every: time.Hour}
	if _, err := c.Rule(kept); err != nil {
		t.Fatal(err)
	}
	found := false
	c.compile = func(spec *cron.Spec, zones *cron.Zones) (*cron.Rule, error) {
		found = c.mu.TryLock()
		if found {
			c.mu.Unlock()
		}
		return cron.Compile(spec, zones)
	}
	if _, err := c.Rule(slow); err != nil || !found {
		t.Errorf("%v; the rules could be read meanwhile: %v", err, found)
	}
}
