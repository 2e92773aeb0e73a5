package queue

import (
	"context"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// Ack implements belfryv1connect.QueueServiceHandler.
func (s *Service) Ack(ctx context.Context, req *belfryv1.AckRequest) (*belfryv1.AckResponse, error) {
	a, err := s.act(ctx, func(c *check.Request) (fsm.Ref, fsm.Command, string) {
		ref := c.Lease("lease", req.GetLease())
		return ref, &fsm.Ack{Ref: ref}, req.GetRequestId()
	})
	if err != nil {
		return nil, err
	}
	return &belfryv1.AckResponse{Witness: a.Witness()}, nil
}

// act checks and proposes a command on a lease.
func (s *Service) act(ctx context.Context,
	build func(*check.Request) (fsm.Ref, fsm.Command, string)) (shardcall.Answer, error) {
	c := s.rules.Request(ctx, tokens.Consume)
	ref, command, requestID := build(c)
	c.RequestID(requestID)
	if c.Err != nil {
		return shardcall.Answer{}, c.Err
	}
	a := s.router.Propose(ctx, s.router.Shard(ref.Queue, ref.Partition), requestID, command)
	if a.Fault != nil {
		return shardcall.Answer{}, a.Fault
	}
	return a, nil
}

// AckBatch implements belfryv1connect.QueueServiceHandler.
func (s *Service) AckBatch(ctx context.Context,
	req *belfryv1.AckBatchRequest) (*belfryv1.AckBatchResponse, error) {
	c := s.rules.Request(ctx, tokens.Consume)
	requestID := c.RequestID(req.GetRequestId())
	c.Entries("leases", len(req.GetLeases()), s.rules.Limits.BatchJobsMax)
	if c.Err != nil {
		return nil, c.Err
	}
	b := &ackBatch{}
	for _, token := range req.GetLeases() {
		b.add(c, []byte(token))
	}
	s.auditEntries(ctx, belfryv1connect.QueueServiceAckBatchProcedure, c.Permissions.Refusals())
	s.ackAll(ctx, requestID, b)
	out := &belfryv1.AckBatchResponse{Results: make([]*belfryv1.AckBatchResult, len(b.answers))}
	for i := range b.answers {
		a := &b.answers[i]
		if out.Results[i] = (&belfryv1.AckBatchResult{}); a.Fault != nil {
			out.Results[i].Result = &belfryv1.AckBatchResult_Error{Error: a.Fault.Entry()}
		} else {
			out.Results[i].Result = &belfryv1.AckBatchResult_Ack{Ack: &belfryv1.AckResponse{Witness: a.Witness()}}
		}
	}
	return out, nil
}

// Nack implements belfryv1connect.QueueServiceHandler.
func (s *Service) Nack(ctx context.Context, req *belfryv1.NackRequest) (*belfryv1.NackResponse, error) {
	a, err := s.act(ctx, func(c *check.Request) (fsm.Ref, fsm.Command, string) {
		nack := c.Nack(req)
		return nack.Ref, nack, req.GetRequestId()
	})
	if err != nil {
		return nil, err
	}
	return wireNack(&a), nil
}

// wireNack converts the answer to a nack.
func wireNack(a *shardcall.Answer) *belfryv1.NackResponse {
	out := &belfryv1.NackResponse{State: wire.State(a.Result.State), Witness: a.Witness()}
	if a.Result.State == fsm.Delayed || a.Result.State == fsm.Ready {
		out.DueAt = wire.CeilTime(a.Result.Due)
	}
	return out
}

// Release implements belfryv1connect.QueueServiceHandler.
func (s *Service) Release(ctx context.Context, req *belfryv1.ReleaseRequest) (*belfryv1.ReleaseResponse, error) {
	a, err := s.act(ctx, func(c *check.Request) (fsm.Ref, fsm.Command, string) {
		release := c.Release(req)
		return release.Ref, release, req.GetRequestId()
	})
	if err != nil {
		return nil, err
	}
	return wireRelease(&a), nil
}

// wireRelease converts the answer to a release.
func wireRelease(a *shardcall.Answer) *belfryv1.ReleaseResponse {
	out := &belfryv1.ReleaseResponse{State: wire.State(a.Result.State), Witness: a.Witness()}
	if a.Result.State == fsm.Delayed || a.Result.State == fsm.Ready {
		out.DueAt = wire.CeilTime(a.Result.Due)
	}
	return out
}

// Extend implements belfryv1connect.QueueServiceHandler.
func (s *Service) Extend(ctx context.Context, req *belfryv1.ExtendRequest) (*belfryv1.ExtendResponse, error) {
	a, err := s.act(ctx, func(c *check.Request) (fsm.Ref, fsm.Command, string) {
		extend := c.Extend(req)
		return extend.Ref, extend, req.GetRequestId()
	})
	if err != nil {
		return nil, err
	}
	return wireExtend(&a), nil
}

// wireExtend converts the answer to an extend.
func wireExtend(a *shardcall.Answer) *belfryv1.ExtendResponse {
	return &belfryv1.ExtendResponse{LeaseUntil: wire.FloorTime(a.Result.Until), Witness: a.Witness()}
}
