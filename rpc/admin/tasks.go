package admin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/bulk"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// acts are the acts of tasks and their names in the API.
func acts() map[belfryv1.TaskAct]bulk.Act {
	return map[belfryv1.TaskAct]bulk.Act{
		belfryv1.TaskAct_TASK_ACT_COUNT: bulk.Count, belfryv1.TaskAct_TASK_ACT_REDRIVE: bulk.Redrive,
		belfryv1.TaskAct_TASK_ACT_CANCEL: bulk.Cancel, belfryv1.TaskAct_TASK_ACT_RESCHEDULE: bulk.Reschedule,
	}
}

// perSecondMax bounds the rate of a task, which is then as fast as shards can be.
const perSecondMax = 1_000_000

// StartTask implements AdminService.
func (s *Service) StartTask(ctx context.Context,
	req *belfryv1.StartTaskRequest) (*belfryv1.StartTaskResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	t := taskOf(c, req)
	if c.Err != nil {
		return nil, c.Err
	}
	from := shardcall.Reader{Router: s.router}
	if err := from.Learn(ctx, t.Queue); err != nil {
		return nil, err
	}
	readings, _, err := from.ReadAll(ctx, s.router.Shards(t.Queue), func(int) fsm.Query {
		return &fsm.QueueQuery{Queue: t.Queue}
	})
	if err != nil {
		return nil, err
	}
	if len(queueParts(readings)) == 0 {
		return nil, fault.New(belfryv1.Reason_REASON_QUEUE_NOT_FOUND)
	}
	begun := fsm.Time(0)
	for i := range readings { // the times of jobs are by these clocks, which may be ahead of this node's
		begun = max(begun, readings[i].Now)
	}
	t.Created = int64(begun)
	if t.Delay > 0 {
		t.Due = begun.After(t.Delay)
	}
	if err := s.router.Catalog.StartTask(ctx, t); err != nil {
		return nil, err
	}
	started, f := s.task(t.ID)
	if f != nil {
		return nil, f
	}
	return &belfryv1.StartTaskResponse{Task: wireTask(started)}, nil
}

// taskOf checks a request for a task.
func taskOf(c *check.Request, req *belfryv1.StartTaskRequest) bulk.Task {
	match := c.Match(req.GetIdPrefix(), req.GetText(), req.GetCause(), "")
	t := bulk.Task{
		Queue: c.Queue("queue", req.GetQueue()), State: fsm.Delayed,
		DueAfter: c.ListTime("dueAfter", req.GetDueAfter()), DueBefore: c.ListTime("dueBefore", req.GetDueBefore()),
		IDPrefix: match.IDPrefix, Text: match.Text, Cause: match.Cause,
		Act: acts()[req.GetAct()], Force: req.GetForce(), Most: req.GetMax(),
		PerSecond: c.Count("perSecond", req.GetPerSecond(), 0, perSecondMax),
	}
	if c.Permissions != nil {
		t.By = c.Permissions.Caller
	}
	state, ok := wire.HeldState(req.GetState())
	if !ok {
		c.Fail(fault.Invalid("state", "want one of DELAYED, READY, RESERVED, DEAD, not %s",
			codec.QuotedEnum(req.GetState())))
	}
	t.State = state
	if t.Act == "" {
		c.Fail(fault.Invalid("act", "want one of COUNT, REDRIVE, CANCEL, RESCHEDULE, not %s",
			codec.QuotedEnum(req.GetAct())))
	}
	t.Due, t.Delay = newDue(c, req, t.Act)
	requestID := c.RequestID(req.GetRequestId())
	if t.ID = rand.Text(); requestID != "" {
		sum := sha256.Sum256([]byte(fsm.NamespaceOf(t.Queue) + "/" + requestID))
		t.ID = hex.EncodeToString(sum[:13])
	}
	if c.Err == nil {
		c.Err = taskFault(&t)
	}
	return t
}

// newDue returns the due time that a task gives to jobs, or its delay from when the task begins. Both
// are 0 for at once.
func newDue(c *check.Request, req *belfryv1.StartTaskRequest, act bulk.Act) (fsm.Time, time.Duration) {
	delay, due, given := c.When(req.GetDelay(), req.GetDueAt(), 0)
	switch {
	case act != bulk.Reschedule && given != 0:
		c.Fail(fault.Invalid("delay", "only a task that reschedules jobs has a delay or dueAt"))
	case act == bulk.Reschedule && given == 0:
		c.Fail(fault.Invalid("delay", "delay or dueAt is required"))
	case delay > 0:
		return 0, delay
	}
	return due, 0
}

