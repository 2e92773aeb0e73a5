package guard_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tolerance is by what part a ratio may be above its record.
const tolerance = 0.20

// ratios are what paths cost, in multiples of their references, by name.
type ratios map[string]float64

// parseRatios reads lines of a name and a ratio; # begins a comment.
func parseRatios(text string) (ratios, error) {
	all := ratios{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("%q is not a name and a ratio", line)
		}
		ratio, err := strconv.ParseFloat(fields[1], 64)
		if err != nil || ratio <= 0 {
			return nil, fmt.Errorf("%s has the ratio %q", fields[0], fields[1])
		}
		if _, twice := all[fields[0]]; twice {
			return nil, fmt.Errorf("%s is there twice", fields[0])
		}
		all[fields[0]] = ratio
	}
	return all, nil
}

// String writes ratios as parseRatios reads them.
func (r ratios) String() string {
	var b strings.Builder
	b.WriteString("# What paths cost in multiples of a fixed piece of work; written by `make bench-record`. See doc.go.\n")
	for _, name := range slices.Sorted(maps.Keys(r)) {
		fmt.Fprintf(&b, "%s %.3g\n", name, r[name])
	}
	return b.String()
}

var (
	errUnknown = errors.New("has no recorded ratio")
	errWorse   = errors.New("got worse")
)

// check compares a ratio with its record.
func (r ratios) check(name string, ratio float64) error {
	recorded, ok := r[name]
	if !ok {
		return fmt.Errorf("%s %w; make bench-record writes it", name, errUnknown)
	}
	if ratio > recorded*(1+tolerance) {
		return fmt.Errorf("%s %w: %.3g times its reference, %.0f %% above the recorded %.3g", name, errWorse, ratio,
			100*(ratio/recorded-1), recorded)
	}
	return nil
}

// TestCheck: what costs a fifth more is seen, and what was never recorded.
func TestCheck(t *testing.T) {
	recorded, err := parseRatios("# a comment\nlog 2\n\nput 0.5 # another\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		ratio float64
		want  error
	}{
		{"log", 2, nil},
		{"log", 2.39, nil},
		{"log", 2.41, errWorse},
		{"log", 0.1, nil},
		{"put", 0.61, errWorse},
		{"take", 1, errUnknown},
	} {
		if err := recorded.check(c.name, c.ratio); !errors.Is(err, c.want) {
			t.Errorf("%s at %v: %v, want %v", c.name, c.ratio, err, c.want)
		}
	}
}

func TestParseRatios(t *testing.T) {
	for _, bad := range []string{"log", "log 1 2", "log x", "log 0", "log 1\nlog 2"} {
		if got, err := parseRatios(bad); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
	want := ratios{"b": 1.25, "a": 3}
	if got, err := parseRatios(want.String()); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v is read as %v, %v", want, got, err)
	}
}

// TestRecorded: each guard has a record, and no record is of a guard that is gone.
func TestRecorded(t *testing.T) {
	text, err := os.ReadFile("ratios.txt")
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := parseRatios(string(text))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range guards() {
		names = append(names, g.name)
	}
	if got := slices.Sorted(maps.Keys(recorded)); !slices.Equal(got, slices.Sorted(slices.Values(names))) {
		t.Errorf("recorded are %v, and there are %v", got, names)
	}
}

// TestRatio: the medians of a path and of its reference count.
func TestRatio(t *testing.T) {
	now := time.Duration(0)
	costs, n := []time.Duration{3, 2, 300, 2, 3, 2, 3, 500, 3, 2}, 0
	work := func() { now += costs[n]; n++ }
	g := guard{clock: func(*testing.B) time.Duration { return now }, rounds: len(costs) / 2}
	if got := g.ratio(&testing.B{}, work, work); got != 1.5 {
		t.Errorf("the ratio is %v", got)
	}
}
