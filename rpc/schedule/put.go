package schedule

import (
	"bytes"
	"context"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/cron"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// PutSchedule implements belfryv1connect.ScheduleServiceHandler.
func (s *Service) PutSchedule(ctx context.Context,
	req *belfryv1.PutScheduleRequest) (*belfryv1.PutScheduleResponse, error) {
	c := s.onQueue(ctx, tokens.Admin, req.GetQueue())
	put := &fsm.PutSchedule{
		Queue: c.Queue("queue", req.GetQueue()), Name: req.GetName(), IfVersion: req.GetIfVersion(),
	}
	requestID := c.RequestID(req.GetRequestId())
	if c.Err != nil {
		return nil, c.Err
	}
	p := problems{request: c}
	p.part(func(c *check.Request) { checkName(c, "name", put.Name) })
	rule := s.content(&p, req, put)
	if p.fail(); c.Err != nil {
		return nil, c.Err
	}
	calendar, err := s.calendars.Of(put.Name, &put.Spec)
	if err != nil {
		return nil, specFault(err)
	}
	put.NextAfter = fsm.Time(c.Now.UnixNano())
	put.Next, put.ZoneData = calendar.Next(put.NextAfter), calendar.ZoneData()
	a, err := s.propose(ctx, requestID, put)
	if err != nil {
		return nil, err
	}
	return &belfryv1.PutScheduleResponse{
		Created: a.Result.Created, Replaced: a.Result.Replaced, Version: a.Result.Version,
		Next: wire.CeilTime(a.Result.Due), Warnings: rule.Warnings(),
		Times: times(ctx, put.Name, rule, c.Now, timesAnswered), ZoneData: put.ZoneData, Witness: a.Witness(),
	}, nil
}

// definition is what the requests to put and to preview a schedule have in common.
type definition interface {
	GetSpec() *belfryv1.ScheduleSpec
	GetPolicy() *belfryv1.SchedulePolicy
	GetJob() *belfryv1.PutRequest
}

// content checks and converts the content of a schedule, and returns its rule.
func (s *Service) content(p *problems, req definition, put *fsm.PutSchedule) (rule *cron.Rule) {
	p.part(func(c *check.Request) { put.Spec, rule = s.spec(c, req.GetSpec()) })
	p.part(func(c *check.Request) { put.Policy = policy(c, req.GetPolicy()) })
	p.part(func(c *check.Request) { put.Job = job(c, req.GetJob()) })
	return rule
}

// checkKey checks that the jobs of a schedule may have their key.
func checkKey(put *fsm.PutSchedule, partitions uint32) *fault.Error {
	if put.Job.Key == "" || partitions <= 1 {
		return nil
	}
	return fault.Invalid("job.key", "the queue has %d partitions: a job with a key belongs to the partition of "+
		"its key, and those of a schedule to that of its name; use a queue with one partition", partitions)
}

// reroutesMax is how often a PutSchedule is routed again: once if this node did not know the
// partitions of the queue, and once more if the shard did not know them.
const reroutesMax = 2

// propose routes and proposes a PutSchedule. What the queue's shards know is brought up to date if they
// and this node disagree.
func (s *Service) propose(ctx context.Context, requestID string, put *fsm.PutSchedule) (a shardcall.Answer,
	err error) {
	for round := 0; ; round++ {
		if s.router.Deleting(put.Queue) {
			return a, shardcall.BeingDeleted(put.Queue)
		}
		put.Partitions = s.router.Partitions(put.Queue)
		put.Partition = node.PartitionOf(put.Name, int(put.Partitions))
		if f := checkKey(put, put.Partitions); f != nil {
			return a, f
		}
		a = s.router.Propose(ctx, s.router.Shard(put.Queue, put.Partition), requestID, put)
		switch {
		case a.Fault == nil:
			return a, nil
		case a.Fault.Reason != belfryv1.Reason_REASON_QUEUE_CHANGED || round == reroutesMax:
			return s.repeated(ctx, put, a)
		}
		if err := s.router.Refresh(ctx); err != nil {
			return a, err
		}
		if _, recorded := s.router.Catalog.Queue(put.Queue); recorded && !s.router.Deleting(put.Queue) {
			if _, _, err := s.router.Configure(ctx, put.Queue); err != nil {
				return a, err
			}
		}
	}
}

// repeated answers a PutSchedule that was refused although an earlier attempt at it may have been carried
// out, without a request id that is remembered: that attempt raised the version that this one names. The
// schedule as it is decides: it has the content, or not. One that was made since has another first version.
func (s *Service) repeated(ctx context.Context, put *fsm.PutSchedule, a shardcall.Answer) (shardcall.Answer, error) {
	version := put.IfVersion + 1
	if a.Result == nil || a.Result.Code != fsm.VersionChanged || a.Result.Version != version {
		return a, explain(a)
	}
	held, _, err := s.read(ctx, shardcall.Reader{Router: s.router}, put.Queue, put.Name)
	if err != nil || held.Version != version || version == fsm.FirstVersion(put.Partition, held.Serial) ||
		!bytes.Equal(codec.AppendDefinition(nil, &held.Spec, &held.Policy, &held.Job),
			codec.AppendDefinition(nil, &put.Spec, &put.Policy, &put.Job)) {
		return a, explain(a)
	}
	a.Fault, a.Result = nil, &fsm.Result{Serial: held.Serial, Version: held.Version, Due: held.Next}
	return a, nil
}

// times returns the next firings of a rule, or those that it had found when ctx ended.
func times(ctx context.Context, name string, rule *cron.Rule, after time.Time,
	most int) (list []*belfryv1.ScheduleTime) {
	for at := range rule.Times(after) {
		if len(list) == most || ctx.Err() != nil {
			break
		}
		nominal := fsm.Time(at.UnixNano())
		list = append(list, &belfryv1.ScheduleTime{
			Nominal: wire.ExactTime(nominal), Local: at.Format(localForm),
			DueAt: wire.CeilTime(nominal.Add(cron.JitterOf(name, at, rule.Jitter()))),
		})
	}
	return list
}

// PreviewSchedule implements belfryv1connect.ScheduleServiceHandler. What it checks of a queue takes what
// PutSchedule takes.
func (s *Service) PreviewSchedule(ctx context.Context,
	req *belfryv1.PreviewScheduleRequest) (*belfryv1.PreviewScheduleResponse, error) {
	var c *check.Request
	if req.GetQueue() == "" {
		c = s.request(ctx, tokens.View)
	} else {
		c = s.onQueue(ctx, tokens.Admin, req.GetQueue())
		c.Queue("queue", req.GetQueue())
	}
	if c.Err != nil {
		return nil, c.Err
	}
	var after fsm.Time
	var count uint32
	p, put := problems{request: c}, &fsm.PutSchedule{}
	p.part(func(c *check.Request) {
		if req.GetName() != "" || req.GetQueue() != "" {
			checkName(c, "name", req.GetName())
		}
	})
	rule := s.content(&p, req, put)
	p.part(func(c *check.Request) {
		if f := checkKey(put, s.router.Partitions(req.GetQueue())); f != nil {
			c.Fail(f)
		}
	})
	p.part(func(c *check.Request) { after = exactTime(c, "after", req.GetAfter()) })
	p.part(func(c *check.Request) { count = c.Count("count", req.GetCount(), timesAnswered, previewMax) })
	if p.fail(); c.Err != nil {
		return nil, c.Err
	}
	calendar, err := s.calendars.Of(req.GetName(), &put.Spec)
	if err != nil {
		return nil, specFault(err)
	}
	from := c.Now
	if after != 0 {
		from = time.Unix(0, int64(after))
	}
	list := times(ctx, req.GetName(), rule, from, int(count))
	if err := ctx.Err(); err != nil {
		return nil, fault.Of(err)
	}
	return &belfryv1.PreviewScheduleResponse{
		Times: list, Rule: rule.String(), Warnings: rule.Warnings(),
		ZoneData: calendar.ZoneData(),
	}, nil
}
