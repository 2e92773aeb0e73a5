package admin

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/client/internal/calls"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/values"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A TaskRequest is an act on all jobs of a queue that match, for [Client.StartTask].
type TaskRequest struct {
	// Act is "COUNT", "REDRIVE" (DEAD jobs), "CANCEL" or "RESCHEDULE" (DELAYED and READY jobs).
	Act string
	// Queue and Jobs select the jobs.
	Queue string
	Jobs  Selection
	// DueAt is the due time that RESCHEDULE gives; zero makes DELAYED jobs due at once.
	DueAt time.Time
	// Force lets CANCEL end RESERVED jobs. Their leases are then stale.
	Force bool
	// Max is how many jobs are acted on at most, PerSecond how many a second, up to 1,000,000. 0
	// means no limit.
	Max, PerSecond int
}

// A Selection selects jobs of a queue, as ListOptions of package client do.
type Selection struct {
	// State is DELAYED, READY, RESERVED or DEAD. Default DELAYED.
	State State
	// DueAfter and DueBefore, if not zero, select jobs due at or after DueAfter and before
	// DueBefore.
	DueAfter, DueBefore time.Time
	// Text, if not empty, selects jobs that have it in the id, in a header, in the last error or in
	// the body; IDPrefix those whose id begins with it: at most 256 bytes each. Cause selects jobs
	// by Cause of a Job in package client.
	Text, IDPrefix, Cause string
}

// A Task is an act on many jobs, which the cluster carries out.
type Task struct {
	// TaskRequest is what was asked for. ID names the task.
	TaskRequest
	ID string
	// StartedBy is the id of the token that started it, if there are tokens. EndedAt is zero until
	// the task has ended.
	StartedBy          string
	StartedAt, EndedAt time.Time
	// Searched counts the jobs that it has looked at, and Matched those that it selected. Changed
	// counts those that it acted on; Skipped those that were in another state by then.
	Searched, Matched, Changed, Skipped int
	// Stopping says that it was asked to end. Trouble is why it does not go on at the moment, or
	// why it ended early.
	Stopping bool
	Trouble  string
}

const taskActPrefix = "TASK_ACT_"

// StartTask begins a task. It goes on after the loss of a node and after restarts of all nodes. It
// is not atomic: a job that comes to match while it runs may be acted on, too.
//
// Errors: Reason("QUEUE_NOT_FOUND"), Reason("QUOTA") if too many tasks run.
func (c Client) StartTask(ctx context.Context, r TaskRequest) (Task, error) {
	act, known := belfryv1.TaskAct_value[taskActPrefix+r.Act]
	state, ok := values.StateNumber(r.Jobs.State)
	if !known || !ok || r.Max < 0 || r.PerSecond < 0 || int64(r.PerSecond) > 1e6 {
		return Task{}, c.refusal("TaskRequest: there is no act %q or state %q, or Max or PerSecond is out of range",
			r.Act, r.Jobs.State)
	}
	if r.Jobs.State == "" {
		state = belfryv1.JobState_JOB_STATE_DELAYED // as in a list
	}
	req := &belfryv1.StartTaskRequest{
		Queue: r.Queue, Act: belfryv1.TaskAct(act), State: state, DueAfter: values.Timestamp(r.Jobs.DueAfter),
		DueBefore: values.Timestamp(r.Jobs.DueBefore), Text: r.Jobs.Text, IdPrefix: r.Jobs.IDPrefix, Cause: r.Jobs.Cause,
		Force: r.Force, Max: uint64(r.Max), PerSecond: uint32(r.PerSecond),
	}
	switch {
	case !r.DueAt.IsZero():
		req.When = &belfryv1.StartTaskRequest_DueAt{DueAt: timestamppb.New(r.DueAt)}
	case req.GetAct() == belfryv1.TaskAct_TASK_ACT_RESCHEDULE:
		req.When = &belfryv1.StartTaskRequest_Delay{Delay: &durationpb.Duration{}}
	}
	res, err := calls.Change(ctx, c.service, &req.RequestId, calls.Of(methods.StartTask, req))
	return taskOf(res.GetTask()), err
}

// Task reads a task: how far it has come, as the answering node has heard in the last second.
//
// Errors: Reason("INVALID") if there is no such task. The cluster remembers the last 200 that ended.
func (c Client) Task(ctx context.Context, id string) (Task, error) {
	req := &belfryv1.GetTaskRequest{Id: id}
	res, err := calls.Read(ctx, c.service, calls.Of(methods.GetTask, req))
	return taskOf(res.GetTask()), err
}

// Tasks reads the tasks of a queue, newest first; those of all queues if queue is empty.
func (c Client) Tasks(ctx context.Context, queue string) ([]Task, error) {
	req := &belfryv1.ListTasksRequest{Queue: queue}
	res, err := calls.Read(ctx, c.service, calls.Of(methods.ListTasks, req))
	return values.Each(res.GetTasks(), taskOf), err
}

// StopTask asks a task to end where it is. What was done stays done. It is safe to repeat.
//
// Errors: Reason("INVALID") if there is no such task.
func (c Client) StopTask(ctx context.Context, id string) (Task, error) {
	req := &belfryv1.StopTaskRequest{Id: id}
	res, err := calls.Set(ctx, c.service, calls.Of(methods.StopTask, req))
	return taskOf(res.GetTask()), err
}

// taskPolls is the time between two looks at a task, and taskUnheard how long a node may take to
// hear of it.
const taskPolls, taskUnheard = 200 * time.Millisecond, 5 * time.Second

// WaitTask waits until a task has ended. The end of ctx does not end the task.
func (c Client) WaitTask(ctx context.Context, id string) (Task, error) {
	tick := time.NewTicker(taskPolls)
	defer tick.Stop()
	read := calls.Of(methods.GetTask, &belfryv1.GetTaskRequest{Id: id})
	for heard := time.Now(); ; {
		res, err := calls.Try(ctx, c.service, calls.Kind{Reads: true}, read)
		t := taskOf(res.GetTask())
		switch {
		case err == nil && !t.EndedAt.IsZero():
			return t, nil
		case err == nil:
			heard = time.Now()
		case err.Reason != failure.Invalid || time.Since(heard) > taskUnheard:
			return t, c.service.Public(err)
		}
		select {
		case <-ctx.Done():
			return t, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// taskOf reads a task off the wire.
func taskOf(t *belfryv1.Task) Task {
	if t == nil {
		return Task{}
	}
	return Task{
		TaskRequest: TaskRequest{
			Act: strings.TrimPrefix(t.Act.String(), taskActPrefix), Queue: t.Queue,
			DueAt: values.TimeOf(t.DueAt), Force: t.Force,
			Jobs: Selection{
				State: values.StateOf(t.State), DueAfter: values.TimeOf(t.DueAfter), DueBefore: values.TimeOf(t.DueBefore),
				Text: t.Text, IDPrefix: t.IdPrefix, Cause: t.Cause,
			}, Max: int(t.Max), PerSecond: int(t.PerSecond), //nolint:gosec // numbers of jobs
		},
		ID: t.Id, StartedBy: t.StartedBy, StartedAt: values.TimeOf(t.StartedAt), EndedAt: values.TimeOf(t.EndedAt),
		Searched: int(t.Searched), Matched: int(t.Matched), Changed: int(t.Changed), //nolint:gosec // as above
		Skipped: int(t.Skipped), Stopping: t.Stopping, Trouble: t.Trouble, //nolint:gosec // as above
	}
}
