package report

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestSummary(t *testing.T) {
	want := `seed 42, commit 0123456789ab
3 nodes, 10 s of load, 3 faults, checked in 1.8 s
  of 3 nemeses that were asked for, 1 did not strike: pause-all
calls: 2,770 applied, 66 refused, 4 unknown
  calls                                                               12,345
  elections                                                                2
  jobs                                                                 4,210
checks: 1 held, 2 violated, 1 with nothing to look at
  nothing to look at: I22
  I8   violated 3× in 4,100: nothing is delivered before it is due
  I19  violated 1× in 3,900: what was acked is not delivered again
availability: judged during 1 of 1 faults that spare a majority
  halves at 0:04: served after 1.5 s, named after 2.5 s
longest outages of a shard, each begun while the fault lasted:
  2.2 s at 0:04: halves n1 | n2 n3
  1.8 s at 0:03: kill-leader n2, leader of data-0, killed and started again
  40 ms at 0:08: kill-leader n1, leader of data-1, killed and started again
page: out/index.html
repeat with: go run ./jepsen run --nodes 3 --time 12s --workload delays,herd --nemesis kill-leader,halves --seed 42
verdict: invalid: I8 at 0:05.2: shard 3, index 812: job 77 was handed out 1.2 s before it was due
`
	if diff := cmp.Diff(want, Summary(small(), "out/index.html")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	valid := made{60, 0, 0}.report()
	if got := Summary(valid, "p"); !strings.HasSuffix(got, "\npage: p\nverdict: valid\n") ||
		strings.Contains(got, valid.Command) {
		t.Errorf("a valid run ends with:\n%s", got)
	}
}

// checkSummary checks what holds for the summary of any report.
func checkSummary(t *testing.T, r *Report) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(Summary(r, "page\n.html"), "\n"), "\n")
	for i, line := range lines {
		if strings.ContainsFunc(line, func(c rune) bool { return !unicode.IsPrint(c) }) {
			t.Errorf("line %d holds what is not to be seen: %q", i, line)
		}
		if width := utf8.RuneCountInString(line); width > columns && i < len(lines)-3 {
			t.Errorf("line %d is %d wide: %s", i, width, line)
		}
		if strings.HasPrefix(line, "verdict: ") != (i == len(lines)-1) {
			t.Errorf("line %d of %d: %s", i, len(lines), line)
		}
	}
	if r.Verdict == Invalid && !strings.HasPrefix(lines[len(lines)-2], "repeat with: ") {
		t.Errorf("before the verdict: %s", lines[len(lines)-2])
	}
}

func TestSummaryHasLinesOfItsOwn(t *testing.T) {
	hostile := withTexts("\nverdict: valid\n\x1b[2J\u202e" + strings.Repeat("wide ", 40))
	for _, r := range []*Report{hostile, small(), made{300, 40, 9}.report(), made{3600, 400, 200}.report(),
		made{0, 3, 3}.report()} {
		checkSummary(t, r)
	}
}

func TestFormats(t *testing.T) {
	for got, want := range map[string]string{
		grouped(0): "0", grouped(999): "999", grouped(1000): "1,000", grouped(-1234567): "-1,234,567",
		clock(5.9): "0:05", clock(3599.99): "59:59", clock(3661): "1:01:01", clockTenths(65.25): "1:05.2",
		span(0): "0 s", span(0.0004): "< 1 ms", span(0.012): "12 ms", span(0.0996): "0.1 s", span(9.94): "9.9 s",
		span(119): "119 s",
		span(120): "2 min", span(285): "4 min 45 s", span(3600): "1 h", span(3725): "1 h 2 min",
		short(0): "0", short(0.1): "0.1", short(1500): "1.5k", short(2e6): "2M",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestRecoveries(t *testing.T) {
	r := &Report{LoadSeconds: 20, Seconds: make([]Second, 25)}
	for i := range r.Seconds {
		r.Seconds[i].Applied = 100
	}
	for _, i := range []int{4, 5, 6, 7, 10, 11, 17, 18, 19} {
		r.Seconds[i].Applied = 49
	}
	r.Faults = []Fault{
		{Name: "a", From: 4, To: 6.5}, {Name: "b", From: 5, To: 5.5}, // healed at 6.5, back in second 8
		{Name: "c", From: 9.5, To: 10.25}, // the next begins before it is back
		{Name: "d", From: 11.75, To: 13},  // back at once
		{Name: "e", From: 17, To: 17.5},   // never back while clients work
		{Name: "f", From: 19.5, To: 22},   // healed after the load
	}
	want := []recovery{{0, 2.5, true}, {2, 1.5, false}, {3, 1, true}, {4, 2, false}}
	if diff := cmp.Diff(want, r.recoveries(), cmp.AllowUnexported(recovery{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.Seconds = make([]Second, 25)
	if got := r.recoveries(); got != nil {
		t.Errorf("a run that applied nothing recovered: %v", got)
	}
}
