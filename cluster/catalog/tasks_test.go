package catalog

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/bulk"
)

// TestTaskRecords: a task is recorded once, changed until it ends, and forgotten when many others have
// ended.
func TestTaskRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, _ := open(t, t.TempDir())
		task := func(i int) bulk.Task {
			return bulk.Task{ID: fmt.Sprint(i), Queue: "q", State: fsm.Dead, Act: bulk.Redrive, Created: int64(i)}
		}
		first := task(0)
		for range 2 {
			if err := c.StartTask(t.Context(), first); err != nil {
				t.Fatal(err)
			}
		}
		other := first
		other.Text = "x"
		if err := c.StartTask(t.Context(), other); !errors.Is(err, ErrTaskExists) {
			t.Errorf("another task with the id: %v", err)
		}
		<-c.TasksChanged()
		if err := c.StopTask(t.Context(), "0"); err != nil {
			t.Fatal(err)
		}
		<-c.TasksChanged()
		progress := bulk.Progress{Matched: 3, Changed: 2, Skipped: 1, Places: []bulk.Place{{Due: 1, Serial: 2}}, Ended: 5}
		if err := c.AdvanceTask(t.Context(), "0", progress); err != nil {
			t.Fatal(err)
		}
		got := c.Tasks()
		if len(got) != 1 || !got[0].Stop || got[0].Running() || got[0].Progress.Changed != 2 {
			t.Errorf("%+v", got)
		}
		got[0].Progress.Places[0].Serial = 9
		if c.Tasks()[0].Progress.Places[0].Serial != 2 {
			t.Error("a reader changed the record")
		}
		if err := c.AdvanceTask(t.Context(), "0", progress); !errors.Is(err, ErrTaskUnknown) {
			t.Errorf("progress after the end: %v", err)
		}
		if err := c.StopTask(t.Context(), "1"); !errors.Is(err, ErrTaskUnknown) {
			t.Errorf("the end of no task: %v", err)
		}
		for i := range runningOf {
			if err := c.StartTask(t.Context(), task(1+i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.StartTask(t.Context(), task(1000)); !errors.Is(err, ErrTasks) {
			t.Errorf("one task too many: %v", err)
		}
	})
}

// TestEndedTasksMakeRoom: the oldest task that has ended is forgotten for a new one, and none that runs.
func TestEndedTasksMakeRoom(t *testing.T) {
	m := newMachine()
	m.state.Format = tasksFormat
	running := &bulk.Task{ID: "running"}
	m.startTask(running)
	for i := range endedMax + 5 {
		m.startTask(&bulk.Task{ID: fmt.Sprint(i)})
		m.advanceTask(&taskAdvance{ID: fmt.Sprint(i), Progress: bulk.Progress{Ended: 1}})
	}
	if n := len(m.state.Tasks); n != endedMax+1 || m.state.Tasks[0] != running || m.state.Tasks[1].ID != "5" {
		t.Errorf("%d tasks are recorded, the first are %s and %s", n, m.state.Tasks[0].ID, m.state.Tasks[1].ID)
	}
}

// TestTasksNeedTheirFormat: a node of an earlier format could not read them.
func TestTasksNeedTheirFormat(t *testing.T) {
	m := newMachine()
	m.state.Format = tasksFormat - 1
	task := &bulk.Task{ID: "1", Queue: "q", State: fsm.Dead, Act: bulk.Redrive}
	for _, c := range []command{{StartTask: task}, {AdvanceTask: &taskAdvance{}}, {StopTask: &taskStop{}}} {
		if err := m.check(&c); !errors.Is(err, ErrTaskFormat) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	m.state.Format = tasksFormat
	if err := m.check(&command{StartTask: &bulk.Task{ID: "1"}}); err == nil {
		t.Error("a task without a queue is recorded")
	}
}
