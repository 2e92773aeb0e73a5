package cron_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/cron"
)

// builtIn reads the built-in zones once for all tests.
var builtIn = sync.OnceValues(cron.BuiltInZones)

func zones(t testing.TB) *cron.Zones {
	t.Helper()
	z, err := builtIn()
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func compile(t testing.TB, spec *cron.Spec) *cron.Rule {
	t.Helper()
	r, err := cron.Compile(spec, zones(t))
	if err != nil {
		t.Fatalf("Compile(%+v): %v", spec, err)
	}
	return r
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// firings returns up to n firings after from, in UTC, none after to.
func firings(r *cron.Rule, from, to time.Time, n int) (texts []string) {
	for at := range r.Times(from) {
		if len(texts) == n || at.After(to) {
			break
		}
		texts = append(texts, at.UTC().Format(time.RFC3339Nano))
	}
	return texts
}

func TestDST(t *testing.T) {
	for _, row := range dstTable {
		for dst, want := range map[cron.DST][]string{
			cron.Once: row.once, cron.Literal: row.literal, cron.Skip: row.skip,
		} {
			r := compile(t, &cron.Spec{Cron: row.cron, TimeZone: row.zone, DST: dst})
			got := firings(r, at(t, row.from), at(t, row.to), 100)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q with %v: %s", row.name, row.cron, dst, cmp.Diff(want, got))
			}
			for _, text := range want { // also if it is asked for just before
				if next, _ := r.Next(at(t, text).Add(-1)); !next.Equal(at(t, text)) {
					t.Errorf("%s: %q with %v: just before %s the next is %v", row.name, row.cron, dst, text, next.UTC())
				}
			}
		}
	}
}

func TestSyntax(t *testing.T) {
	for _, row := range syntaxTable {
		r := compile(t, &cron.Spec{Cron: row.cron})
		got := firings(r, at(t, row.from), at(t, "2200-01-01T00:00:00Z"), len(row.want))
		if !slices.Equal(got, row.want) {
			t.Errorf("%q: %s", row.cron, cmp.Diff(row.want, got))
		}
	}
}

func TestRefused(t *testing.T) {
	for _, row := range refusedTable {
		for _, spec := range []*cron.Spec{
			{Cron: row.cron},
			{Cron: "* * * * *", Exclude: []string{"0 0 * * *", row.cron}},
		} {
			field := "cron"
			if len(spec.Exclude) > 0 {
				field = "exclude[1]"
			}
			_, err := cron.Compile(spec, zones(t))
			problems := problemsOf(t, err)
			text := strings.Join(problems[field], "\n")
			if len(problems) != 1 || text == "" {
				t.Errorf("%q as %s: problems are %v", row.cron, field, problems)
			}
			for _, part := range row.problems {
				if !strings.Contains(text, part) {
					t.Errorf("%q as %s: %s does not contain %s", row.cron, field, text, part)
				}
			}
		}
	}
}

// problemsOf returns the problems of an error of Compile, by field.
func problemsOf(t testing.TB, err error) map[string][]string {
	t.Helper()
	problems := make(map[string][]string)
	if err == nil {
		return problems
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%v joins no problems", err)
	}
	for _, err := range joined.Unwrap() {
		var problem *cron.FieldError
		if !errors.As(err, &problem) {
			t.Fatalf("%v is no problem of a field", err)
		}
		problems[problem.Field] = append(problems[problem.Field], problem.Problem)
	}
	return problems
}

func TestSpecProblems(t *testing.T) {
	start := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	long := strings.Repeat("1,", 128) + "1 * * * *"
	for _, c := range []struct {
		name string
		spec cron.Spec
		want map[string]string // a part of each problem, by field
	}{
		{"neither", cron.Spec{}, map[string]string{"cron": "neither"}},
		{"both", cron.Spec{Cron: "@daily", Every: time.Minute}, map[string]string{"cron": "both"}},
		{"every is short", cron.Spec{Every: time.Second - 1}, map[string]string{"every": "less than 1s"}},
		{"every is negative", cron.Spec{Every: -time.Hour}, map[string]string{"every": "less than 1s"}},
		{"every has a rest", cron.Spec{Every: time.Second + 1}, map[string]string{"every": "whole milliseconds"}},
		{"phase is negative", cron.Spec{Every: time.Minute, Phase: -1}, map[string]string{"phase": "negative"}},
		{"phase is every", cron.Spec{Every: time.Minute, Phase: time.Minute}, map[string]string{"phase": "less than every"}},
		{"phase has a rest", cron.Spec{Every: time.Minute, Phase: 1}, map[string]string{"phase": "whole milliseconds"}},
		{"phase without every", cron.Spec{Cron: "@daily", Phase: time.Second}, map[string]string{"phase": "without every"}},
		{"end at start", cron.Spec{Cron: "@daily", Start: start, End: start}, map[string]string{"end": "not after start"}},
		{"end before start", cron.Spec{Every: time.Hour, Start: start, End: start.Add(-1)},
			map[string]string{"end": "not after"}},
		{"start after the horizon", cron.Spec{Cron: "@daily", Start: start.AddDate(173, 0, 0)},
			map[string]string{"start": "2200"}},
		{"end before the horizon", cron.Spec{Cron: "@daily", End: start.AddDate(-128, 0, 0)},
			map[string]string{"end": "1899"}},
		{"jitter is negative", cron.Spec{Cron: "@daily", Jitter: -1}, map[string]string{"jitter": "0-24h"}},
		{"jitter is long", cron.Spec{Cron: "@daily", Jitter: 24*time.Hour + 1}, map[string]string{"jitter": "another day"}},
		{"jitter has a rest", cron.Spec{Cron: "@daily", Jitter: 1}, map[string]string{"jitter": "whole milliseconds"}},
		{"no such policy", cron.Spec{Cron: "@daily", DST: 3}, map[string]string{"dst": "ONCE, LITERAL or SKIP"}},
		{"long text", cron.Spec{Cron: long}, map[string]string{"cron": "at most 256"}},
		{"long exclude", cron.Spec{Cron: "@daily", Exclude: []string{long}}, map[string]string{"exclude[0]": "at most 256"}},
		{"many excludes", cron.Spec{Cron: "@daily", Exclude: make([]string, 33)}, map[string]string{"exclude": "at most 32"}},
		{"empty exclude", cron.Spec{Cron: "@daily", Exclude: []string{" "}}, map[string]string{"exclude[0]": "is empty"}},
		{"all excluded", cron.Spec{Cron: "@daily", Exclude: []string{"* 0-11 * * *"}},
			map[string]string{"exclude": "every firing"}},
		{"all excluded together", cron.Spec{Cron: "30 9 * * *",
			Exclude: []string{"* * * * 1-5", "* 9 1-15 * *", "0-30 * 16-L * *", "30 9 16-31 * *"}},
			map[string]string{"exclude[2]": "16-L"}},
		{"all of every excluded", cron.Spec{Every: time.Hour, Exclude: []string{"0 * * * *"}},
			map[string]string{"exclude": "every firing"}},
		{"Local", cron.Spec{Cron: "@daily", TimeZone: "Local"}, map[string]string{"timeZone": `"Local"`}},
		{"path", cron.Spec{Cron: "@daily", TimeZone: "../Europe/Berlin"}, map[string]string{"timeZone": "no time zone"}},
		{"absolute path", cron.Spec{Cron: "@daily", TimeZone: "/etc/localtime"},
			map[string]string{"timeZone": "no time zone"}},
		{"case of a zone", cron.Spec{Cron: "@daily", TimeZone: "europe/berlin"},
			map[string]string{"timeZone": `"Europe/Berlin"`}},
		{"spaces in a zone", cron.Spec{Cron: "@daily", TimeZone: "America/New York"},
			map[string]string{"timeZone": `"America/New_York"`}},
		{"a city alone", cron.Spec{Cron: "@daily", TimeZone: "Berlin"}, map[string]string{"timeZone": `"Europe/Berlin"`}},
		{"long zone", cron.Spec{Cron: "@daily", TimeZone: strings.Repeat("x", 65)},
			map[string]string{"timeZone": "at most 64"}},
		{
			"all at once",
			cron.Spec{Cron: "60 * * * *", TimeZone: "Mars", Start: start, End: start, Jitter: -1, Phase: 1,
				Exclude: []string{"x"}},
			map[string]string{"cron": "60", "timeZone": "Mars", "end": "start", "jitter": "0-24h",
				"phase": "every", "exclude[0]": "one field"},
		},
	} {
		_, err := cron.Compile(&c.spec, zones(t))
		problems := problemsOf(t, err)
		for field, part := range c.want {
			if text := strings.Join(problems[field], "\n"); !strings.Contains(text, part) {
				t.Errorf("%s: %s: %q does not contain %q", c.name, field, text, part)
			}
		}
		if len(problems) != len(c.want) {
			t.Errorf("%s: problems are %v", c.name, err)
		}
	}
}

// TestManyCombinations has 32 excludes, of which nearly each day has others.
func TestManyCombinations(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(1, 3))}
	spec := cron.Spec{Cron: "* * * * *"}
	for len(spec.Exclude) < 32 {
		spec.Exclude = append(spec.Exclude, fmt.Sprintf("0 0 %d,%d,%d,%d * %d", 1+g.IntN(31), 1+g.IntN(31), 1+g.IntN(31),
			1+g.IntN(31), g.IntN(7)))
	}
	if _, err := cron.Compile(&spec, zones(t)); err != nil {
		t.Errorf("days of the month and of the week: %v", err)
	}
	for i := range spec.Exclude {
		spec.Exclude[i] = fmt.Sprintf("0 0 * * %d", i%7)
		if i >= 7 {
			half := g.Perm(12)
			spec.Exclude[i] = fmt.Sprintf("0 0 %d-%d %d,%d,%d,%d,%d,%d *", 1+g.IntN(15), 16+g.IntN(15), 1+half[0], 1+half[1],
				1+half[2], 1+half[3], 1+half[4], 1+half[5])
		}
	}
	_, err := cron.Compile(&spec, zones(t))
	if text := strings.Join(problemsOf(t, err)["exclude"], "\n"); !strings.Contains(text, "more than 1000 combinations") {
		t.Errorf("the problem is %v", err)
	}
}

