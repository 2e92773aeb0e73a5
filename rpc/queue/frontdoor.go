package queue

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/auth"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// The methods here are for other protocols, which have commands of the machine and no messages of
// the contract. They check no field: the caller has done so.

// PutJobs proposes puts whose queues the caller may put into, and returns their answers in order. The
// puts of one namespace and shard are one request, so a repeat with the same requestID and the same
// puts is safe. The caller must not change the puts afterwards if an outcome is unknown.
func (s *Service) PutJobs(ctx context.Context, requestID string, puts []*fsm.Put) []shardcall.Answer {
	b := &putBatch{puts: puts, answers: make([]shardcall.Answer, len(puts))}
	for _, put := range puts {
		b.name(put.Queue)
	}
	s.putAll(ctx, requestID, b)
	return b.answers
}

// TakeJob reserves one job of the queues under its own TTR, and waits for one if there is none. It
// returns nil if none came in time, or if the server drains. If ctx ends, the job is released.
func (s *Service) TakeJob(ctx context.Context, queues []string, wait time.Duration) (*wire.Grant, error) {
	if s.drain.HasStarted() {
		return nil, fault.New(belfryv1.Reason_REASON_SHUTTING_DOWN)
	}
	p := &poll{service: s, queues: queues, jobsMax: 1, client: auth.ClientOf(ctx)}
	if err := p.run(ctx, wait); err != nil {
		return nil, err
	}
	if len(p.jobs) == 0 {
		return nil, nil
	}
	if ctx.Err() != nil {
		s.releaseAll(ctx, wire.Refs(p.jobs))
		return nil, fault.Of(ctx.Err())
	}
	return &p.jobs[0], nil
}

// ReleaseJobs releases jobs, even if ctx has ended. If that fails, their leases lapse.
func (s *Service) ReleaseJobs(ctx context.Context, refs []fsm.Ref) { s.releaseAll(ctx, refs) }

// Allow returns a fault if the caller of ctx may not do an action to a queue whose name is valid.
func (s *Service) Allow(ctx context.Context, action tokens.Action, queue string) *fault.Error {
	permissions, f := s.rules.Authorizer.Permissions(ctx, action)
	if f == nil && !permissions.Allows(queue) {
		f = permissions.Forbidden(queue)
	}
	return f
}

// CheckName returns a fault if a name is none of a queue.
func (s *Service) CheckName(name string) *fault.Error {
	c := &check.Request{Limits: &s.rules.Limits}
	c.Queue("queue", name)
	return c.Err
}
