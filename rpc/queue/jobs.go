package queue

import (
	"context"
	"strconv"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// The methods of QueueService that name a job by its id, or many jobs of a queue.

// Cancel implements belfryv1connect.QueueServiceHandler.
func (s *Service) Cancel(ctx context.Context, req *belfryv1.CancelRequest) (*belfryv1.CancelResponse, error) {
	c := s.rules.Request(ctx, tokens.Put)
	cancel := &fsm.Cancel{Queue: c.Queue("queue", req.GetQueue()), ID: c.JobID("id", req.GetId()), Force: req.GetForce()}
	a, err := s.onJob(ctx, c, cancel.Queue, cancel.ID, c.RequestID(req.GetRequestId()), cancel)
	if err != nil {
		return nil, err
	}
	return &belfryv1.CancelResponse{State: wire.State(a.Result.State), Witness: a.Witness()}, nil
}

// Reschedule implements belfryv1connect.QueueServiceHandler.
func (s *Service) Reschedule(ctx context.Context,
	req *belfryv1.RescheduleRequest) (*belfryv1.RescheduleResponse, error) {
	c := s.rules.Request(ctx, tokens.Put)
	reschedule := &fsm.Reschedule{Queue: c.Queue("queue", req.GetQueue()), ID: c.JobID("id", req.GetId())}
	if req.GetWhen() == nil {
		c.Fail(fault.Invalid("delay", "delay or dueAt is required"))
	}
	reschedule.Delay, reschedule.DueAt, reschedule.Given = c.When(req.GetDelay(), req.GetDueAt(), 0)
	a, err := s.onJob(ctx, c, reschedule.Queue, reschedule.ID, c.RequestID(req.GetRequestId()), reschedule)
	if err != nil {
		return nil, err
	}
	return &belfryv1.RescheduleResponse{
		DueAt: wire.CeilTime(a.Result.Due), State: wire.State(a.Result.State), Witness: a.Witness(),
	}, nil
}

// onJobIn is onJob for the partitions that this node knows.
func (s *Service) onJobIn(ctx context.Context, queue, id, requestID string,
	command fsm.Command) (shardcall.Answer, error) {
	partition, ok := s.router.PartitionOfJob(queue, id)
	if !ok {
		return shardcall.Answer{}, fault.New(belfryv1.Reason_REASON_JOB_NOT_FOUND)
	}
	a := s.router.Propose(ctx, s.router.Shard(queue, partition), requestID, command)
	if a.Fault != nil {
		return shardcall.Answer{}, a.Fault
	}
	return a, nil
}

// get is Get for the partitions that this node knows.
func (s *Service) get(ctx context.Context, req *belfryv1.GetRequest) (*belfryv1.GetResponse, error) {
	c := s.rules.Request(ctx, tokens.Consume)
	queue, id := c.Queue("queue", req.GetQueue()), c.JobID("id", req.GetId())
	if c.Err != nil {
		return nil, c.Err
	}
	partition, ok := s.router.PartitionOfJob(queue, id)
	if !ok {
		return nil, fault.New(belfryv1.Reason_REASON_JOB_NOT_FOUND)
	}
	shard := s.router.Shard(queue, partition)
	r, witness, err := shardcall.Reader{
		Router: s.router, Stale: req.GetStale(),
	}.Read(ctx, shard, &fsm.JobQuery{Queue: queue, ID: id, Ended: true})
	if err != nil {
		return nil, s.router.FaultAt(shard, err)
	}
	if len(r.Jobs) == 0 || !r.Jobs[0].State.Held() && !req.GetEnded() {
		f := fault.New(belfryv1.Reason_REASON_JOB_NOT_FOUND)
		if f.Shard = &shard; len(r.Jobs) > 0 {
			f.State, f.Message = r.Jobs[0].State, "the job has ended: it is "+endText(&r.Jobs[0])
		}
		return nil, f
	}
	return &belfryv1.GetResponse{
		Job: wire.AppendJobs(nil, r.Jobs, r)[0], Witness: wire.Witness(witness), Stale: req.GetStale(),
		AsOf: shardcall.AsOf(r),
	}, nil
}

// Redrive implements belfryv1connect.QueueServiceHandler.
func (s *Service) Redrive(ctx context.Context, req *belfryv1.RedriveRequest) (*belfryv1.RedriveResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	queue, requestID := c.Queue("queue", req.GetQueue()), c.RequestID(req.GetRequestId())
	most := c.Count("max", req.GetMax(), 0, redriveMax)
	switch {
	case len(req.GetIds()) > 0 && req.GetMax() > 0:
		c.Fail(fault.Invalid("max", "give either ids or max"))
	case len(req.GetIds()) == 0 && req.GetMax() == 0:
		c.Fail(fault.Invalid("ids", "ids or max is required; the limit is %d ids, or max up to %d",
			s.rules.Limits.BatchJobsMax, redriveMax))
	case len(req.GetIds()) > 0:
		c.Entries("ids", len(req.GetIds()), s.rules.Limits.BatchJobsMax)
		for i, id := range req.GetIds() {
			c.JobID(fault.Indexed("ids", i), id)
		}
	}
	if c.Err != nil {
		return nil, c.Err
	}
	if err := (shardcall.Reader{Router: s.router}).Learn(ctx, queue); err != nil {
		return nil, err
	}
	if len(req.GetIds()) > 0 {
		return s.redriveIDs(ctx, queue, requestID, req.GetIds())
	}
	return s.redriveMany(ctx, queue, requestID, most)
}

// redriveMax bounds the jobs of one Redrive without ids.
const redriveMax = 100_000

// redriveIDs redrives the jobs named.
func (s *Service) redriveIDs(ctx context.Context, queue, requestID string,
	ids []string) (*belfryv1.RedriveResponse, error) {
	byPartition := make([][]string, s.router.Partitions(queue))
	for _, id := range ids {
		if partition, ok := s.router.PartitionOfJob(queue, id); ok {
			byPartition[partition] = append(byPartition[partition], id)
		}
	}
	var commands []shardcall.Command
	for partition, part := range byPartition {
		if len(part) > 0 {
			commands = append(commands, shardcall.Command{
				Shard: s.router.Shard(queue, uint32(partition)), Position: len(commands),
				Command: &fsm.Redrive{Queue: queue, IDs: part},
			})
		}
	}
	if len(commands) == 0 {
		return nil, fault.New(belfryv1.Reason_REASON_JOB_NOT_FOUND)
	}
	answers := make([]shardcall.Answer, len(commands))
	s.router.ProposeRouted(ctx, requestID, commands, shardcall.ByNamespace, answers)
	out := &belfryv1.RedriveResponse{}
	if err := sumRedriven(out, answers); err != nil {
		return nil, err
	}
	if len(ids) == 1 && out.GetMoved() == 0 {
		return nil, fault.New(belfryv1.Reason_REASON_JOB_NOT_FOUND)
	}
	return out, nil
}

// redriveMany redrives up to most jobs, one partition and one step after another. So the number is
// exact.
func (s *Service) redriveMany(ctx context.Context, queue, requestID string,
	most uint32) (*belfryv1.RedriveResponse, error) {
	done, err := s.router.InShards(ctx, s.router.Shards(queue), requestID, uint64(most), func(most uint32) fsm.Command {
		return &fsm.Redrive{Queue: queue, Max: most}
	})
	if err != nil {
		return nil, err
	}
	return &belfryv1.RedriveResponse{Moved: wire.Count(done.Count), Witnesses: done.Witnesses}, nil
}

// sumRedriven sums up answers in out. If one failed, the fault says how many jobs the others moved.
func sumRedriven(out *belfryv1.RedriveResponse, answers []shardcall.Answer) error {
	var moved uint64
	var failed *fault.Error
	for i := range answers {
		if answers[i].Fault != nil {
			failed = answers[i].Fault
			continue
		}
		moved += answers[i].Result.Count
		if w := answers[i].Witness(); w != nil {
			out.Witnesses = append(out.Witnesses, w)
		}
	}
	if failed != nil {
		return shardcall.Partly(failed, moved)
	}
	out.Moved = wire.Count(moved)
	return nil
}

// endText says how and when a job ended, and after how many attempts if that is known.
func endText(job *fsm.Job) string {
	text := fault.StateName(job.State) + " since " + timeText(job.Ended)
	switch {
	case job.AttemptUnknown:
		return text
	case job.Attempt == 1:
		return text + ", after 1 attempt"
	default:
		return text + ", after " + strconv.FormatUint(uint64(job.Attempt), 10) + " attempts"
	}
}

// Get implements belfryv1connect.QueueServiceHandler.
func (s *Service) Get(ctx context.Context, req *belfryv1.GetRequest) (*belfryv1.GetResponse, error) {
	return shardcall.FindAgain(ctx, shardcall.Reader{
		Router: s.router, Stale: req.GetStale(),
	}, req.GetQueue(), func() (*belfryv1.GetResponse, error) {
		return s.get(ctx, req)
	})
}

// onJob proposes a command to the shard of a job.
func (s *Service) onJob(ctx context.Context, c *check.Request, queue, id, requestID string,
	command fsm.Command) (shardcall.Answer, error) {
	if c.Err != nil {
		return shardcall.Answer{}, c.Err
	}
	return shardcall.FindAgain(ctx, shardcall.Reader{Router: s.router}, queue, func() (shardcall.Answer, error) {
		return s.onJobIn(ctx, queue, id, requestID, command)
	})
}
