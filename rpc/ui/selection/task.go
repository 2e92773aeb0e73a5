package selection

import (
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/format"
)

// What writes what a task does to its jobs.
func What(t *belfryv1.Task, c format.Clock) string {
	switch t.Act {
	case belfryv1.TaskAct_TASK_ACT_COUNT:
		return "Count"
	case belfryv1.TaskAct_TASK_ACT_REDRIVE:
		return "Make ready again"
	case belfryv1.TaskAct_TASK_ACT_CANCEL:
		return "Cancel"
	case belfryv1.TaskAct_TASK_ACT_RESCHEDULE:
		if t.DueAt == nil {
			return "Run now"
		}
		return "Reschedule to " + c.Text(t.DueAt)
	default:
		return format.Word(t.Act)
	}
}

// Counts reports whether a task only counts, and has counted all.
func Counts(t *belfryv1.Task) bool {
	return t.Act == belfryv1.TaskAct_TASK_ACT_COUNT && t.EndedAt != nil && !t.Stopping && t.Trouble == "" && t.Max == 0
}

// Status writes how a task is.
func Status(t *belfryv1.Task) string {
	switch {
	case t.EndedAt != nil && t.Stopping:
		return "stopped"
	case t.EndedAt != nil && t.Trouble != "":
		return "ended early"
	case t.EndedAt != nil:
		return "ended"
	case t.Stopping:
		return "stopping"
	case t.Trouble != "":
		return "in trouble"
	case t.Searched == 0:
		return "begins"
	default:
		return "runs"
	}
}

// Progress shows how far a task has come that has not ended. jobs is how many jobs of its state there
// are; if it is 0, that is not known.
func Progress(t *belfryv1.Task, jobs uint64) g.Node {
	done, of, what := t.Searched, max(jobs, t.Searched), "looked at"
	if t.Max > 0 && t.Act != belfryv1.TaskAct_TASK_ACT_COUNT {
		done, of, what = min(t.Matched, t.Max), t.Max, "acted on"
	}
	about := format.Grouped(done) + " of " + Jobs(of) + " " + what
	if jobs == 0 && t.Max == 0 {
		return h.P(g.Text(Jobs(done) + " " + what))
	}
	return h.P(h.Progress(h.ID("progress"), h.Aria("label", about), h.Max(strconv.FormatUint(of, 10)),
		h.Value(strconv.FormatUint(done, 10))), g.Text(" "+about))
}
