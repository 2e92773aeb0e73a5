package clustertrial

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/processtest"
)

// figures are what a trial measured, in order.
type figures struct {
	trial string
	rows  []figure
}

// figure is one measured value, with what it should be at most, if that is known.
type figure struct {
	Name  string   `json:"name"`
	Value float64  `json:"value"`
	Unit  string   `json:"unit,omitempty"`
	Aim   *float64 `json:"aim,omitempty"`
}

// count enters a number of things; aim, if given, is the most that there should be.
func (f *figures) count(name string, n int, aim ...float64) { f.enter(name, float64(n), "", aim) }

// milliseconds enters a duration; aim, if given, is the longest that it should be.
func (f *figures) milliseconds(name string, d time.Duration, aim ...time.Duration) {
	var most []float64
	for _, a := range aim {
		most = append(most, inMilliseconds(a))
	}
	f.enter(name, inMilliseconds(d), "ms", most)
}

func inMilliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (f *figures) enter(name string, value float64, unit string, aim []float64) {
	row := figure{Name: name, Value: value, Unit: unit}
	if len(aim) > 0 {
		row.Aim = &aim[0]
	}
	f.rows = append(f.rows, row)
}

// durations enters median, 99th percentile and longest of measured durations.
func (f *figures) durations(name string, d processtest.Durations, aimP99 ...time.Duration) {
	f.milliseconds(name+", p50", d.At(0.5))
	f.milliseconds(name+", p99", d.At(0.99), aimP99...)
	f.milliseconds(name+", longest", d.At(1))
}

// account enters what became of the jobs.
func (f *figures) account(a processtest.Account) {
	f.count("jobs put with ok", a.Put)
	f.count("jobs lost", a.Lost, 0)
	f.count("deliveries early", a.Early, 0)
	f.count("jobs delivered again after their lease", a.Twice)
	f.count("grants that reached nobody", a.Unseen)
	f.count("acks after their lease", a.StaleAcks)
	f.count("calls of the SDK that failed", a.FailedCalls, 0)
	f.count("promises broken", a.Problems, 0)
}

// print shows the figures as a table, and as one line of JSON for programs.
func (f *figures) print(t *testing.T) {
	t.Helper()
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range f.rows {
		aim := ""
		if row.Aim != nil {
			if aim = fmt.Sprintf("at most %g: met", *row.Aim); row.Value > *row.Aim {
				aim = fmt.Sprintf("at most %g: NOT MET", *row.Aim)
			}
		}
		fmt.Fprintf(w, "%s\t%.10g\t%s\t%s\n", row.Name, row.Value, row.Unit, aim)
	}
	line, err := json.Marshal(struct {
		Trial   string   `json:"trial"`
		Figures []figure `json:"figures"`
	}{f.trial, f.rows})
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Error(err)
	}
	t.Logf("%s\n%s%s", f.trial, text.String(), line)
}
