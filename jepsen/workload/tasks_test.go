package workload

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestTasks: operators start tasks of every act, whole and narrowed, fast and slow, each of which a
// repeat would find again.
func TestTasks(t *testing.T) {
	f := newFake(t, "n1", "n2")
	c, err := NewClient(f.target(), "tasks", "tasks-operator-1", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	operate := role(t, tasks(), "operator")
	for range 150 {
		operate(t.Context(), c)
	}
	kinds := map[string]int{}
	ids := map[string]string{}
	for _, o := range f.history.Ops() {
		r, ok := o.Request.(*belfryv1.StartTaskRequest)
		if !ok {
			continue
		}
		if asked, known := ids[r.GetRequestId()]; known && asked != r.String() || r.GetRequestId() == "" {
			t.Errorf("two tasks have the request id %q", r.GetRequestId())
		}
		ids[r.GetRequestId()] = r.String()
		for what, is := range map[string]bool{
			"prefix": r.GetIdPrefix() != "", "cause": r.GetCause() != "", "text": r.GetText() != "", "max": r.GetMax() > 0,
			"after": r.GetDueAfter() != nil, "before": r.GetDueBefore() != nil, "slow": r.GetPerSecond() > 0,
			"force": r.GetForce(), "now": r.GetWhen() != nil && r.GetDelay().AsDuration() == 0,
			r.GetAct().String(): true, r.GetQueue(): true,
		} {
			if is {
				kinds[what]++
			}
		}
	}
	for _, what := range []string{"prefix", "cause", "text", "max", "after", "before", "slow", "force", "now",
		"TASK_ACT_COUNT", "TASK_ACT_REDRIVE", "TASK_ACT_CANCEL", "TASK_ACT_RESCHEDULE", taskQueues()[0], taskQueues()[1]} {
		if kinds[what] == 0 {
			t.Errorf("no task of 150 has %q: %v", what, kinds)
		}
	}
}

// TestTasksEnd: every node is asked, and one that says that a task goes on is named.
func TestTasksEnd(t *testing.T) {
	f := newFake(t, "n1", "n2")
	f.tasks = []*belfryv1.Task{{Id: "1", EndedAt: timestamppb.Now()}}
	if err := TasksEnd(t.Context(), f.target(), time.Minute); err != nil {
		t.Fatal(err)
	}
	asked := map[string]bool{}
	for _, o := range f.history.Ops() {
		asked[o.Node] = true
	}
	if len(asked) != 2 {
		t.Errorf("asked %v", asked)
	}
	f.tasks = append(f.tasks, &belfryv1.Task{Id: "2"})
	if err := TasksEnd(f.endAfter(t, "n1", 3), f.target(), time.Minute); err == nil ||
		!strings.Contains(err.Error(), "n1 says that 1 tasks go on") {
		t.Errorf("with a task that goes on: %v", err)
	}
}
