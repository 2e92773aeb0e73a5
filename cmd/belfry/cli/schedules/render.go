package schedules

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// renderPut shows what became of a schedule, and its next times.
func renderPut(w io.Writer, request *belfryv1.PutScheduleRequest, response *belfryv1.PutScheduleResponse,
	now time.Time) {
	word := "unchanged: "
	switch {
	case response.Created:
		word = "created "
	case response.Replaced:
		word = "replaced "
	}
	fmt.Fprintf(w, "%s%s in %s, version %d\n", word, request.Name, request.Queue, response.Version)
	renderTimes(w, response.Times, response.ZoneData, now)
}

// renderPreview shows when a schedule would fire.
func renderPreview(w io.Writer, response *belfryv1.PreviewScheduleResponse, now time.Time) {
	if response.Rule != "" {
		render.Fields(w, "rule", response.Rule)
	}
	renderTimes(w, response.Times, response.ZoneData, now)
}

// renderTimes shows firings that are to come.
func renderTimes(w io.Writer, times []*belfryv1.ScheduleTime, zoneData string, now time.Time) {
	if len(times) == 0 {
		fmt.Fprintln(w, "it does not fire any more")
		return
	}
	var lines [][]string
	for _, t := range times {
		jitter := ""
		if d := t.GetDueAt().AsTime().Sub(t.GetNominal().AsTime()); d > 0 {
			jitter = "+" + render.Short(d)
		}
		lines = append(lines, []string{t.Local, utc(t.Nominal), jitter,
			relativeTo(t.GetDueAt(), now)})
	}
	render.Rows(w, []string{"NEXT", "UTC", "JITTER", ""}, lines)
	fmt.Fprintf(w, "time zones of %s\n", zoneData)
}

// utc writes a nominal time as ids and headers have it.
func utc(at *timestamppb.Timestamp) string { return at.AsTime().UTC().Format(time.RFC3339Nano) }

// relativeTo returns how far off a time is, without the time.
func relativeTo(at *timestamppb.Timestamp, now time.Time) string {
	text := render.Moment(at, now)
	return strings.Trim(text[strings.LastIndex(text, "("):], "()")
}

// renderList shows schedules as a table.
func renderList(w io.Writer, response *belfryv1.ListSchedulesResponse, now time.Time) {
	if len(response.Schedules) == 0 {
		fmt.Fprintln(w, "no schedules")
		return
	}
	var lines [][]string
	for _, s := range response.Schedules {
		paused := ""
		if s.Paused {
			paused = "paused"
			if s.Note != "" {
				paused += ": " + s.Note
			}
		}
		lines = append(lines, []string{s.Name, ruleOf(s.Spec), render.OrDash(render.Moment(s.Next, now)),
			render.Grouped(s.Counts.GetFired()), render.Grouped(s.Counts.GetMissed()),
			render.Grouped(s.Counts.GetSkipped()), paused})
	}
	render.Rows(w, []string{"NAME", "RULE", "NEXT", "FIRED", "MISSED", "SKIPPED", ""}, lines)
	if response.NextPageToken != "" {
		fmt.Fprintln(w, "there are more; --max shows them")
	}
}

// ruleOf writes when a schedule fires, on one line.
func ruleOf(spec *belfryv1.ScheduleSpec) string {
	if every := spec.GetEvery(); every != nil {
		text := "every " + render.Duration(every)
		if spec.GetPhase().AsDuration() != 0 {
			text += " + " + render.Duration(spec.Phase)
		}
		return text
	}
	if spec.GetTimeZone() == "" {
		return spec.GetCron()
	}
	return spec.GetCron() + " " + spec.GetTimeZone()
}

