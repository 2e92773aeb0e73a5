package auth

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestAuditOfRefusalsIsBounded: a client that guesses tokens does not fill the audit log. The next
// line says how many calls have none.
func TestAuditOfRefusalsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		failures, err := NewFailures(slog.New(slog.DiscardHandler),
			&Recorder{slog.New(slog.NewTextHandler(&log, nil)), NewTrail("n1", time.Now)}, prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		expect := func(calls int, unsaid ...int) {
			t.Helper()
			log.Reset()
			for range calls {
				failures.auditCall(newAuditRecord(nil, &Call{Address: "a", Procedure: strings.Repeat("/", 1000)},
					"unauthenticated"))
			}
			want := ""
			for _, n := range unsaid {
				want += " unsaid=" + strconv.Itoa(n)
			}
			got := ""
			for line := range strings.Lines(log.String()) {
				got += line[strings.LastIndex(line, " unsaid=") : len(line)-1]
				if len(line) > 1000 {
					t.Errorf("a line of %d bytes", len(line))
				}
			}
			if got != want {
				t.Errorf("after %d calls the audit has%s, want%s", calls, got, want)
			}
		}
		expect(1000, make([]int, refusalLines)...)
		time.Sleep(2 * refusalPause)
		expect(5, 1000-refusalLines, 0)
		time.Sleep(time.Hour)
		expect(refusalLines+1, append([]int{3}, make([]int, refusalLines-1)...)...)
	})
}