func TestEachFieldIsReported(t *testing.T) {
	_, err := cron.Compile(&cron.Spec{Cron: "60 60 24 0 13 8"}, zones(t))
	want := []string{
		`second: "60" is not in 0-59`, `minute: "60" is not in 0-59`, `hour: "24" is not in 0-23`,
		`day of month: "0" is not in 1-31`,
		`month: "13" is not in 1-12`, `day of week: "8" is not in 0-7`,
	}
	if got := problemsOf(t, err)["cron"]; !slices.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

func TestString(t *testing.T) {
	for text, want := range map[string]string{
		" 05\t9 ?  jan-MAR,12 mon-Sun/2": "5 9 * 1-3,12 1-7/2",
		"*/15 * L-0,lw,015W * friL,0#1":  "*/15 * L,LW,15W * 5L,0#1",
		"0 0 0 L-3 * 7":                  "0 0 0 L-3 * 7",
		"@Hourly":                        "0 * * * *",
	} {
		if got := compile(t, &cron.Spec{Cron: text}).String(); got != want {
			t.Errorf("%q is %q; want %q", text, got, want)
		}
	}
	r := compile(t, &cron.Spec{Every: 90 * time.Second, Phase: 1500 * time.Millisecond})
	if got, want := r.String(), "every 1m30s phase 1.5s"; got != want {
		t.Errorf("is %q; want %q", got, want)
	}
}

func TestEvery(t *testing.T) {
	for _, c := range []struct {
		name string
		spec cron.Spec
		from string
		want []string
	}{
		{
			name: "epoch", spec: cron.Spec{Every: 7 * time.Minute}, from: "1970-01-01T00:00:00Z",
			want: []string{"1970-01-01T00:07:00Z", "1970-01-01T00:14:00Z"},
		},
		{
			name: "phase", spec: cron.Spec{Every: time.Hour, Phase: 90500 * time.Millisecond}, from: "2027-01-01T00:00:00Z",
			want: []string{"2027-01-01T00:01:30.5Z", "2027-01-01T01:01:30.5Z"},
		},
		{
			name: "before 1970", spec: cron.Spec{Every: time.Hour, Phase: time.Minute}, from: "1969-12-31T22:30:00Z",
			want: []string{"1969-12-31T23:01:00Z", "1970-01-01T00:01:00Z"},
		},
		{
			name: "a gap changes nothing",
			spec: cron.Spec{Every: time.Hour, TimeZone: "Europe/Berlin",
				Exclude: []string{"0 0 1 1 *"}}, from: "2027-03-28T00:00:00Z",
			want: []string{"2027-03-28T01:00:00Z", "2027-03-28T02:00:00Z"},
		},
		{
			name: "excludes are in the zone",
			spec: cron.Spec{Every: 90 * time.Minute, TimeZone: "Europe/Berlin",
				Exclude: []string{"* 0-10 * * *", "* * * * SAT,SUN"}},
			from: "2027-03-26T20:00:00Z", // Friday 21:00
			want: []string{
				"2027-03-26T21:00:00Z", "2027-03-26T22:30:00Z", // 22:00, 23:30
				"2027-03-29T09:00:00Z", "2027-03-29T10:30:00Z", // Monday 11:00, 12:30
			},
		},
		{
			name: "all excluded but the last seconds of leap days",
			spec: cron.Spec{Every: 7 * time.Second,
				Exclude: []string{"* * * 1,3-12 *", "* * 1-28 * *", "* 0-22 * * *", "0-58 * * * *", "0-50 * * * * *"}},
			from: "2027-01-01T00:00:00Z",
			want: []string{"2028-02-29T23:59:52Z", "2028-02-29T23:59:59Z", "2032-02-29T23:59:57Z"},
		},
	} {
		r := compile(t, &c.spec)
		if got := firings(r, at(t, c.from), at(t, "2200-01-01T00:00:00Z"), len(c.want)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %s", c.name, cmp.Diff(c.want, got))
		}
	}
}

func TestExclude(t *testing.T) {
	for _, c := range []struct {
		name     string
		spec     cron.Spec
		from, to string
		want     []string
	}{
		{
			"a day", cron.Spec{Cron: "0 9 * * *", Exclude: []string{"* * 25,26 12 *"}},
			"2027-12-24T00:00:00Z", "2027-12-28T00:00:00Z", []string{"2027-12-24T09:00:00Z", "2027-12-27T09:00:00Z"},
		},
		{
			"a time at its seconds", cron.Spec{Cron: "*/30 59 9 * * *", Exclude: []string{"0 59 9 * * *"}},
			"2027-01-01T00:00:00Z", "2027-01-02T00:00:00Z", []string{"2027-01-01T09:59:30Z"},
		},
		{
			"a minute with all its seconds", cron.Spec{Cron: "*/30 58,59 9 * * *", Exclude: []string{"59 9 * * *"}},
			"2027-01-01T00:00:00Z", "2027-01-02T00:00:00Z", []string{"2027-01-01T09:58:00Z", "2027-01-01T09:58:30Z"},
		},
		{
			"hours within a day", cron.Spec{Cron: "0 */6 * * *", Exclude: []string{"* 0-5 * * *", "* 12 * * 5"}},
			"2027-01-01T00:00:00Z", "2027-01-02T12:00:00Z",
			[]string{"2027-01-01T06:00:00Z", "2027-01-01T18:00:00Z", "2027-01-02T06:00:00Z", "2027-01-02T12:00:00Z"},
		},
		{
			"minutes within an hour", cron.Spec{Cron: "*/20 9 * * *", Exclude: []string{"0,20 9 * * *"}},
			"2027-01-01T09:10:00Z", "2027-01-02T12:00:00Z", []string{"2027-01-01T09:40:00Z", "2027-01-02T09:40:00Z"},
		},
		{
			"the named time of a moved firing", cron.Spec{Cron: "30 2 * * *", TimeZone: "Europe/Berlin",
				Exclude: []string{"* 2 28 3 *"}},
			"2027-03-27T12:00:00Z", "2027-03-29T12:00:00Z", []string{"2027-03-29T00:30:00Z"},
		},
		{
			"the new time of a moved firing", cron.Spec{Cron: "30 2 * * *", TimeZone: "Europe/Berlin",
				Exclude: []string{"0 3 28 3 *"}},
			"2027-03-27T12:00:00Z", "2027-03-29T12:00:00Z", []string{"2027-03-29T00:30:00Z"},
		},
		{
			"one of two named times in a gap", cron.Spec{Cron: "15,45 2 * * *", TimeZone: "Europe/Berlin",
				Exclude: []string{"15 * * * *"}},
			"2027-03-27T12:00:00Z", "2027-03-28T12:00:00Z", []string{"2027-03-28T01:00:00Z"},
		},
		{
			"both instants of a fold", cron.Spec{Cron: "30 2 * * *", TimeZone: "Europe/Berlin", DST: cron.Literal,
				Exclude: []string{"30 2 31 10 *"}},
			"2027-10-30T12:00:00Z", "2027-11-01T12:00:00Z", []string{"2027-11-01T01:30:00Z"},
		},
	} {
		r := compile(t, &c.spec)
		if got := firings(r, at(t, c.from), at(t, c.to), 100); !slices.Equal(got, c.want) {
			t.Errorf("%s: %s", c.name, cmp.Diff(c.want, got))
		}
	}
}

func TestBounds(t *testing.T) {
	start, end := at(t, "2027-01-01T10:00:00Z"), at(t, "2027-01-01T12:00:00Z")
	for _, c := range []struct {
		name string
		spec cron.Spec
		want []string
	}{
		{"both ends are within", cron.Spec{Cron: "0 * * * *", Start: start, End: end},
			[]string{"2027-01-01T10:00:00Z", "2027-01-01T11:00:00Z", "2027-01-01T12:00:00Z"}},
		{"start after the second", cron.Spec{Cron: "0 * * * *", Start: start.Add(1), End: end},
			[]string{"2027-01-01T11:00:00Z", "2027-01-01T12:00:00Z"}},
		{"end before the second", cron.Spec{Cron: "0 * * * *", Start: start, End: end.Add(-1)},
			[]string{"2027-01-01T10:00:00Z", "2027-01-01T11:00:00Z"}},
		{"every", cron.Spec{Every: time.Hour, Start: start, End: end},
			[]string{"2027-01-01T10:00:00Z", "2027-01-01T11:00:00Z", "2027-01-01T12:00:00Z"}},
		{"none", cron.Spec{Cron: "30 12 * * *", Start: start, End: end}, nil},
	} {
		r := compile(t, &c.spec)
		if got := firings(r, at(t, "2026-01-01T00:00:00Z"), at(t, "2200-01-01T00:00:00Z"), 100); !slices.Equal(got, c.want) {
			t.Errorf("%s: %s", c.name, cmp.Diff(c.want, got))
		}
	}
}

func TestHorizon(t *testing.T) {
	for _, spec := range []*cron.Spec{{Cron: "* * * * * *"}, {Every: time.Second}} {
		r := compile(t, spec)
		for _, c := range []struct {
			after time.Time
			want  time.Time // zero for none
		}{
			{time.Time{}, time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)},
			{time.Unix(-1<<60, 0), time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)},
			{time.Date(2199, 12, 31, 23, 59, 58, 999_999_999, time.UTC), time.Date(2199, 12, 31, 23, 59, 59, 0, time.UTC)},
			{time.Date(2199, 12, 31, 23, 59, 59, 0, time.UTC), time.Time{}},
			{time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{}},
			{time.Unix(1<<60, 0), time.Time{}},
		} {
			got, ok := r.Next(c.after)
			if ok == c.want.IsZero() || !got.Equal(c.want) {
				t.Errorf("%v: after %v comes %v, %v; want %v", r, c.after, got, ok, c.want)
			}
		}
		if got, ok := r.Prev(time.Unix(1<<60, 0)); !ok || !got.Equal(time.Date(2199, 12, 31, 23, 59, 59, 0, time.UTC)) {
			t.Errorf("%v: the last firing is %v, %v", r, got, ok)
		}
		if got, ok := r.Prev(time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)); ok {
			t.Errorf("%v: before the horizon comes %v", r, got)
		}
	}
}

