package report

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the files that tests compare with")

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s has changed; look at it and run with -update (-file +now):\n%s", file, diff)
	}
}

func pageText(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := WritePage(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGoldenPage(t *testing.T) { golden(t, "small.html", pageText(t, small())) }

// withTexts returns the small report with a text wherever it has one, except for the names that are
// looked up.
func withTexts(text string) *Report {
	r := small()
	r.Command, r.Commit = text, text
	r.Workloads, r.Nemeses = []string{text}, []string{text}
	r.Counts = map[string]int64{text: 1}
	for i := range r.Checks {
		r.Checks[i].Title = text
	}
	r.Checks[1].Invariant = text
	r.Violations[0] = Violation{Invariant: text, At: 5, Text: text}
	r.Violations[1].Text = text
	for i := range r.Faults {
		r.Faults[i].Name, r.Faults[i].Text = text, text
	}
	r.Probes[0].Name, r.Probes[1].Failure = text, text
	return r
}

func TestPageEscapesHostileTexts(t *testing.T) {
	for _, hostile := range []string{
		`</script><script>alert(1)</script>`,
		`<img src=x onerror="alert(1)">`,
		`" onmouseover="alert(1)" x="`,
		`' onmouseover='alert(1)' x='`,
		`</style><b>--><!--`,
		`javascript:alert(1)//{{.Command}}`,
		"\x00\x1b[2J\u202e\r\n<p>",
	} {
		harmless := regexp.MustCompile(`[^a-z]`).ReplaceAllString(hostile, "x")
		got, want := pageText(t, withTexts(hostile)), pageText(t, withTexts(harmless))
		// What ends a text, an attribute or a script is there as often as with a harmless text in the
		// same places.
		for _, mark := range []string{"<", ">", `"`, "'", "\x00"} {
			got, want := strings.Count(got, mark), strings.Count(want, mark)
			if got != want {
				t.Errorf("with %q the page has %s %d times instead of %d", hostile, mark, got, want)
			}
		}
	}
}

func TestPageNeedsNothingElse(t *testing.T) {
	text := pageText(t, made{120, 12, 5}.report())
	for _, fetching := range []string{"http:", "https:", "//cdn", "src=", "url(", "@import", "<link",
		"fetch(", "<iframe"} {
		if strings.Contains(text, fetching) {
			t.Errorf("the page contains %s", fetching)
		}
	}
}

func TestPageShowsRunsOfEverySize(t *testing.T) {
	for _, m := range []made{{60, 0, 0}, {60, 5, 1}, {300, 40, 9}, {3600, 400, 200}, {0, 0, 0}, {0, 3, 3}} {
		r := m.report()
		text := pageText(t, r)
		want := map[string]int{
			`class="bar"`: m.faults, `<tr id="fault-`: m.faults, `<tr id="violation-`: m.violations, `<div class="row plot`: 3,
			`<tr class="held"`: 0, `<tr class="violated"`: 0, `<tr class="nothing"`: 0,
			"NaN": 0, "Inf": 0, "ZgotmplZ": 0, "<no value>": 0,
		}
		for _, c := range r.Checks {
			want[fmt.Sprintf("<tr class=%q", checkRowOf(c).Class)]++
		}
		for part, want := range want {
			if got := strings.Count(text, part); got != want {
				t.Errorf("%+v: the page has %s %d times, want %d", m, part, got, want)
			}
		}
	}
}

func TestCheckThatLookedAtNothingHasNotHeld(t *testing.T) {
	for _, row := range []struct {
		check Check
		want  checkRow
	}{
		{Check{Invariant: "I1", Looked: 1234}, checkRow{Class: "held", Invariant: "I1", Looked: "1,234", Violations: "0",
			Length: "0 s"}},
		{Check{Invariant: "I1"}, checkRow{Class: "nothing", Invariant: "I1", Looked: "nothing to look at", Violations: "–",
			Length: "0 s"}},
		{Check{Invariant: "I1", Violations: 1, Seconds: 0.25},
			checkRow{Class: "violated", Invariant: "I1", Looked: "0", Violations: "1", Length: "0.2 s"}},
	} {
		if diff := cmp.Diff(row.want, checkRowOf(row.check)); diff != "" {
			t.Error(diff)
		}
	}
}

var errFull = errors.New("the disk is full")

// fullAfter takes so many bytes and no more.
type fullAfter int

func (left *fullAfter) Write(p []byte) (int, error) {
	if len(p) > int(*left) {
		return 0, errFull
	}
	*left -= fullAfter(len(p))
	return len(p), nil
}

func TestWritersErrorsAreReturned(t *testing.T) {
	for _, left := range []fullAfter{0, 5000} {
		full := left
		if err := WritePage(&full, small()); !errors.Is(err, errFull) {
			t.Errorf("WritePage to a disk with %d bytes left: %v", left, err)
		}
	}
	var full fullAfter
	if err := WriteJSON(&full, small()); !errors.Is(err, errFull) {
		t.Errorf("WriteJSON: %v", err)
	}
}
