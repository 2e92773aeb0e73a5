package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/mirror"
)

// renderFindings shows delayed queues of Redisson.
func renderFindings(w io.Writer, found []*mirror.Finding, now time.Time) {
	if len(found) == 0 {
		fmt.Fprintln(w, "no delayed queue of Redisson")
		return
	}
	for n, f := range found {
		if n > 0 {
			fmt.Fprintln(w)
		}
		renderFinding(w, f, now)
	}
}

func renderFinding(w io.Writer, f *mirror.Finding, now time.Time) {
	moment := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return moments(timestamppb.New(t), now)
	}
	codecs := slices.SortedFunc(maps.Keys(f.Codecs), func(a, b string) int { return int(f.Codecs[b] - f.Codecs[a]) })
	for n, name := range codecs {
		codecs[n] = fmt.Sprintf("%s (%s)", name, grouped(uint64(f.Codecs[name])))
	}
	owner := ""
	if f.Owner != "" {
		owner = fmt.Sprintf("by cluster %s: %s claimed, %s set aside, %s orphans", f.Owner, number(f.HandedOver), number(f.Aside), number(f.Lost))
	}
	fields(w,
		"queue", preview([]byte(strings.ToValidUTF8(f.Queue, "·")), 200),
		"entries", fmt.Sprintf("%s, in the list %s, rung %s", number(f.Timer), number(f.List), number(f.Ready)),
		"format", fmt.Sprintf("%s new, %s old, %s neither", number(f.New), number(f.Old), number(f.Bad)),
		"payloads", strings.Join(codecs, ", "),
		"first due", moment(f.Earliest),
		"last due", moment(f.Latest),
		"due within", histogram(f),
		"processes", number(f.Processes)+" connections listen",
		"mirrored", owner,
	)
	for _, warning := range f.Warnings {
		fmt.Fprintln(w, "! "+warning)
	}
}

// histogram is how soon entries are due.
func histogram(f *mirror.Finding) string {
	parts := []string{"overdue " + number(f.Overdue)}
	bounds := mirror.DueBounds()
	for n, count := range f.Due {
		name := "later"
		if n < len(bounds) {
			name = span(bounds[n])
		}
		parts = append(parts, name+" "+number(count))
	}
	return strings.Join(parts, ", ")
}

// span writes a length of time in its largest whole unit.
func span(d time.Duration) string {
	switch {
	case d >= 24*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
}

func number(n int64) string { return grouped(uint64(max(0, n))) }

// renderImport says what an import did.
func renderImport(w io.Writer, n mirror.ImportCounts) {
	fields(w,
		"claimed", number(n.Claimed),
		"put", fmt.Sprintf("%s, of which Belfry had %s already", number(n.Committed), number(n.Repeated)),
		"gone from Redis", number(n.Acked),
		"decoded", unlessZero(n.Decoded),
		"set aside", unlessZero(n.SetAside),
		"orphans", unlessZero(n.Orphans),
		"longest script", n.Slowest.Round(time.Millisecond/10).String(),
	)
}

// renderExport says what an export did.
func renderExport(w io.Writer, n mirror.ExportCounts, queue string) {
	fields(w,
		"gone back", number(n.Returned),
		"as they came", unlessZero(n.Original),
		"in the other format", unlessZero(n.Repacked),
		"there already", unlessZero(n.There),
		"lost attempts, priority, TTL or headers", unlessZero(n.Reduced),
		"back from aside", unlessZero(n.Aside),
		"dead, left in Belfry", unlessZero(n.Dead),
		"longest script", n.Slowest.Round(time.Millisecond/10).String(),
	)
	fmt.Fprintf(w, "the queue stays paused; 'belfry queue resume %s' ends that\n", queue)
}

func unlessZero(n int64) string {
	if n == 0 {
		return ""
	}
	return number(n)
}

// renderChecks says what was checked before a step of a migration.
func renderChecks(w io.Writer, checks []mirror.Check) {
	for _, c := range checks {
		mark := "ok "
		if !c.OK {
			mark = "NO "
		}
		fmt.Fprintf(w, "%s %s (%s)\n", mark, c.What, c.Found)
	}
}