func TestNextIsStrictlyAfter(t *testing.T) {
	r := compile(t, &cron.Spec{Cron: "* * * * * *"})
	second := at(t, "2027-01-01T00:00:00Z")
	for after, want := range map[time.Duration]time.Duration{
		-1: 0, 0: time.Second, 1: time.Second, time.Second - 1: time.Second,
	} {
		if got, _ := r.Next(second.Add(after)); !got.Equal(second.Add(want)) {
			t.Errorf("after %v comes %v; want %v", after, got.Sub(second), want)
		}
	}
}

func TestPrev(t *testing.T) {
	for _, c := range []struct {
		spec   cron.Spec
		before string
		want   string // "" for none
	}{
		{cron.Spec{Cron: "* * * * * *"}, "2027-01-01T00:00:00.5Z", "2027-01-01T00:00:00Z"},
		{cron.Spec{Cron: "* * * * * *"}, "2027-01-01T00:00:00Z", "2026-12-31T23:59:59Z"},
		{cron.Spec{Cron: "0 0 29 2 *"}, "2104-02-29T00:00:00Z", "2096-02-29T00:00:00Z"},
		{cron.Spec{Cron: "0 0 29 2 *"}, "2104-02-29T00:00:00.001Z", "2104-02-29T00:00:00Z"},
		{cron.Spec{Cron: "0 0 29 2 *"}, "2104-02-29T00:00:00.000001Z", "2104-02-29T00:00:00Z"},
		{cron.Spec{Cron: "@daily", End: at(t, "2027-01-01T12:00:00Z")}, "2028-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{cron.Spec{Cron: "@daily", Start: at(t, "2027-01-01T12:00:00Z")}, "2027-01-02T00:00:00Z", ""},
		{cron.Spec{Every: 1500 * time.Millisecond}, "1970-01-01T00:00:10Z", "1970-01-01T00:00:09Z"},
		{cron.Spec{Cron: "30 2 * * *", TimeZone: "Europe/Berlin"}, "2027-03-28T12:00:00Z", "2027-03-28T01:00:00Z"},
	} {
		r := compile(t, &c.spec)
		got, ok := r.Prev(at(t, c.before))
		if ok != (c.want != "") || ok && !got.Equal(at(t, c.want)) {
			t.Errorf("%v: before %s comes %v, %v; want %s", r, c.before, got, ok, c.want)
		}
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		spec cron.Spec
		want []string // a part of each
	}{
		{cron.Spec{Cron: "0 9 * * 1-5", TimeZone: "Europe/Berlin"}, nil},
		{cron.Spec{Cron: "@daily", TimeZone: "UTC"}, nil},
		{cron.Spec{Cron: "@daily", TimeZone: "EST"}, []string{"UTC-05:00 all year"}},
		{cron.Spec{Cron: "@daily", TimeZone: "CET"}, []string{`"CET" is taken as the IANA zone of that name; `}},
		{cron.Spec{Cron: "@daily", TimeZone: "Etc/GMT+5"}, []string{"is UTC-05:00"}},
		{cron.Spec{Cron: "0 0 13 * 5"}, []string{`"13" and day of week "5" are both set: a day that either has`}},
		{cron.Spec{Cron: "0 0 */2 * 1"}, []string{`"*/2" and day of week "1": one begins with *`}},
		{cron.Spec{Cron: "0 0 1 * */2"}, []string{`"1" and day of week "*/2": one begins with *`}},
		{cron.Spec{Cron: "0 0 30,31 * *"}, []string{"months without such a day"}},
		{cron.Spec{Cron: "0 0 31,L * *"}, nil},
		{cron.Spec{Every: time.Hour, TimeZone: "Europe/Berlin", DST: cron.Skip},
			[]string{"dst has no effect", "timeZone has no effect"}},
		{cron.Spec{Every: time.Hour, TimeZone: "Europe/Berlin", Exclude: []string{"* 0 * * *"}}, nil},
		{cron.Spec{Cron: "@yearly", Start: at(t, "2027-02-01T00:00:00Z"), End: at(t, "2027-03-01T00:00:00Z")},
			[]string{"no firing"}},
	} {
		r := compile(t, &c.spec)
		got := r.Warnings()
		if len(got) != len(c.want) {
			t.Errorf("%+v: warnings are %q; want %q", c.spec, got, c.want)
			continue
		}
		for i, part := range c.want {
			if !strings.Contains(got[i], part) {
				t.Errorf("%+v: %q does not contain %q", c.spec, got[i], part)
			}
		}
	}
}

func TestZoneOfTimes(t *testing.T) {
	r := compile(t, &cron.Spec{Cron: "0 12 * * *", TimeZone: "Asia/Kathmandu"})
	next, _ := r.Next(at(t, "2027-01-01T00:00:00Z"))
	if got, want := next.Format(time.RFC3339), "2027-01-01T12:00:00+05:45"; got != want {
		t.Errorf("Next is %s; want %s", got, want)
	}
	if got := r.Zone().String(); got != "Asia/Kathmandu" {
		t.Errorf("the zone is %s", got)
	}
}

func TestJitterOf(t *testing.T) {
	nominal := at(t, "2027-01-01T00:00:00Z")
	for _, c := range []struct {
		name   string
		at     time.Time
		jitter time.Duration
		want   time.Duration
	}{
		{"report", nominal, time.Minute, 21285 * time.Millisecond},
		{"report", nominal.Add(time.Hour), time.Minute, 90 * time.Millisecond},
		{"reports", nominal, 24 * time.Hour, 77_048_189 * time.Millisecond},
		{"", nominal, time.Second, 547 * time.Millisecond},
	} {
		if got := cron.JitterOf(c.name, c.at, c.jitter); got != c.want {
			t.Errorf("JitterOf(%q, %v, %v) = %v; want %v", c.name, c.at, c.jitter, got, c.want)
		}
	}
	for _, jitter := range []time.Duration{-time.Second, 0, time.Millisecond - 1, time.Millisecond} {
		if got := cron.JitterOf("report", nominal, jitter); got != 0 {
			t.Errorf("with %v it is %v", jitter, got)
		}
	}
	seen := make(map[time.Duration]bool)
	for i := range 1000 {
		got := cron.JitterOf("report", nominal.Add(time.Duration(i)*time.Hour), 10*time.Millisecond)
		if got < 0 || got >= 10*time.Millisecond || got%time.Millisecond != 0 {
			t.Fatalf("%v is no jitter of up to 10 ms", got)
		}
		seen[got] = true
	}
	if len(seen) != 10 {
		t.Errorf("1,000 firings have %d of 10 jitters", len(seen))
	}
}
