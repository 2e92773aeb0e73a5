package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// taskBatch is how many jobs a producer of the workload tasks puts at once: tasks need heaps of jobs.
	taskBatch = 15
	// taskLife is how long an operator follows a task until it stops it: fewer run than may.
	taskLife = 15 * time.Second
)

// taskQueues are the queues on which tasks act: of one partition, and of three.
func taskQueues() []string { return []string{"tasks/one", "tasks/wide"} }

// tasks has operators act on all jobs that match, while jobs come, fail and die, and while others act
// on single jobs.
func tasks() Workload {
	queues := taskQueues()
	return Workload{
		Name: "tasks", What: "acts on all jobs that match, some bounded, slow or stopped, beside acts on single jobs",
		Queues: queues,
		Prepare: func(ctx context.Context, c *Client) error {
			return c.ensureQueue(ctx, queues[1], 3)
		},
		Roles: []Role{
			{"producer", 2, func(ctx context.Context, c *Client) {
				batch := &belfryv1.PutBatchRequest{RequestId: c.requestID()}
				queue := queues[c.Rand.IntN(len(queues))]
				for range 1 + c.Rand.IntN(taskBatch) {
					batch.Jobs = append(batch.Jobs, c.newTaskJob(queue))
				}
				c.putBatch(ctx, batch)
				pause(ctx, c.between(0, 500*time.Millisecond))
			}},
			{"consumer", 2, func(ctx context.Context, c *Client) {
				for _, j := range c.take(ctx, 12, queues[c.Rand.IntN(len(queues))]) {
					c.failTaskJob(ctx, j)
				}
			}},
			{"operator", 4, func(ctx context.Context, c *Client) { c.runTask(ctx, c.newTask(queues)) }},
			{"clerk", 1, func(ctx context.Context, c *Client) {
				c.actOnOne(ctx, queues[c.Rand.IntN(len(queues))])
				pause(ctx, c.between(0, 300*time.Millisecond))
			}},
		},
	}
}

// taskPrefix returns the beginning of ids by which tasks tell jobs apart.
func (c *Client) taskPrefix() string { return [...]string{"a-", "b-", "c-"}[c.Rand.IntN(3)] }

// taskError returns one of a few errors, of which some have a cause in common.
func (c *Client) taskError() string {
	return [...]string{"no route to host 7", "no route to host 8", "the card was refused"}[c.Rand.IntN(3)]
}

// newTaskJob returns a put of a job that soon dies or waits for a while.
func (c *Client) newTaskJob(queue string) *belfryv1.PutRequest {
	r := &belfryv1.PutRequest{
		Queue: queue, Body: &belfryv1.PutRequest_Data{Data: c.body(30)}, Ttr: durationpb.New(c.between(2*time.Second,
			5*time.Second)),
		MaxAttempts: proto.Uint32(uint32(1 + c.Rand.IntN(3))),
		RetryDelays: []*durationpb.Duration{durationpb.New(c.between(0, 4*time.Second))},
	}
	if !c.oneIn(5) {
		r.Id = c.taskPrefix() + c.Name + "-" + c.random()
	}
	if c.oneIn(2) {
		r.When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(c.between(time.Second, 20*time.Second))}
	}
	if c.oneIn(4) {
		r.Priority = proto.Int64(int64(c.Rand.IntN(3) - 1))
	}
	return r
}

// failTaskJob has most jobs die, and some wait for another attempt.
func (c *Client) failTaskJob(ctx context.Context, j *belfryv1.Job) {
	switch c.Rand.IntN(8) {
	case 0:
		c.ack(ctx, j.GetLease())
	case 1:
		c.release(ctx, j.GetLease(), c.between(0, 2*time.Second))
	case 2: // the lease lapses
	case 3, 4, 5:
		c.nack(ctx, &belfryv1.NackRequest{Lease: j.GetLease(), Error: c.taskError(), Dead: true, RequestId: c.requestID()})
	default:
		c.nack(ctx, &belfryv1.NackRequest{Lease: j.GetLease(), Error: c.taskError(), RequestId: c.requestID()})
	}
}

