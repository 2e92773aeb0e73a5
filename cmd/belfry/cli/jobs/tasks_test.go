package jobs

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// shownTasks are tasks in every state.
func shownTasks() []*belfryv1.Task {
	return []*belfryv1.Task{
		{
			Id: "t1", Act: belfryv1.TaskAct_TASK_ACT_REDRIVE, Queue: "orders", State: belfryv1.JobState_JOB_STATE_DEAD,
			Cause: "smtp #", Text: "mailbox\nfull", Max: 5000, PerSecond: 500, Searched: 4000, Matched: 1005, Changed: 1000,
			Skipped: 5, StartedAt: clitest.At(-90 * time.Second), StartedBy: "ke4h5nvsdg2fcu7a",
			Trouble: "searching shard 3: NO_LEADER",
		},
		{
			Id: "t2", Act: belfryv1.TaskAct_TASK_ACT_COUNT, Queue: "orders", State: belfryv1.JobState_JOB_STATE_DELAYED,
			IdPrefix: "a", Searched: 12, Matched: 7, StartedAt: clitest.At(-time.Hour), EndedAt: clitest.At(-time.Minute),
		},
		{
			Id: "t3", Act: belfryv1.TaskAct_TASK_ACT_CANCEL, Queue: "mail", State: belfryv1.JobState_JOB_STATE_READY, Max: 9,
			Matched: 3, Changed: 3, Stopping: true, StartedAt: clitest.At(-time.Hour), EndedAt: clitest.At(0),
		},
		{
			Id: "t4", Act: belfryv1.TaskAct_TASK_ACT_RESCHEDULE, Queue: "mail", State: belfryv1.JobState_JOB_STATE_DELAYED,
			DueBefore: clitest.At(0), StartedAt: clitest.At(0), Stopping: true,
		},
		{Id: "t5", Act: belfryv1.TaskAct_TASK_ACT_CANCEL, Queue: "mail", StartedAt: clitest.At(0)},
		{
			Id: "t6", Act: belfryv1.TaskAct_TASK_ACT_CANCEL, Queue: "mail", StartedAt: clitest.At(0), EndedAt: clitest.At(0),
			Trouble: "gone",
		},
	}
}

// TestTasks shows a line for each.
func TestTasks(t *testing.T) {
	h := newHarness(t, clitest.Always(&belfryv1.ListTasksResponse{Tasks: shownTasks()}))
	got := h.Run("tasks")
	const want = `
ID  ACT         QUEUE   JOBS                                       PROGRESS                   STATE     AGE    TROUBLE
t1  redrive     orders  dead, with "mailbox·full", cause "smtp #"  1,000 of 5,000, 5 skipped  waits     1m30s  searching shard 3: NO_LEADER
t2  count       orders  delayed, id begins with "a"                7                          done      1h     -
t3  cancel      mail    ready                                      3 of 9                     stopped   1h     -
t4  reschedule  mail    delayed, due before 2030-01-31T09:00:00Z   0                          stopping  0s     -
t5  cancel      mail    unspecified                                0                          runs      0s     -
t6  cancel      mail    unspecified                                0                          failed    0s     gone
`
	if got != (clitest.Left(0, want[1:], "")) {
		t.Errorf("got\n%s%s", got.Out, got.Err)
	}
	h.Answer = clitest.Always(&belfryv1.ListTasksResponse{})
	if got := h.Run("tasks"); got != (clitest.Left(0, "no tasks\n", "")) {
		t.Errorf("without tasks: %+v", got)
	}
	if got := h.Run("tasks", "nosuch"); got.Code != cli.CodeUsage {
		t.Errorf("an argument: %+v", got)
	}
}

// TestTasksOfOneQueue asks for its tasks, and whether it exists if there are none.
func TestTasksOfOneQueue(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		switch r.(type) {
		case *belfryv1.ListTasksRequest:
			return &belfryv1.ListTasksResponse{}, nil
		case *belfryv1.ListQueuesRequest:
			return &belfryv1.ListQueuesResponse{}, nil
		default:
			return nil, clitest.WireError(connect.CodeNotFound, "QUEUE_NOT_FOUND", "there is no such queue")
		}
	})
	h.Run("tasks", "-q", "ordres").Holds(t, cli.CodeNotFound, "QUEUE_NOT_FOUND")
	if sent := clitest.Sent[*belfryv1.ListTasksRequest](h); len(sent) != 1 || sent[0].Queue != "ordres" {
		t.Errorf("asked for %v", sent)
	}
}

