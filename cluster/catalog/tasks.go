package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/bulk"
)

const (
	// tasksFormat is the format that has tasks.
	tasksFormat fsm.Format = 3
	// runningMax bounds the tasks that have not ended, runningOf those of one namespace, and endedMax
	// those that have ended.
	runningMax = 100
	runningOf  = 25
	endedMax   = 200
)

// The reasons for which a task is refused. Nothing was changed.
var (
	ErrTasks = fmt.Errorf("%d tasks of the namespace run or wait, or %d in all, which is the limit; wait for one to "+
		"end, or stop one", runningOf, runningMax)
	ErrTaskExists  = errors.New("there is another task with this id")
	ErrTaskUnknown = errors.New("there is no task with this id")
	ErrTaskFormat  = fmt.Errorf("not all nodes run a version that knows tasks, which need format %d", tasksFormat)
)

// taskAdvance replaces the progress of a task.
type taskAdvance struct {
	ID       string        `json:"id"`
	Progress bulk.Progress `json:"progress"`
}

// taskStop asks a task to end.
type taskStop struct {
	ID string `json:"id"`
}

// checkTask returns the reason why a command about a task is invalid.
func (m *machine) checkTask(c *command) error {
	if m.state.Format < tasksFormat {
		return ErrTaskFormat
	}
	if c.StartTask != nil {
		return c.StartTask.Check()
	}
	return nil
}

// findTask returns the position of a task, -1 if there is none.
func (m *machine) findTask(id string) int {
	return slices.IndexFunc(m.state.Tasks, func(t *bulk.Task) bool { return t.ID == id })
}

// startTask records a task. A repeat changes nothing. The oldest tasks that have ended make room.
func (m *machine) startTask(t *bulk.Task) outcome {
	if i := m.findTask(t.ID); i >= 0 {
		if m.state.Tasks[i].Same(t) {
			return outcome{}
		}
		return outcome{verdict: exists}
	}
	running, same := 0, 0
	for _, known := range m.state.Tasks {
		if known.Running() {
			running++
			if fsm.NamespaceOf(known.Queue) == fsm.NamespaceOf(t.Queue) {
				same++
			}
		}
	}
	if running >= runningMax || same >= runningOf {
		return outcome{verdict: needed}
	}
	if len(m.state.Tasks)-running >= endedMax {
		oldest := slices.IndexFunc(m.state.Tasks, func(t *bulk.Task) bool { return !t.Running() })
		m.state.Tasks = slices.Delete(m.state.Tasks, oldest, oldest+1)
	}
	m.state.Tasks = append(m.state.Tasks, t)
	m.tasksChanged()
	return outcome{}
}

// advanceTask replaces the progress of a task that has not ended.
func (m *machine) advanceTask(a *taskAdvance) outcome {
	i := m.findTask(a.ID)
	if i < 0 || !m.state.Tasks[i].Running() {
		return outcome{verdict: overtaken}
	}
	m.state.Tasks[i].Progress = a.Progress
	return outcome{}
}

// stopTask asks a task to end. It changes nothing if the task has ended.
func (m *machine) stopTask(s *taskStop) outcome {
	i := m.findTask(s.ID)
	if i < 0 {
		return outcome{verdict: overtaken}
	}
	if m.state.Tasks[i].Running() {
		m.state.Tasks[i].Stop = true
		m.tasksChanged()
	}
	return outcome{}
}

// StartTask records a task, which the catalog's leader then carries out. It may be repeated with the
// same content. It fails with ErrTasks, ErrTaskExists or ErrTaskFormat.
func (c *Catalog) StartTask(ctx context.Context, t bulk.Task) error {
	if c.Format() < tasksFormat {
		return ErrTaskFormat
	}
	out, err := c.propose(ctx, command{StartTask: &t})
	switch {
	case err != nil:
		return fmt.Errorf("recording a task: %w", err)
	case out.verdict == exists:
		return ErrTaskExists
	case out.verdict == needed:
		return ErrTasks
	}
	return nil
}

// AdvanceTask records how far a task has come. Only the leader that carries it out calls it. It fails
// with ErrTaskUnknown if the task is gone or has ended, and with node.ErrNotLeader if this node leads
// no more: the next leader may have come further.
func (c *Catalog) AdvanceTask(ctx context.Context, id string, p bulk.Progress) error {
	return changedTask(c.proposeHere(ctx, command{AdvanceTask: &taskAdvance{ID: id, Progress: p}}))
}

// StopTask asks a task to end where it is. It may be repeated, also after the end. It fails with
// ErrTaskUnknown if there is no such task.
func (c *Catalog) StopTask(ctx context.Context, id string) error {
	if c.Format() < tasksFormat {
		return ErrTaskUnknown
	}
	return changedTask(c.propose(ctx, command{StopTask: &taskStop{ID: id}}))
}

// changedTask returns the error of a change of a task.
func changedTask(out outcome, err error) error {
	if err != nil {
		return fmt.Errorf("recording a change of a task: %w", err)
	}
	if out.verdict == overtaken {
		return ErrTaskUnknown
	}
	return nil
}

// TasksChanged returns the channel that wakes the leader's runner when a task begins or is asked to
// end.
func (c *Catalog) TasksChanged() <-chan struct{} { return c.tasksChanged }

// Tasks returns all tasks, oldest first, from memory.
func (c *Catalog) Tasks() (list []bulk.Task) {
	c.view(func(m *machine) {
		for _, t := range m.state.Tasks {
			list = append(list, t.Clone())
		}
	})
	return list
}

// Task returns a task, from memory.
func (c *Catalog) Task(id string) (t bulk.Task, found bool) {
	c.view(func(m *machine) {
		if i := m.findTask(id); i >= 0 {
			t, found = m.state.Tasks[i].Clone(), true
		}
	})
	return t, found
}

// Partitions returns the number of partitions of a queue, from memory.
func (c *Catalog) Partitions(queue string) uint32 {
	config, _ := c.Queue(queue)
	return max(1, config.Partitions)
}
