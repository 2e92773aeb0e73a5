package queue

import (
	"context"
	"slices"
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
	job := named{c.Queue("queue", req.GetQueue()), c.JobID("id", req.GetId()), c.Key("key", req.GetKey())}
	a, err := s.onJob(ctx, c, job, c.RequestID(req.GetRequestId()),
		&fsm.Cancel{Queue: job.queue, ID: job.id, Key: job.key, Force: req.GetForce()})
	if err != nil {
		return nil, err
	}
	return &belfryv1.CancelResponse{State: wire.State(a.Result.State), Witness: a.Witness()}, nil
}

// Reschedule implements belfryv1connect.QueueServiceHandler.
func (s *Service) Reschedule(ctx context.Context,
	req *belfryv1.RescheduleRequest) (*belfryv1.RescheduleResponse, error) {
	c := s.rules.Request(ctx, tokens.Put)
	job := named{c.Queue("queue", req.GetQueue()), c.JobID("id", req.GetId()), c.Key("key", req.GetKey())}
	reschedule := &fsm.Reschedule{Queue: job.queue, ID: job.id, Key: job.key}
	if req.GetWhen() == nil {
		c.Fail(fault.Invalid("delay", "delay or dueAt is required"))
	}
	reschedule.Delay, reschedule.DueAt, reschedule.Given = c.When(req.GetDelay(), req.GetDueAt(), 0)
	a, err := s.onJob(ctx, c, job, c.RequestID(req.GetRequestId()), reschedule)
	if err != nil {
		return nil, err
	}
	return &belfryv1.RescheduleResponse{
		DueAt: wire.CeilTime(a.Result.Due), State: wire.State(a.Result.State), Witness: a.Witness(),
	}, nil
}

// get is Get for the partitions that this node knows.
func (s *Service) get(ctx context.Context, req *belfryv1.GetRequest) (*belfryv1.GetResponse, error) {
	c := s.rules.Request(ctx, tokens.Consume)
	job := named{c.Queue("queue", req.GetQueue()), c.JobID("id", req.GetId()), c.Key("key", req.GetKey())}
	if c.Err != nil {
		return nil, c.Err
	}
	r, err := s.readJob(ctx, shardcall.Reader{Router: s.router, Stale: req.GetStale()}, job)
	if err != nil {
		return nil, err
	}
	if !r.holds() && (r.job == nil || !req.GetEnded()) {
		return nil, missing(r.shard, r.job)
	}
	return &belfryv1.GetResponse{
		Job: wire.AppendJobs(nil, []fsm.Job{*r.job}, r.reading)[0], Witness: r.witness, Stale: req.GetStale(),
		AsOf: shardcall.AsOf(r.reading),
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

// redriveIDs redrives the jobs named. If some are not in the partitions of their ids, it tries all
// other partitions: a job with a key may be in any. The second round has a request id of its own, and
// a repeat makes it if the first attempt did, since the first round is answered from memory.
func (s *Service) redriveIDs(ctx context.Context, queue, requestID string,
	ids []string) (*belfryv1.RedriveResponse, error) {
	home, others := s.idsByPartition(queue, ids)
	answers := s.redriveParts(ctx, queue, requestID, home)
	var moved uint64
	for i := range answers {
		if answers[i].Fault == nil {
			moved += answers[i].Result.Count
		}
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(ids))); !shardcall.AnyFault(answers) &&
		moved < uint64(len(distinct)) {
		if requestID != "" {
			requestID += "#/others"
		}
		answers = append(answers, s.redriveParts(ctx, queue, requestID, others)...)
	}
	out := &belfryv1.RedriveResponse{}
	if err := sumRedriven(out, answers); err != nil {
		return nil, err
	}
	if len(ids) == 1 && out.GetMoved() == 0 {
		return nil, fault.New(belfryv1.Reason_REASON_JOB_NOT_FOUND)
	}
	return out, nil
}

// idsByPartition returns the partition of each id, and for each partition the ids that may belong to
// one of its jobs all the same.
func (s *Service) idsByPartition(queue string, ids []string) (home, others [][]string) {
	partitions := s.router.Partitions(queue)
	home, others = make([][]string, partitions), make([][]string, partitions)
	for _, id := range ids {
		first, more, ok := s.router.PartitionsOfJob(queue, id, "")
		if !ok {
			continue
		}
		home[first] = append(home[first], id)
		for _, p := range more {
			others[p] = append(others[p], id)
		}
	}
	return home, others
}

// redriveParts redrives jobs by their partitions.
func (s *Service) redriveParts(ctx context.Context, queue, requestID string, ids [][]string) []shardcall.Answer {
	var commands []shardcall.Command
	for partition, part := range ids {
		if len(part) > 0 {
			commands = append(commands, shardcall.Command{
				Shard: s.router.Shard(queue, uint32(partition)), Position: len(commands),
				Command: &fsm.Redrive{Queue: queue, IDs: part},
			})
		}
	}
	answers := make([]shardcall.Answer, len(commands))
	s.router.ProposeRouted(ctx, requestID, commands, shardcall.ByNamespace, answers)
	return answers
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
	text := fault.StateName(job.State) + " since " + timeText(job.End.At)
	switch {
	case job.End.AttemptUnknown:
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
func (s *Service) onJob(ctx context.Context, c *check.Request, job named, requestID string,
	command fsm.Command) (shardcall.Answer, error) {
	if c.Err != nil {
		return shardcall.Answer{}, c.Err
	}
	return shardcall.FindAgain(ctx, shardcall.Reader{Router: s.router}, job.queue, func() (shardcall.Answer, error) {
		return s.onJobIn(ctx, job, requestID, command)
	})
}
