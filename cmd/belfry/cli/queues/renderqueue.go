package queues

import (
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// renderQueues shows the queues, one a line.
func renderQueues(w io.Writer, queues []*belfryv1.Queue) {
	if len(queues) == 0 {
		fmt.Fprintln(w, "no queues")
		return
	}
	var lines [][]string
	for _, q := range queues {
		oldest := "-"
		if q.OldestReadyAge != nil {
			oldest = render.Duration(q.OldestReadyAge)
		}
		paused := ""
		if q.Settings.GetPaused() {
			paused = "paused"
		}
		lines = append(lines, []string{
			q.Name, render.Jobs(q.Counts.GetDelayed()), render.Jobs(q.Due.GetNextHour()), render.Jobs(q.Counts.GetReady()),
			render.Jobs(q.Counts.GetReserved()), render.Jobs(q.Counts.GetDead()),
			oldest, render.Size(q.Bytes), paused,
		})
	}
	render.Rows(w, []string{"QUEUE", "DELAYED", "NEXT HOUR", "READY", "RESERVED", "DEAD", "OLDEST READY", "SIZE", ""},
		lines)
}

// renderQueue shows all of a queue.
func renderQueue(w io.Writer, q *belfryv1.Queue, bars render.Canvas, now time.Time) {
	c, t, r := q.Counts, q.Totals, q.Rates
	oldest := ""
	if q.OldestReadyAge != nil {
		oldest = "due for " + render.Duration(q.OldestReadyAge)
	}
	waiting := ""
	if q.WaitingConsumers != nil {
		waiting = render.Count(*q.WaitingConsumers, "consumer")
	}
	lateness := ""
	if l := q.Lateness; l.GetJobs() > 0 {
		lateness = fmt.Sprintf("p50 %s, p99 %s, max %s of %s over the last %s", render.Duration(l.P50),
			render.Duration(l.P99), render.Duration(l.Max), render.Count(l.Jobs, "job"), windowText(l.Window))
	}
	perSecond := "not known: the leader of a shard has just started, or is of an earlier version"
	if r != nil {
		perSecond = fmt.Sprintf("%.1f put, %.1f reserved, %.1f acked over the last %s", r.PutsPerSecond, r.ReservesPerSecond,
			r.AcksPerSecond, windowText(r.Window))
	}
	render.Fields(w,
		"queue", q.Name,
		"partitions", fmt.Sprint(q.Partitions),
		"jobs", fmt.Sprintf("%s delayed, %s ready, %s reserved, %s dead", render.Jobs(c.GetDelayed()),
			render.Jobs(c.GetReady()), render.Jobs(c.GetReserved()), render.Jobs(c.GetDead())),
		"size", render.Size(q.Bytes),
		"oldest ready", oldest,
		"waiting", waiting,
		"next due", render.Moment(q.NextDueAt, now),
		"due", render.DueSums(q.Due),
		"lateness", lateness,
		"per second", perSecond,
		"put", render.Grouped(t.GetPuts()),
		"reserved", fmt.Sprintf("%s, given back %s", render.Grouped(t.GetReserves()), render.Grouped(t.GetReleases())),
		"ended", fmt.Sprintf("%s acked, %s cancelled, %s expired", render.Grouped(t.GetAcks()),
			render.Grouped(t.GetCancels()), render.Grouped(t.GetExpiries())),
		"failed", fmt.Sprintf("%s nacked, %s lapsed, %s died, %s redriven", render.Grouped(t.GetNacks()),
			render.Grouped(t.GetLapses()), render.Grouped(t.GetDeaths()), render.Grouped(t.GetRedrives())),
		"ids remembered", endedIDs(q),
		"as of", render.Moment(q.AsOf, now),
	)
	render.Due(w, q.Due, bars, now.Location())
	fmt.Fprintln(w, "\nsettings")
	renderSettings(w, q.Settings, now)
}

// endedIDs says for how long the ids of ended jobs are remembered, so that a repeated put of one
// changes nothing.
func endedIDs(q *belfryv1.Queue) string {
	window, forever := q.Settings.GetDedupWindow(), q.Settings.GetDedupForever()
	const why = "because a shard remembers no more than 10,000,000"
	switch {
	case q.DedupWindowHeld == nil:
		return ""
	case q.DedupWindowShortened && forever:
		return fmt.Sprintf("for %s after the job has ended, not without end, %s", render.Duration(q.DedupWindowHeld), why)
	case q.DedupWindowShortened:
		return fmt.Sprintf("for %s after the job has ended instead of %s, %s", render.Duration(q.DedupWindowHeld),
			render.Duration(window), why)
	case forever:
		return "without end"
	case window.AsDuration() == 0:
		return "no"
	default:
		return fmt.Sprintf("for %s after the job has ended", render.Duration(window))
	}
}

// windowText writes the time that rates and lateness are of. An earlier server does not say it;
// there it is a minute, too.
func windowText(window *durationpb.Duration) string {
	seconds := int(window.AsDuration() / time.Second)
	if window == nil {
		seconds = 60
	}
	return fmt.Sprintf("%d s", seconds)
}

// renderCreated says what was made, and where that is still on its way.
func renderCreated(w io.Writer, response *belfryv1.CreateQueueResponse) {
	fmt.Fprintf(w, "created %s with %s\n", response.Queue, render.Count(response.Partitions, "partition"))
	renderPending(w, response.PendingShards)
}

// renderUpdated says what was changed, and where that is still on its way.
func renderUpdated(w io.Writer, queue string, response *belfryv1.UpdateQueueResponse) {
	fmt.Fprintf(w, "%s has settings version %d\n", queue, response.SettingsVersion)
	renderPending(w, response.PendingShards)
}

// renderPending says where a change is still on its way.
func renderPending(w io.Writer, shards []uint32) {
	if len(shards) > 0 {
		fmt.Fprintf(w, "not yet applied in shards %v; it will be\n", shards)
	}
}

// retryDelays shows what follows failed attempts, and whether that is the default.
func retryDelays(s *belfryv1.QueueSettings) string {
	text, isDefault := render.Durations(s.GetRetryDelays()), s.GetRetryDelaysDefault()
	switch {
	case text == "" && isDefault: // of a queue that was created before there was another default
		return "at once (default)"
	case text == "":
		return "at once"
	case isDefault:
		return text + ", ±10 % (default)"
	}
	return text
}

// renderSettings shows the settings in force.
func renderSettings(w io.Writer, s *belfryv1.QueueSettings, now time.Time) {
	attempts := limit(uint64(s.GetMaxAttempts()))
	dedup := render.Duration(s.GetDedupWindow())
	if s.GetDedupForever() {
		dedup = "without end"
	}
	overdue := render.Word(s.GetOverdue().GetMode())
	if period := s.GetOverdue().GetPeriod(); period.AsDuration() > 0 {
		overdue += " over " + render.Duration(period)
	}
	if after := s.GetOverdue().GetOverdueAfter(); after != nil {
		overdue += ", after an outage of " + render.Duration(after)
	}
	paused := "no"
	if s.GetPaused() {
		paused = "yes"
		if s.PausedUntil != nil {
			paused = "until " + render.Moment(s.PausedUntil, now)
		}
	}
	bytesMax := "no limit"
	if s.GetMaxBytes() > 0 {
		bytesMax = render.Size(s.GetMaxBytes())
	}
	render.Fields(w,
		"  ttr", render.Duration(s.GetTtr()),
		"  max-attempts", attempts,
		"  retry-delays", retryDelays(s),
		"  dedup-window", dedup,
		"  max-in-flight", limit(uint64(s.GetMaxInFlight())),
		"  max-jobs", limit(uint64(s.GetMaxJobs())),
		"  max-bytes", bytesMax,
		"  puts-per-second", limit(uint64(s.GetPutsPerSecond())),
		"  overdue", overdue,
		"  expire-to", render.Word(s.GetExpireTo()),
		"  keys", keySettings(s),
		"  paused", paused,
	)
}

// limit writes a limit, of which 0 means that there is none.
func limit(n uint64) string {
	if n == 0 {
		return "no limit"
	}
	return render.Grouped(n)
}