// taskFault returns what is wrong with a task as a whole.
func taskFault(t *bulk.Task) *fault.Error {
	switch {
	case t.Force && t.Act != bulk.Cancel:
		return fault.Invalid("force", "only a task that cancels jobs has force")
	case errors.Is(t.Check(), bulk.ErrState):
		return fault.Invalid("state", "a task to %s acts on DEAD jobs to redrive them, on DELAYED jobs to reschedule them, "+
			"on READY ones too if it has a due time, and on RESERVED ones only to cancel them with force", t.Act)
	}
	return nil
}

// task returns a task as this node knows it.
func (s *Service) task(id string) (*bulk.Task, *fault.Error) {
	all := s.router.Catalog.Tasks()
	i := slices.IndexFunc(all, func(t bulk.Task) bool { return t.ID == id })
	if i < 0 {
		return nil, fault.Invalid("id", "there is no task %s, or not any more", fault.Quote([]byte(id)))
	}
	return &all[i], nil
}

// allowedTask is task for a caller that administers its queue. To others it does not say that there is
// one.
func (s *Service) allowedTask(c *check.Request, id string) (*bulk.Task, *fault.Error) {
	if c.Err != nil {
		return nil, c.Err
	}
	t, f := s.task(id)
	if f == nil && !c.Permissions.Allows(t.Queue) {
		return nil, fault.Invalid("id", "there is no task %s, or not any more", fault.Quote([]byte(id)))
	}
	return t, f
}

// GetTask implements AdminService.
func (s *Service) GetTask(ctx context.Context, req *belfryv1.GetTaskRequest) (*belfryv1.GetTaskResponse, error) {
	t, f := s.allowedTask(s.rules.Request(ctx, tokens.Admin), req.GetId())
	if f != nil {
		return nil, f
	}
	return &belfryv1.GetTaskResponse{Task: wireTask(t)}, nil
}

// ListTasks implements AdminService.
func (s *Service) ListTasks(ctx context.Context,
	req *belfryv1.ListTasksRequest) (*belfryv1.ListTasksResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	if req.GetQueue() != "" {
		c.Queue("queue", req.GetQueue())
	}
	if c.Err != nil {
		return nil, c.Err
	}
	out := &belfryv1.ListTasksResponse{}
	all := s.router.Catalog.Tasks()
	for i := range slices.Backward(all) {
		t := &all[i]
		if c.Permissions.Allows(t.Queue) && (req.GetQueue() == "" || req.GetQueue() == t.Queue) {
			out.Tasks = append(out.Tasks, wireTask(t))
		}
	}
	return out, nil
}

// StopTask implements AdminService.
func (s *Service) StopTask(ctx context.Context, req *belfryv1.StopTaskRequest) (*belfryv1.StopTaskResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	t, f := s.allowedTask(c, req.GetId())
	if f != nil {
		return nil, f
	}
	if err := s.router.Catalog.StopTask(ctx, t.ID); err != nil {
		return nil, err
	}
	if t, f = s.task(t.ID); f != nil {
		return nil, f
	}
	return &belfryv1.StopTaskResponse{Task: wireTask(t)}, nil
}

func wireTask(t *bulk.Task) *belfryv1.Task {
	p := &t.Progress
	out := &belfryv1.Task{
		Id: t.ID, Queue: t.Queue, State: wire.State(t.State), DueAfter: wire.ExactTime(t.DueAfter),
		DueBefore: wire.ExactTime(t.DueBefore), IdPrefix: t.IDPrefix, Text: t.Text, Cause: t.Cause,
		DueAt: wire.CeilTime(t.Due), Force: t.Force, Max: t.Most, PerSecond: t.PerSecond, StartedBy: t.By,
		StartedAt: timestamppb.New(time.Unix(0, t.Created)), Stopping: t.Stop, Searched: p.Searched, Matched: p.Matched,
		Changed: p.Changed, Skipped: p.Skipped, Trouble: p.Trouble,
	}
	for act, is := range acts() {
		if is == t.Act {
			out.Act = act
		}
	}
	if !t.Running() {
		out.EndedAt = timestamppb.New(time.Unix(0, p.Ended))
	}
	return out
}