// TestTasksGet shows all of a task, as text and as JSON.
func TestTasksGet(t *testing.T) {
	h := newHarness(t, clitest.Always(&belfryv1.GetTaskResponse{Task: shownTasks()[0]}))
	got := h.Run("tasks", "get", "t1")
	const want = `
task        t1
act         redrive
queue       orders
jobs        dead, with "mailbox·full", cause "smtp #"
at most     5,000 jobs
rate        500 jobs a second
state       waits
searched    4,000 jobs
matched     1,005 jobs
changed     1,000 jobs
skipped     5 jobs
started     2030-01-31 08:58:30.000 +00:00 (1m30s ago)
started by  ke4h5nvsdg2fcu7a
trouble     searching shard 3: NO_LEADER
`
	if got != (clitest.Left(0, want[1:], "")) {
		t.Errorf("got\n%s%s", got.Out, got.Err)
	}
	if got := h.Run("tasks", "get", "t1", "-o", "json"); !strings.Contains(got.Out, `"changed":"1000"`) {
		t.Errorf("as JSON: %+v", got)
	}
	h.Answer = clitest.Always(&belfryv1.GetTaskResponse{Task: shownTasks()[3]})
	if got := h.Run("tasks", "get", "t4"); !strings.Contains(got.Out, "new due time  at once\n") {
		t.Errorf("a task that reschedules: %+v", got)
	}
}

// TestTasksFollow shows the progress of a task with the passing of time, and its trouble once; the
// exit code is that of the act.
func TestTasksFollow(t *testing.T) {
	running := func(changed uint64, trouble string) *belfryv1.Task {
		task := redriven(changed, 0)
		task.Max, task.EndedAt, task.Trouble, task.StartedAt = 1000, nil, trouble, clitest.At(0)
		return task
	}
	stopped := running(500, "")
	stopped.EndedAt, stopped.Stopping = clitest.At(0), true
	h := newHarness(t, tasksOf(0, running(0, ""), running(100, "no leader"), running(100, "no leader"), running(400, ""),
		stopped))
	now := clitest.Now
	h.System.Now = func() time.Time { now = now.Add(time.Second); return now }
	got := h.Run("tasks", "get", "act", "--follow")
	if got.Code != cli.CodePartly || got.Out != "500 jobs made ready; then the task ended early\n" ||
		strings.Count(got.Err, "belfry: the task waits, and tries again by itself: no leader\n") != 1 ||
		!strings.Contains(got.Err, " 10 %  100 of 1,000 jobs  ") || !strings.Contains(got.Err, " left\n") {
		t.Errorf("%+v", got)
	}
	h.System.ErrTerminal = true
	h.Answer = tasksOf(0, running(0, ""), running(400, ""), redriven(1000, 0))
	if got := h.Run("tasks", "get", "act", "--follow"); got.Code != 0 ||
		!strings.Contains(got.Err, cli.ClearLine+"████████████░") || !strings.HasSuffix(got.Err, cli.ClearLine) {
		t.Errorf("on a terminal: %+v", got)
	}
	h.Answer = tasksOf(0, shownTasks()[1])
	if got := h.Run("tasks", "get", "t2", "--follow"); got != (clitest.Left(0, "7 jobs counted\n", "")) {
		t.Errorf("one that has ended: %+v", got)
	}
}

// TestTaskOfAServerThatIsLost: the task is looked for until --timeout, because another server, or the
// same one later, knows of it; then the outcome is unknown.
func TestTaskOfAServerThatIsLost(t *testing.T) {
	lost := clitest.WireError(connect.CodeUnavailable, "SHUTTING_DOWN", "the server is stopping")
	asked := 0
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		if asked++; asked == 1 || asked == 4 {
			task := redriven(5, 0)
			if asked == 1 {
				task.EndedAt = nil
			}
			return &belfryv1.GetTaskResponse{Task: task}, nil
		}
		return nil, lost
	})
	if got := h.Run("tasks", "get", "act", "--follow"); got != (clitest.Left(0, "5 jobs made ready\n", "")) {
		t.Errorf("a server that came back: %+v", got)
	}
	asked = 0
	now := clitest.Now
	h.System.Now = func() time.Time { now = now.Add(time.Minute); return now }
	h.Run("tasks", "get", "act", "--follow").Holds(t, cli.CodeUnknown,
		"the server is stopping; the task may go on: 'belfry tasks get act' shows it")
}

// TestTasksStop says how far the task came.
func TestTasksStop(t *testing.T) {
	h := newHarness(t, clitest.Always(&belfryv1.StopTaskResponse{Task: shownTasks()[2]}))
	const came = "3 jobs cancelled; then the task ended early\n"
	if got := h.Run("tasks", "stop", "t3"); got != (clitest.Left(0, came, "")) {
		t.Errorf("%+v", got)
	}
	stopping := &belfryv1.Task{Id: "t4", Act: belfryv1.TaskAct_TASK_ACT_CANCEL, Stopping: true}
	h.Answer = tasksOf(0, stopping)
	ctx := interruptAt(t, h, func(r proto.Message) bool { _, ok := r.(*belfryv1.GetTaskRequest); return ok })
	const soFar = "0 jobs cancelled so far; the task was asked to stop\n"
	if got := h.RunContext(ctx, "tasks", "stop", "t4"); got != (clitest.Left(0, soFar, "")) {
		t.Errorf("one that takes its time: %+v", got)
	}
	h.Answer = func(proto.Message) (proto.Message, error) {
		return nil, clitest.InvalidField("id", `id: there is no task "t9", or not any more`)
	}
	h.Run("tasks", "stop", "t9").Holds(t, cli.CodeUsage, `there is no task "t9"`)
}
