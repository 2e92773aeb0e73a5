package migration

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
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
		return render.Moment(timestamppb.New(t), now)
	}
	codecs := slices.SortedFunc(maps.Keys(f.Codecs), func(a, b string) int { return int(f.Codecs[b] - f.Codecs[a]) })
	for n, name := range codecs {
		codecs[n] = fmt.Sprintf("%s (%s)", name, render.Grouped(uint64(f.Codecs[name])))
	}
	owner := ""
	if f.Owner != "" {
		owner = fmt.Sprintf("by cluster %s: %s claimed, %s set aside, %s orphans", f.Owner, number(f.HandedOver),
			number(f.Aside), number(f.Lost))
	}
	render.Fields(w,
		"queue", render.Preview([]byte(strings.ToValidUTF8(f.Queue, "·")), 200),
		"entries", fmt.Sprintf("%s, in the list %s, ready %s", number(f.Timer), number(f.List), number(f.Ready)),
		"format", fmt.Sprintf("%s new, %s old, %s neither", number(f.New), number(f.Old), number(f.Bad)),
		"payloads", strings.Join(codecs, ", "),
		"first due", moment(f.Earliest),
		"last due", moment(f.Latest),
		"due within", histogram(f),
		"processes", number(f.Processes)+" connections listen",
		"mirrored", owner,
		"import", "would "+strings.Join(f.Would, "; "),
		"into", target(f.Target),
	)
	for _, warning := range f.Warnings {
		fmt.Fprintln(w, "! "+warning)
	}
	renderListed(w, f)
}

// target says what there is of the queue of Belfry that an import would bring entries to.
func target(t *mirror.Target) string {
	if t == nil {
		return ""
	}
	there := "which would be made"
	if t.Exists {
		there = fmt.Sprintf("with %d delayed, %d ready, %d reserved, %d dead jobs", t.Delayed, t.Ready, t.Reserved, t.Dead)
	}
	remembers := "would remember ids without end until finalize"
	if t.DedupForever {
		remembers = "remembers ids without end"
	}
	return fmt.Sprintf("%s, %s; it %s; epoch %d", t.Queue, there, remembers, t.Epoch)
}

// listedShown is how many entries of one key are shown.
const listedShown = 20

// renderListed shows the first entries of each key that Belfry cannot take, or that were set aside.
func renderListed(w io.Writer, f *mirror.Finding) {
	shown := map[string]int64{}
	all := map[string]int64{}
	for _, one := range f.Listed {
		all[one.Key]++
	}
	for _, one := range f.Listed {
		if shown[one.Key]++; shown[one.Key] == 1 {
			fmt.Fprintf(w, "in %s:\n", render.Preview([]byte(strings.ToValidUTF8(one.Key, "·")), 200))
		}
		if shown[one.Key] <= listedShown {
			score := ""
			if one.Score != "" {
				score = "score " + one.Score + ", "
			}
			dots := ""
			if one.Bytes > mirror.ListedBytes {
				dots = "…"
			}
			fmt.Fprintf(w, "  %s%s \"%s\"%s: %s\n", score, render.Size(uint64(one.Bytes)), one.Member, dots, one.Why)
		}
		if more := all[one.Key] - listedShown; shown[one.Key] == all[one.Key] && more > 0 {
			fmt.Fprintf(w, "  and %s more; -o json shows up to %s of each key\n", number(more), number(mirror.ListedMax))
		}
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

func number(n int64) string { return render.Grouped(uint64(max(0, n))) }

// renderImport says what an import from a queue did.
func renderImport(w io.Writer, n mirror.ImportCounts, f *mirrorFlags) {
	decoded := ""
	if f.codec != redisson.Opaque.String() {
		done := min(n.Decoded, n.Committed) // one that was put twice was decoded twice
		decoded = fmt.Sprintf("%s of %s", number(done), number(n.Committed))
		if done < n.Committed {
			decoded += "; the others stay as they are"
		}
	}
	render.Fields(w,
		"claimed", number(n.Claimed),
		"put", fmt.Sprintf("%s, of which Belfry had %s already", number(n.Committed), number(n.Repeated)),
		"gone from Redis", number(n.Acked),
		"decoded", decoded,
		"set aside", unlessZero(n.SetAside),
		"orphans", unlessZero(n.Orphans),
		"longest script", n.Slowest.Round(time.Millisecond/10).String(),
	)
	if n.SetAside+n.Orphans > 0 {
		fmt.Fprintf(w, "'belfry mirror inspect REDIS --queue %s' lists what was set aside, and the orphans\n", f.redisQueue)
	}
	renderStranded(w, n, f)
}

// renderExport says what an export did and checked.
func renderExport(w io.Writer, n exported) {
	render.Fields(w,
		"gone back", number(n.Returned),
		"as they came", unlessZero(n.Original),
		"in the other format", unlessZero(n.Repacked),
		"there already", unlessZero(n.There),
		"lost attempts, priority, TTL or headers", unlessZero(n.Reduced),
		"back from aside", unlessZero(n.Aside),
		"orphans back", unlessZero(n.Orphans),
		"dead, left in Belfry", unlessZero(n.Dead),
		"longest script", n.Slowest.Round(time.Millisecond/10).String(),
	)
	renderChecks(w, n.Checks)
}

func unlessZero(n int64) string {
	if n == 0 {
		return ""
	}
	return number(n)
}

// renderChecks says what was checked before a step of a migration.
func renderChecks(w io.Writer, checks []pair.Check) {
	for _, c := range checks {
		mark := "ok "
		if !c.OK {
			mark = "NO "
		}
		fmt.Fprintf(w, "%s %s (%s)\n", mark, c.What, c.Found)
	}
}
