package schedules

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// TestNominal compares the calendar of the checker with times that are written down.
func TestNominal(t *testing.T) {
	at := func(seconds float64) fsm.Time { return fsm.Time(seconds * 1e9) }
	for name, tc := range map[string]struct {
		spec        fsm.ScheduleSpec
		after, want fsm.Time
		unknown     bool
	}{
		"every second":        {fsm.ScheduleSpec{Every: time.Second}, at(5.5), at(6), false},
		"just then":           {fsm.ScheduleSpec{Every: time.Second}, at(6), at(7), false},
		"with a phase":        {fsm.ScheduleSpec{Every: 2 * time.Second, Phase: time.Second}, at(6), at(7), false},
		"each other second":   {fsm.ScheduleSpec{Cron: "*/2 * * * * *"}, at(7), at(8), false},
		"not before it may":   {fsm.ScheduleSpec{Every: time.Second, Start: at(10)}, at(6), at(10), false},
		"not after it may":    {fsm.ScheduleSpec{Every: time.Second, End: at(6)}, at(6), 0, false},
		"something else":      {fsm.ScheduleSpec{Cron: "0 0 * * *"}, at(6), 0, true},
		"seven seconds":       {fsm.ScheduleSpec{Cron: "*/7 * * * * *"}, at(6), 0, true},
		"with times left out": {fsm.ScheduleSpec{Every: time.Second, Exclude: []string{"* * * * *"}}, at(6), 0, true},
	} {
		if got, ok := Nominal(&tc.spec, tc.after); got != tc.want || ok == tc.unknown {
			t.Errorf("%s: the time after %d is %d (%v), want %d", name, tc.after, got, ok, tc.want)
		}
	}
}
