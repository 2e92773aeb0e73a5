package report

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func jsonText(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteJSON(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestJSONIsReadAsItWasWritten(t *testing.T) {
	for _, r := range []*Report{small(), made{120, 12, 5}.report(), made{60, 0, 0}.report()} {
		got, err := ReadJSON(strings.NewReader(jsonText(t, r)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, got); diff != "" {
			t.Errorf("(-written +read):\n%s", diff)
		}
	}
	golden(t, "small.json", jsonText(t, small()))
}

func TestReadJSONRefuses(t *testing.T) {
	text := jsonText(t, small())
	for name, damaged := range map[string]string{
		"nothing":          "",
		"half":             text[:len(text)/2],
		"an unknown field": strings.Replace(text, `"seed"`, `"sead"`, 1),
		"one inside":       strings.Replace(text, `"looked"`, `"looks"`, 1),
		"two reports":      text + text,
		"something after":  text + "x",
		"another verdict":  strings.Replace(text, `"invalid"`, `"unknown"`, 1),
		"a wrong verdict":  strings.Replace(text, `"invalid"`, `"valid"`, 1),
		"a wrong type":     strings.Replace(text, `"nodes": 3`, `"nodes": "3"`, 1),
	} {
		if damaged == text {
			t.Fatalf("%s: nothing was damaged", name)
		}
		if r, err := ReadJSON(strings.NewReader(damaged)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: read %v, %v", name, r, err)
		}
	}
}

func TestValidateNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		want  string
		spoil func(*Report)
	}{
		{"no command repeats it", func(r *Report) { r.Command = "" }},
		{"it has no commit", func(r *Report) { r.Commit = "" }},
		{"it has no start", func(r *Report) { r.Started = r.Started.AddDate(-2030, -3, -4).Truncate(24 * 3600e9) }},
		{"it has 0 nodes", func(r *Report) { r.Nodes = 0 }},
		{"clients worked for NaN s", func(r *Report) { r.LoadSeconds = math.NaN() }},
		{"the check took -1 s", func(r *Report) { r.CheckSeconds = -1 }},
		{`"" is no verdict`, func(r *Report) { r.Verdict = "" }},
		{"it is valid and has 2 violations", func(r *Report) { r.Verdict = Valid }},
		{"it is invalid and does not say why", func(r *Report) { r.Violations, r.Checks = nil, nil }},
		{"violation 1 names no invariant", func(r *Report) { r.Violations[1].Invariant, r.Checks = "", nil }},
		{"violation 0 says nothing", func(r *Report) { r.Violations[0].Text = "" }},
		{"violation 0 is at +Inf s", func(r *Report) { r.Violations[0].At = math.Inf(1) }},
		{"I8 has 0 violations, 1 are shown", func(r *Report) { r.Checks[1].Violations = 0 }},
		{"I1 has 1 violations, none is shown", func(r *Report) { r.Checks[0].Violations = 1 }},
		{"I1 is checked twice", func(r *Report) { r.Checks[3].Invariant = "I1" }},
		{"a check names no invariant", func(r *Report) { r.Checks[0].Invariant = "" }},
		{"I1 looked at -1", func(r *Report) { r.Checks[0].Looked = -1 }},
		{"I1 took NaN s", func(r *Report) { r.Checks[0].Seconds = math.NaN() }},
		{"a count has no name", func(r *Report) { r.Counts[""] = 1 }},
		{"jobs is -1", func(r *Report) { r.Counts["jobs"] = -1 }},
		{"2592001 seconds are no run", func(r *Report) { r.Seconds = make([]Second, secondsMax+1) }},
		{"second 1 has 1, -2 and 0 calls", func(r *Report) { r.Seconds[1] = Second{Applied: 1, NotApplied: -2} }},
		{"second 0 has the latency {Count:1 P50:3 P99:2 Max:4}", func(r *Report) {
			r.Seconds[0].Latency = Quantiles{1, 3, 2, 4}
		}},
		{"second 0 has the lateness {Count:0 P50:0 P99:0 Max:4}", func(r *Report) {
			r.Seconds[0].Lateness = Quantiles{0, 0, 0, 4}
		}},
		{"second 0 has the lateness {Count:1 P50:1 P99:1 Max:NaN}", func(r *Report) {
			r.Seconds[0].Lateness = Quantiles{1, 1, 1, math.NaN()}
		}},
		{"fault 2 has no name", func(r *Report) { r.Faults[2].Name = "" }},
		{"fault 0 is from 3.1 s to 3 s", func(r *Report) { r.Faults[0].To = 3 }},
		{"probe 0 has no name", func(r *Report) { r.Probes[0].Name = "" }},
		{"probe 1 took NaN s of 120 s", func(r *Report) { r.Probes[1].Took = math.NaN() }},
		{"fault 1 begins before the one before it", func(r *Report) { r.Faults[1].From = 1 }},
	} {
		r := small()
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		c.spoil(r)
		err := r.Validate()
		if err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
		var out bytes.Buffer
		if WriteJSON(&out, r) == nil || WritePage(&out, r) == nil || out.Len() > 0 {
			t.Errorf("%s: it was written", c.want)
		}
	}
}

func TestValidateNamesEverything(t *testing.T) {
	err := (&Report{}).Validate()
	if n := strings.Count(err.Error(), "\n") + 1; n != 5 {
		t.Errorf("%d problems, want 5: %v", n, err)
	}
}

func FuzzReadJSON(f *testing.F) {
	for _, r := range []*Report{small(), made{20, 5, 3}.report(), made{0, 0, 0}.report()} {
		var b bytes.Buffer
		if err := WriteJSON(&b, r); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte(`{"verdict":"valid","seconds":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ReadJSON(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("%v is not ErrDamaged", err)
			}
			return
		}
		text := jsonText(t, r)
		again, err := ReadJSON(strings.NewReader(text))
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if diff := cmp.Diff(text, jsonText(t, again)); diff != "" {
			t.Fatal(diff)
		}
		if page := pageText(t, r); strings.Contains(page, "NaN") && !strings.Contains(text, "NaN") {
			t.Error("a coordinate of the page is no number")
		}
		checkSummary(t, r)
	})
}