// renderSchedule shows all of a schedule.
func renderSchedule(w io.Writer, s *belfryv1.Schedule, now time.Time) {
	paused := ""
	if s.Paused {
		paused = strings.TrimSuffix("yes, "+s.Note, ", ")
	}
	spec, policy, counts := s.Spec, s.Policy, s.Counts
	clockChanges := ""
	if spec.GetEvery() == nil { // which counts real time
		clockChanges = wordOfEnum(spec.GetDst(), "DST_")
	}
	nextLocal := s.NextLocal
	if spec.GetTimeZone() == "" {
		nextLocal = "" // it is UTC, as next is
	}
	render.Fields(w,
		"schedule", s.Name,
		"queue", s.Queue,
		"version", strconv.FormatUint(s.Version, 10),
		"rule", ruleOf(spec),
		"except", strings.Join(spec.GetExclude(), "; "),
		"clock changes", clockChanges,
		"jitter", render.Duration(spec.GetJitter()),
		"start", render.Moment(spec.GetStart(), now),
		"end", render.Moment(spec.GetEnd(), now),
		"paused", paused,
		"next", render.OrDash(render.Moment(s.Next, now)),
		"next, local", nextLocal,
		"catch-up", wordOfEnum(policy.GetCatchUp(), "CATCH_UP_"),
		"window", render.Duration(policy.GetWindow()),
		"overlap", wordOfEnum(policy.GetOverlap(), "OVERLAP_"),
		"max fires", limitOf(policy.GetMaxFires()),
		"pause on dead", map[bool]string{true: "yes"}[policy.GetPauseOnDead()],
		"fired", render.Grouped(counts.GetFired()),
		"missed", render.Grouped(counts.GetMissed()),
		"skipped", render.Grouped(counts.GetSkipped()),
		"backfilled", render.Grouped(counts.GetBackfilled()),
		"created", render.Moment(s.CreatedAt, now),
		"changed", render.Moment(s.ChangedAt, now),
		"time zones", s.ZoneData,
	)
	renderJob(w, s.Job)
	renderFirings(w, s.Recent, now)
}

// renderJob shows what the jobs of a schedule are. What they have of the queue is left out.
func renderJob(w io.Writer, job *belfryv1.ScheduleJob) {
	body := []byte(job.GetText())
	if data := job.GetData(); data != nil {
		body = data
	}
	var headers []string
	for name, value := range job.GetHeaders() {
		headers = append(headers, name+"="+value)
	}
	slices.Sort(headers)
	priority, attempts := "", ""
	if job != nil && job.Priority != nil {
		priority = fmt.Sprint(*job.Priority)
	}
	if job != nil && job.MaxAttempts != nil {
		attempts = fmt.Sprint(*job.MaxAttempts)
	}
	const columns = 60
	fmt.Fprintln(w)
	render.Fields(w,
		"body", render.OrDash(render.Preview(body, columns)),
		"headers", strings.Join(headers, ", "),
		"key", job.GetKey(),
		"ttr", render.Duration(job.GetTtr()),
		"ttl", render.Duration(job.GetTtl()),
		"priority", priority,
		"max attempts", attempts,
		"retry delays", render.Durations(job.GetRetryDelays()),
	)
}

// renderFirings shows the last firings, oldest first.
func renderFirings(w io.Writer, firings []*belfryv1.Firing, now time.Time) {
	if len(firings) == 0 {
		return
	}
	var lines [][]string
	for _, f := range firings {
		result := wordOfEnum(f.Result, "FIRING_RESULT_")
		if f.Count > 1 {
			result += " × " + render.Grouped(f.Count)
		}
		lines = append(lines, []string{utc(f.Nominal), result, render.Moment(f.At, now)})
	}
	fmt.Fprintln(w)
	render.Rows(w, []string{"NOMINAL", "RESULT", "AT"}, lines)
}

// limitOf writes a limit; 0 is none.
func limitOf(n uint64) string {
	if n == 0 {
		return ""
	}
	return render.Grouped(n)
}

// wordOfEnum returns the word that the command line has for a value of the API.
func wordOfEnum(value fmt.Stringer, prefix string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(value.String(), prefix)), "_", "-")
}

// renderBackfill says what a backfill put, and how it goes on.
func renderBackfill(w io.Writer, queue string, r *belfryv1.BackfillScheduleResponse) {
	fmt.Fprintf(w, "put %s in %s", render.Count(r.Put, "job"), queue)
	if r.Existing > 0 {
		fmt.Fprintf(w, ", %s put before", render.Grouped(uint64(r.Existing)))
	}
	fmt.Fprintln(w)
	if r.Rest == nil {
		return
	}
	why := "there are more"
	if r.QueueFull {
		why = "the queue is full"
	}
	fmt.Fprintf(w, "%s; go on with --from %s\n", why, utc(r.Rest))
}
