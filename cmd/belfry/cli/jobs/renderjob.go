package jobs

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const previewColumns = 60

// renderPut says what became of a put.
func renderPut(w io.Writer, queue string, response *belfryv1.PutResponse, now time.Time) {
	verb, version := "put", ""
	switch {
	case response.Replaced && response.State == belfryv1.JobState_JOB_STATE_RESERVED:
		fmt.Fprintf(w, "stored as the successor of %s in %s: due %s, version %d\n", response.Id, queue,
			render.Moment(response.DueAt, now), response.Version)
		return
	case response.Replaced:
		verb = "replaced"
	case !response.Created:
		verb = "was put before:"
	}
	if response.Version > 1 {
		version = fmt.Sprintf(", version %d", response.Version)
	}
	fmt.Fprintf(w, "%s %s in %s: %s, due %s%s\n", verb, response.Id, queue, render.Word(response.State),
		render.Moment(response.DueAt, now), version)
}

// renderReturned says what became of a job that was given back or got another due time.
func renderReturned(w io.Writer, state belfryv1.JobState, due *timestamppb.Timestamp, now time.Time) {
	if due == nil {
		fmt.Fprintln(w, render.Word(state))
		return
	}
	fmt.Fprintf(w, "%s, due %s\n", render.Word(state), render.Moment(due, now))
}

// renderTally says what became of the lines of a file.
func renderTally(w io.Writer, t tally) {
	fmt.Fprintf(w, "%s put in %s", render.Count(t.Put, "job"), render.Short(time.Duration(t.Seconds*float64(time.Second))))
	if t.Seconds > 0 {
		fmt.Fprintf(w, ", %s/s", render.Grouped(uint64(float64(t.Put+t.Replaced+t.Repeated)/t.Seconds)))
	}
	if t.Replaced > 0 {
		fmt.Fprintf(w, "; %s replaced", render.Grouped(t.Replaced))
	}
	if t.Repeated > 0 {
		fmt.Fprintf(w, "; %s had been put before", render.Grouped(t.Repeated))
	}
	if t.Failed > 0 {
		fmt.Fprintf(w, "; %s failed", render.Grouped(t.Failed))
	}
	fmt.Fprintln(w)
}

// renderReserved shows jobs with what their holder needs.
func renderReserved(w io.Writer, jobs []*belfryv1.Job, now time.Time) {
	if len(jobs) == 0 {
		fmt.Fprintln(w, "nothing to reserve")
	}
	for i, job := range jobs {
		if i > 0 {
			fmt.Fprintln(w)
		}
		render.Fields(w,
			"job", job.Id+" of "+job.Queue,
			"key", job.Key,
			"version", versionText(job),
			"attempt", fmt.Sprintf("%d, fence %d", job.Attempt, job.Fence),
			"due", render.Moment(job.DueAt, now),
			"held until", render.Moment(job.LeaseUntil, now),
			"last error", job.LastError,
			"headers", headers(job.Headers),
			"body", render.Preview(bodyOf(job), previewColumns),
			"lease", job.Lease,
		)
	}
}

// renderJob shows all of a job.
func renderJob(w io.Writer, job *belfryv1.Job, now time.Time) {
	if job.EndedAt != nil {
		renderEnded(w, job, now)
		return
	}
	attempts := fmt.Sprintf("%d of %d", job.Attempt, job.MaxAttempts)
	if job.MaxAttempts == 0 {
		attempts = fmt.Sprintf("%d, no limit", job.Attempt)
	}
	first := ""
	if job.FirstDueAt != nil && !job.FirstDueAt.AsTime().Equal(job.DueAt.AsTime()) {
		first = render.Moment(job.FirstDueAt, now)
	}
	fence := ""
	if job.Fence > 0 {
		fence = fmt.Sprint(job.Fence)
	}
	render.Fields(w,
		"job", job.Id+" of "+job.Queue,
		"key", job.Key,
		"version", versionText(job),
		"successor", successorText(job.Next, now),
		"state", render.Word(job.State),
		"due", render.Moment(job.DueAt, now),
		"first due", first,
		"held by", job.Client,
		"reserved", render.Moment(job.ReservedAt, now),
		"held since", render.Moment(job.LeaseSince, now),
		"held until", render.Moment(job.LeaseUntil, now),
		"fence", fence,
		"attempts", attempts,
		"retry after", render.Durations(job.RetryDelays),
		"ttr", render.Duration(job.Ttr),
		"priority", fmt.Sprint(job.Priority),
		"expires", render.Moment(job.ExpiresAt, now),
		"last error", job.LastError,
		"cause", job.Cause,
		"put", render.Moment(job.CreatedAt, now),
		"headers", headers(job.Headers),
		"size", render.Size(uint64(job.BodyBytes)),
		"body", render.Preview(bodyOf(job), previewColumns),
	)
	renderAttempts(w, job.Attempts, now)
}

