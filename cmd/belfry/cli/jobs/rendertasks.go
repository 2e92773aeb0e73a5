package jobs

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// renderTasks shows a line for each task.
func renderTasks(w io.Writer, tasks []*belfryv1.Task, now time.Time) {
	if len(tasks) == 0 {
		fmt.Fprintln(w, "no tasks")
		return
	}
	var lines [][]string
	for _, t := range tasks {
		lines = append(lines, []string{
			t.Id, render.Word(t.Act), t.Queue, taskJobs(t), taskProgress(t), taskState(t),
			render.Short(now.Sub(t.StartedAt.AsTime()).Round(time.Second)), render.OrDash(t.Trouble),
		})
	}
	render.Rows(w, []string{"ID", "ACT", "QUEUE", "JOBS", "PROGRESS", "STATE", "AGE", "TROUBLE"}, lines)
}

// renderTask shows all of a task.
func renderTask(w io.Writer, t *belfryv1.Task, now time.Time) {
	due, most, rate := "", "", ""
	if t.Act == belfryv1.TaskAct_TASK_ACT_RESCHEDULE {
		due = cmp.Or(render.Moment(t.DueAt, now), "at once")
	}
	if t.Max > 0 {
		most = render.Count(t.Max, "job")
	}
	if t.PerSecond > 0 {
		rate = render.Count(t.PerSecond, "job") + " a second"
	}
	render.Fields(w,
		"task", t.Id,
		"act", render.Word(t.Act),
		"queue", t.Queue,
		"jobs", taskJobs(t),
		"new due time", due,
		"at most", most,
		"rate", rate,
		"state", taskState(t),
		"searched", render.Count(t.Searched, "job"),
		"matched", render.Count(t.Matched, "job"),
		"changed", render.Count(t.Changed, "job"),
		"skipped", render.Count(t.Skipped, "job"),
		"started", render.Moment(t.StartedAt, now),
		"started by", t.StartedBy,
		"ended", render.Moment(t.EndedAt, now),
		"trouble", t.Trouble,
	)
}

// taskTitle says in a few words what a task does.
func taskTitle(t *belfryv1.Task) string {
	return render.Word(t.Act) + " " + t.Queue + ": " + taskState(t)
}

// taskJobs says which jobs a task is about.
func taskJobs(t *belfryv1.Task) string {
	text := render.Word(t.State)
	if filter := filterText(t); filter != "" {
		text += ", " + filter
	}
	return text
}

// taskProgress says how far a task is: of how many jobs, if that is known.
func taskProgress(t *belfryv1.Task) string {
	done := t.Changed
	if t.Act == belfryv1.TaskAct_TASK_ACT_COUNT {
		done = t.Matched
	}
	text := render.Grouped(done)
	if t.Max > 0 {
		text += " of " + render.Grouped(t.Max)
	}
	if t.Skipped > 0 {
		text += ", " + render.Grouped(t.Skipped) + " skipped"
	}
	return text
}

// taskLine says how far a task is that goes on: with a bar on a terminal, if the end is known.
func (a verbs) taskLine(t *belfryv1.Task, now time.Time) string {
	if t.Max == 0 || t.Act == belfryv1.TaskAct_TASK_ACT_COUNT {
		return fmt.Sprintf("searched %s, found %s", render.Count(t.Searched, "job"), render.Count(t.Matched, "job"))
	}
	done := min(t.Matched, t.Max)
	share := float64(done) / float64(t.Max)
	rate := float64(done) / max(now.Sub(t.StartedAt.AsTime()).Seconds(), 1e-3)
	text := fmt.Sprintf("%3.0f %%  %s of %s  %s/s", 100*share, render.Grouped(done), render.Count(t.Max, "job"),
		render.Grouped(uint64(rate)))
	if rate > 0 {
		left := time.Duration(float64(t.Max-done) / rate * float64(time.Second))
		text += fmt.Sprintf("  %v left", left.Round(time.Second))
	}
	if a.ErrTerminal {
		return render.Bar(share) + " " + text
	}
	return text
}

// taskState is a word for how a task is.
func taskState(t *belfryv1.Task) string {
	switch {
	case endedEarly(t) && t.Trouble != "":
		return "failed"
	case endedEarly(t):
		return "stopped"
	case t.EndedAt != nil:
		return "done"
	case t.Stopping:
		return "stopping"
	case t.Trouble != "":
		return "waits"
	default:
		return "runs"
	}
}

// taskResult says what a task has done.
func taskResult(t *belfryv1.Task) string {
	n := t.Changed
	if t.Act == belfryv1.TaskAct_TASK_ACT_COUNT {
		n = t.Matched
	}
	text := render.Count(n, "job") + " " + did(t.Act)
	if t.Skipped > 0 {
		text += "; " + render.Grouped(t.Skipped) + " skipped, because they were in another state by then"
	}
	switch {
	case t.EndedAt == nil && t.Stopping:
		text += " so far; the task was asked to stop"
	case t.EndedAt == nil:
		text += " so far"
	case endedEarly(t):
		text += "; then the task ended early"
	}
	return text
}
