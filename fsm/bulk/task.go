package bulk

import (
	"errors"
	"fmt"
	"slices"

	"github.com/belfrydb/belfry/fsm"
)

// Act is what a task does to each job. The names are stored.
type Act string

// The acts.
const (
	// Count changes nothing.
	Count Act = "count"
	// Redrive makes dead jobs ready.
	Redrive Act = "redrive"
	// Cancel ends jobs, reserved ones only if Force is set.
	Cancel Act = "cancel"
	// Reschedule gives delayed and ready jobs another due time.
	Reschedule Act = "reschedule"
)

// Task is an act on all jobs of one state of a queue that match. The fields but Stop and Progress
// never change. The names in JSON are stored in the catalog.
type Task struct {
	// ID is unique among the tasks of a cluster.
	ID    string    `json:"id"`
	Queue string    `json:"queue"`
	State fsm.State `json:"state"`
	// DueAfter and DueBefore bound the due time, as in a list.
	DueAfter  fsm.Time `json:"dueAfterNanos,omitempty"`
	DueBefore fsm.Time `json:"dueBeforeNanos,omitempty"`
	// IDPrefix, Text and Cause are those of fsm.Match.
	IDPrefix string `json:"idPrefix,omitempty"`
	Text     string `json:"text,omitempty"`
	Cause    string `json:"cause,omitempty"`

	Act Act `json:"act"`
	// Due is the new due time of a Reschedule; 0 means at once. Delay is how it was given, if it counted
	// from when the task was started.
	Due   fsm.Time     `json:"dueNanos,omitempty"`
	Delay fsm.Duration `json:"delayNanos,omitempty"`
	// Force cancels jobs that consumers hold.
	Force bool `json:"force,omitempty"`
	// Most is how many jobs the task acts on at most; 0 means all.
	Most uint64 `json:"most,omitempty"`
	// PerSecond bounds the rate; 0 means as fast as shards can.
	PerSecond uint32 `json:"perSecond,omitempty"`
	// By is the id of the token that started it, "" without tokens. Created is in nanoseconds since
	// 1970.
	By      string `json:"by,omitempty"`
	Created int64  `json:"createdNanos"`

	// Stop asks the task to end where it is.
	Stop     bool     `json:"stop,omitempty"`
	Progress Progress `json:"progress,omitzero"`
}

// Progress is how far a task has come.
type Progress struct {
	// Places are where it is in each partition; a partition without one was not begun.
	Places []Place `json:"places,omitempty"`
	// Searched counts the jobs that were looked at, and Matched those that fit. Of these, Changed were
	// acted on; Skipped were in another state by then.
	Searched uint64 `json:"searched,omitempty"`
	Matched  uint64 `json:"matched,omitempty"`
	Changed  uint64 `json:"changed,omitempty"`
	Skipped  uint64 `json:"skipped,omitempty"`
	// Ended is when the task ended, in nanoseconds since 1970; 0 while it runs.
	Ended int64 `json:"endedNanos,omitempty"`
	// Trouble is why the task does not go on, or why it ended early.
	Trouble string `json:"trouble,omitempty"`
}

// Place is how far a task has come in a partition.
type Place struct {
	Due    fsm.Time `json:"dueNanos,omitempty"`
	Serial uint64   `json:"serial,omitempty"`
	Done   bool     `json:"done,omitempty"`
}

// Clone returns a copy that shares no memory.
func (t *Task) Clone() Task {
	c := *t
	c.Progress.Places = slices.Clone(t.Progress.Places)
	return c
}

// Running reports whether the task has not ended.
func (t *Task) Running() bool { return t.Progress.Ended == 0 }

// Same reports whether two tasks ask for the same, whoever started them and when.
func (t *Task) Same(o *Task) bool { return t.asked() == o.asked() }

// asked has what two calls that ask for the same task have in common.
func (t *Task) asked() [13]any {
	due := t.Due
	if t.Delay != 0 { // it is counted from the call
		due = 0
	}
	return [...]any{
		t.ID, t.Queue, t.State, t.DueAfter, t.DueBefore, t.IDPrefix, t.Text, t.Cause, t.Act, due, t.Delay, t.Force,
		[2]uint64{t.Most, uint64(t.PerSecond)},
	}
}

// Check returns what is wrong with a new task.
func (t *Task) Check() error {
	switch {
	case t.ID == "" || t.Queue == "":
		return errors.New("a task without an id or a queue")
	case !t.State.Held():
		return fmt.Errorf("a task on jobs in state %d, in which none are held", t.State)
	case t.Force && t.Act != Cancel, (t.Due != 0 || t.Delay != 0) && t.Act != Reschedule:
		return fmt.Errorf("a task to %s jobs by force, or with a due time", t.Act)
	}
	return t.checkState()
}

// checkState returns an error if the act is not possible in the state.
func (t *Task) checkState() error {
	var of []fsm.State
	switch t.Act {
	case Count:
		return nil
	case Redrive:
		of = []fsm.State{fsm.Dead}
	case Reschedule:
		if of = []fsm.State{fsm.Delayed}; t.Due != 0 || t.Delay != 0 { // ready jobs are due already
			of = append(of, fsm.Ready)
		}
	case Cancel:
		if of = []fsm.State{fsm.Delayed, fsm.Ready, fsm.Dead}; t.Force {
			of = append(of, fsm.Reserved)
		}
	default:
		return fmt.Errorf("a task with the act %q, of which this version knows nothing", t.Act)
	}
	if !slices.Contains(of, t.State) {
		return fmt.Errorf("a task to %s jobs in state %d: %w", t.Act, t.State, ErrState)
	}
	return nil
}

// ErrState is wrapped by the error of Check if the act is not possible for jobs in that state.
var ErrState = errors.New("jobs in this state are not acted on so")