// versionText returns the version of a job that was replaced, else nothing.
func versionText(job *belfryv1.Job) string {
	if job.Version <= 1 {
		return ""
	}
	return fmt.Sprint(job.Version)
}

// successorText says what is known of a job's successor, nothing if there is none.
func successorText(next *belfryv1.Successor, now time.Time) string {
	if next == nil {
		return ""
	}
	return fmt.Sprintf("version %d, due %s", next.Version, render.Moment(next.DueAt, now))
}

// renderAttempts shows the last failed attempts.
func renderAttempts(w io.Writer, attempts []*belfryv1.Attempt, now time.Time) {
	if len(attempts) == 0 {
		return
	}
	var lines [][]string
	for _, at := range attempts {
		took, said := "", render.Preview([]byte(at.Error), previewColumns)
		if at.BeganAt != nil {
			took = render.Short(at.EndedAt.AsTime().Sub(at.BeganAt.AsTime()))
		}
		if at.Lapsed {
			said = "the lease lapsed"
		}
		lines = append(lines, []string{
			fmt.Sprint(at.Number), render.Moment(at.EndedAt, now), render.OrDash(took), render.OrDash(at.Client),
			render.OrDash(said),
		})
	}
	fmt.Fprintln(w, "\nlast failed attempts")
	render.Rows(w, []string{"NUMBER", "ENDED", "TOOK", "HELD BY", "ERROR"}, lines)
}

// renderEnded shows what became of a job.
func renderEnded(w io.Writer, job *belfryv1.Job, now time.Time) {
	attempts := fmt.Sprint(job.Attempt)
	if job.GetAttemptUnknown() {
		attempts = "not known"
	}
	render.Fields(w,
		"job", job.Id+" of "+job.Queue,
		"key", job.Key,
		"state", render.Word(job.State),
		"ended", render.Moment(job.EndedAt, now),
		"first due", render.Moment(job.FirstDueAt, now),
		"attempts", attempts,
	)
}

// renderJobs shows a page of jobs.
func renderJobs(w io.Writer, response *belfryv1.ListResponse, now time.Time) {
	heads := []string{"ID", "DUE", "ATTEMPTS", "PRIORITY", "SIZE", "LAST ERROR"}
	held := slices.ContainsFunc(response.Jobs, func(job *belfryv1.Job) bool { return job.LeaseUntil != nil })
	if held {
		heads = slices.Insert(heads, 2, "HELD BY", "HELD SINCE", "HELD UNTIL", "FENCE")
	}
	var lines [][]string
	for _, job := range response.Jobs {
		cells := []string{
			job.Id, render.Moment(job.DueAt, now), fmt.Sprint(job.Attempt), fmt.Sprint(job.Priority),
			render.Size(uint64(job.BodyBytes)),
			render.Preview([]byte(job.LastError), previewColumns/2),
		}
		if held {
			cells = slices.Insert(cells, 2, render.OrDash(job.Client), render.Moment(job.LeaseSince, now),
				render.Moment(job.LeaseUntil, now), fmt.Sprint(job.Fence))
		}
		lines = append(lines, cells)
	}
	render.Rows(w, heads, lines)
	if response.NextPageToken != "" {
		fmt.Fprintln(w, "there are more: raise --max")
	}
}

// renderAcks says for each lease what became of it.
func renderAcks(w io.Writer, leases []string, results []*belfryv1.AckBatchResult) {
	var lines [][]string
	for i, result := range results {
		outcome := "acked"
		if failure := result.GetError(); failure != nil {
			outcome = strings.TrimPrefix(failure.Reason.String(), "REASON_") + ": " + failure.Message
		}
		lines = append(lines, []string{leases[i], outcome})
	}
	render.Rows(w, []string{"LEASE", "RESULT"}, lines)
}

// headers writes headers in the order of their names.
func headers(all map[string]string) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		texts = append(texts, name+"="+render.Preview([]byte(all[name]), previewColumns))
	}
	return strings.Join(texts, ", ")
}
