package schedule

import (
	"context"
	"strconv"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/cron"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/schedules"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
)

// Calendars finds the firings of schedules. *calendar.Calendars implements it. Its methods may be
// called from any goroutine.
type Calendars interface {
	// Rule returns the rule of a spec. The error is that of cron.Compile.
	Rule(spec *fsm.ScheduleSpec) (*cron.Rule, error)
	// Zones returns the time-zone data.
	Zones() *cron.Zones
	// Of returns the calendar of a schedule. The error is that of Rule.
	Of(name string, spec *fsm.ScheduleSpec) (schedules.Calendar, error)
}

// Config has what a Service needs. All fields are required.
type Config struct {
	// Router finds the shards of queues.
	Router shardcall.Router
	// Rules are what requests are checked against. The service never changes them.
	Rules *check.Rules
	// Calendars have the time-zone data of this node.
	Calendars Calendars
	// Format returns the format that the cluster writes.
	Format func() fsm.Format
}

// Service answers belfry.v1.ScheduleService: it is a belfryv1connect.ScheduleServiceHandler. Every
// method checks its request in full before it proposes a command. The errors of all methods are
// faults. They may be called from any goroutine.
type Service struct {
	router    shardcall.Router
	rules     *check.Rules
	calendars Calendars
	format    func() fsm.Format
}

// New returns a service.
func New(cfg Config) *Service {
	return &Service{router: cfg.Router, rules: cfg.Rules, calendars: cfg.Calendars, format: cfg.Format}
}

// request begins the checks of a call.
func (s *Service) request(ctx context.Context, action tokens.Action) *check.Request {
	c := s.rules.Request(ctx, action)
	s.checkFormat(c)
	return c
}

// onQueue begins the checks of a call about a queue. Whether the caller may touch the queue comes first.
func (s *Service) onQueue(ctx context.Context, action tokens.Action, queue string) *check.Request {
	c := s.rules.Request(ctx, action)
	c.Allow(queue)
	s.checkFormat(c)
	return c
}

// checkFormat fails while not all nodes know schedules.
func (s *Service) checkFormat(c *check.Request) {
	if err := node.CheckFormat(&fsm.Request{Commands: []fsm.Command{&fsm.PutSchedule{}}}, s.format()); err != nil {
		c.Fail(fault.Of(err))
	}
}

// shardOf returns the shard of a schedule.
func (s *Service) shardOf(queue, name string) uint32 {
	return s.router.Shard(queue, node.PartitionOf(name, int(s.router.Partitions(queue))))
}

// onSchedule proposes a command to the shard of a schedule, and to another one if this node did not
// know the partitions of its queue.
func (s *Service) onSchedule(ctx context.Context, queue, name, requestID string,
	command fsm.Command) (shardcall.Answer, error) {
	return shardcall.FindAgain(ctx, shardcall.Reader{Router: s.router}, queue, func() (shardcall.Answer, error) {
		a := s.router.Propose(ctx, s.shardOf(queue, name), requestID, command)
		if a.Fault != nil {
			return a, explain(a)
		}
		return a, nil
	})
}

// explain returns the fault of an answer, in the words of schedules where those of jobs would be wrong.
func explain(a shardcall.Answer) *fault.Error {
	if a.Result == nil {
		return a.Fault
	}
	f := *a.Fault
	switch a.Result.Code {
	case fsm.VersionChanged:
		f.Field = "ifVersion"
		f.Message = "ifVersion: there is no such schedule"
		if a.Result.Version > 0 {
			f.Message = "ifVersion: the schedule has version " + strconv.FormatUint(a.Result.Version, 10)
		}
	case fsm.Quota:
		f.Message = "the shard holds as many schedules as it may, or as many queues; delete some"
	default:
	}
	return &f
}

// read reads a schedule.
func (s *Service) read(ctx context.Context, from shardcall.Reader, queue, name string) (fsm.Schedule, node.Witness,
	error) {
	type found struct {
		schedule fsm.Schedule
		witness  node.Witness
	}
	out, err := shardcall.FindAgain(ctx, from, queue, func() (found, error) {
		shard := s.shardOf(queue, name)
		r, witness, err := from.Read(ctx, shard, &fsm.ScheduleQuery{Queue: queue, Name: name})
		switch {
		case err != nil:
			return found{}, s.router.FaultAt(shard, err)
		case len(r.Schedules) == 0:
			return found{}, s.missing(ctx, from, shard, queue)
		default:
			return found{r.Schedules[0], witness}, nil
		}
	})
	return out.schedule, out.witness, err
}

// missing says why a shard has no schedule of a name: its queue is not there, or has no such one.
func (s *Service) missing(ctx context.Context, from shardcall.Reader, shard uint32, queue string) error {
	r, _, err := from.Read(ctx, shard, &fsm.QueueQuery{Queue: queue})
	if err != nil {
		return s.router.FaultAt(shard, err)
	}
	reason := belfryv1.Reason_REASON_SCHEDULE_NOT_FOUND
	if len(r.Queues) == 0 {
		reason = belfryv1.Reason_REASON_QUEUE_NOT_FOUND
	}
	f := fault.New(reason)
	f.Shard = &shard
	return f
}