// newTask returns a task of any kind. Its id comes from the request id, so that a repeat is known
// whatever became of the first call.
func (c *Client) newTask(queues []string) *belfryv1.StartTaskRequest {
	r := &belfryv1.StartTaskRequest{Queue: queues[c.Rand.IntN(len(queues))], RequestId: c.requestID()}
	switch c.Rand.IntN(8) {
	case 0:
		r.Act, r.State = belfryv1.TaskAct_TASK_ACT_COUNT, belfryv1.JobState(1+c.Rand.IntN(4))
	case 1, 2, 3:
		r.Act, r.State = belfryv1.TaskAct_TASK_ACT_REDRIVE, belfryv1.JobState_JOB_STATE_DEAD
	case 4:
		r.Act, r.State = belfryv1.TaskAct_TASK_ACT_CANCEL, belfryv1.JobState(1+c.Rand.IntN(4))
		r.Force = r.GetState() == belfryv1.JobState_JOB_STATE_RESERVED || c.oneIn(3)
	default:
		r.Act, r.State = belfryv1.TaskAct_TASK_ACT_RESCHEDULE, belfryv1.JobState_JOB_STATE_DELAYED
		delay := time.Duration(0)
		if c.oneIn(2) {
			delay = c.between(time.Second, 10*time.Second)
			r.State = [...]belfryv1.JobState{r.GetState(), belfryv1.JobState_JOB_STATE_READY}[c.Rand.IntN(2)]
		}
		r.When = &belfryv1.StartTaskRequest_Delay{Delay: durationpb.New(delay)}
		if delay > 0 && c.oneIn(2) {
			r.When = &belfryv1.StartTaskRequest_DueAt{DueAt: timestamppb.New(time.Now().Add(delay))}
		}
	}
	c.narrow(r)
	if !c.oneIn(4) { // slow enough that faults strike in the middle
		r.PerSecond = 5 + c.Rand.Uint32N(35)
	}
	if c.oneIn(4) {
		r.Max = 1 + c.Rand.Uint64N(40)
	}
	return r
}

// narrow has a task act on some jobs only.
func (c *Client) narrow(r *belfryv1.StartTaskRequest) {
	switch c.Rand.IntN(6) {
	case 0:
		r.IdPrefix = c.taskPrefix()
	case 1:
		r.Cause = "the card was refused"
	case 2:
		r.Text = fmt.Sprintf("tasks-producer-%d/", 1+c.Rand.IntN(2)) // which is in bodies
	case 3:
		r.DueAfter = timestamppb.New(time.Now().Add(c.between(-20*time.Second, 5*time.Second)))
	case 4:
		r.DueBefore = timestamppb.New(time.Now().Add(c.between(-10*time.Second, 15*time.Second)))
	}
}

// runTask starts a task until it is known whether it runs, follows it for a while, and stops some.
func (c *Client) runTask(ctx context.Context, r *belfryv1.StartTaskRequest) {
	var task *belfryv1.Task
	c.insist(ctx, func() *history.Op {
		answer, o := c.startTask(ctx, r)
		if o.OK() {
			task = answer.GetTask()
		}
		return o
	})
	if task == nil {
		return
	}
	until := time.Now().Add(taskLife)
	if c.oneIn(2) {
		until = time.Now().Add(c.between(0, 5*time.Second))
	}
	for time.Now().Before(until) {
		if c.oneIn(3) {
			c.switchNode()
		}
		answer, o := c.getTask(ctx, task.GetId())
		ended := o.OK() && answer.GetTask().GetEndedAt() != nil
		if ended || !pause(ctx, c.between(50*time.Millisecond, 400*time.Millisecond)) {
			return
		}
	}
	c.insist(ctx, func() *history.Op { return c.stopTask(ctx, task.GetId()) })
	pause(ctx, c.between(0, time.Second))
	c.getTask(ctx, task.GetId())
}

// actOnOne does to a single job what tasks do to many.
func (c *Client) actOnOne(ctx context.Context, queue string) {
	state := belfryv1.JobState(1 + c.Rand.IntN(4))
	found, _ := c.list(ctx, &belfryv1.ListRequest{Queue: queue, State: state, PageSize: 5})
	if len(found.GetJobs()) == 0 {
		return
	}
	id := found.GetJobs()[c.Rand.IntN(len(found.GetJobs()))].GetId()
	switch {
	case c.oneIn(4):
		c.cancel(ctx, &belfryv1.CancelRequest{Queue: queue, Id: id, Force: c.oneIn(2), RequestId: c.requestID()})
	case state == belfryv1.JobState_JOB_STATE_DEAD:
		c.redrive(ctx, &belfryv1.RedriveRequest{Queue: queue, Ids: []string{id}, RequestId: c.requestID()})
	default:
		c.reschedule(ctx, &belfryv1.RescheduleRequest{Queue: queue, Id: id, RequestId: c.requestID(),
			When: &belfryv1.RescheduleRequest_Delay{Delay: durationpb.New(c.between(0, 8*time.Second))}})
	}
}

// TasksEnd asks every node for the tasks until each says that all have ended. It returns an error if
// one does not within limit.
func TasksEnd(ctx context.Context, target Target, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, node := range target.Nodes() {
		c, err := NewClient(target, Drain, "tasks-end-"+node, 0)
		if err != nil {
			return err
		}
		defer c.Close()
		for said := "nothing"; ; {
			c.Ask(node)
			answer, o := c.listTasks(ctx, "")
			running := slices.Clone(answer.GetTasks()) // the history keeps the answer
			running = slices.DeleteFunc(running, func(t *belfryv1.Task) bool { return t.GetEndedAt() != nil })
			if o.OK() && len(running) == 0 {
				break
			}
			if o.OK() {
				said = fmt.Sprintf("that %d tasks go on", len(running))
			}
			if !pause(ctx, 100*time.Millisecond) {
				return fmt.Errorf("after %v %s says %s: %s", limit, node, said, o.Message)
			}
		}
	}
	return nil
}
