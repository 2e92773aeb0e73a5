package keys

import (
	"context"
	"fmt"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// Service has the methods of AdminService that concern keys.
type Service struct {
	router shardcall.Router
	rules  *check.Rules
}

// New returns a service.
func New(router shardcall.Router, rules *check.Rules) *Service {
	return &Service{router: router, rules: rules}
}

// PauseKey implements AdminService.
func (s *Service) PauseKey(ctx context.Context, req *belfryv1.PauseKeyRequest) (*belfryv1.PauseKeyResponse, error) {
	w, err := s.setPause(ctx, req.GetRequestId(), &fsm.PauseKey{Queue: req.GetQueue(), Key: req.GetKey()})
	if err != nil {
		return nil, err
	}
	return &belfryv1.PauseKeyResponse{Witness: w}, nil
}

// ResumeKey implements AdminService.
func (s *Service) ResumeKey(ctx context.Context, req *belfryv1.ResumeKeyRequest) (*belfryv1.ResumeKeyResponse, error) {
	w, err := s.setPause(ctx, req.GetRequestId(), &fsm.PauseKey{Queue: req.GetQueue(), Key: req.GetKey(), Resume: true})
	if err != nil {
		return nil, err
	}
	return &belfryv1.ResumeKeyResponse{Witness: w}, nil
}

// setPause proposes a PauseKey to the shard of its key.
func (s *Service) setPause(ctx context.Context, requestID string, command *fsm.PauseKey) (*belfryv1.Witness, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	c.Queue("queue", command.Queue)
	c.OneKey("key", command.Key)
	c.RequestID(requestID)
	if c.Err != nil {
		return nil, c.Err
	}
	shard, err := s.shardOf(ctx, command.Queue, command.Key)
	if err != nil {
		return nil, err
	}
	a := s.router.Propose(ctx, shard, requestID, command)
	if f := a.Fault; f != nil {
		if f.Reason == belfryv1.Reason_REASON_QUOTA {
			f.Message = fmt.Sprintf("%d keys of the shard are paused, as many as may be: resume some", fsm.PausedKeysMax)
		}
		return nil, f
	}
	return a.Witness(), nil
}

// shardOf returns the shard of a key of a queue.
func (s *Service) shardOf(ctx context.Context, queue, key string) (uint32, error) {
	if err := (shardcall.Reader{Router: s.router}).Learn(ctx, queue); err != nil {
		return 0, err
	}
	return s.router.ShardOfKey(queue, key), nil
}

// PurgeKey implements AdminService. It removes the jobs in steps, as PurgeQueue does.
func (s *Service) PurgeKey(ctx context.Context, req *belfryv1.PurgeKeyRequest) (*belfryv1.PurgeKeyResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	queue, key := c.Queue("queue", req.GetQueue()), c.OneKey("key", req.GetKey())
	states := fsm.Set(fsm.Delayed, fsm.Ready, fsm.Dead)
	if len(req.GetStates()) > 0 {
		states = 0
	}
	for i, wanted := range req.GetStates() {
		states |= fsm.Set(held(c, fault.Indexed("states", i), wanted))
	}
	requestID := c.RequestID(req.GetRequestId())
	if c.Err != nil {
		return nil, c.Err
	}
	shard, err := s.shardOf(ctx, queue, key)
	if err != nil {
		return nil, err
	}
	left := uint64(req.GetMax())
	if left == 0 {
		left = 1 << 62
	}
	done, err := s.router.InShards(ctx, []uint32{shard}, requestID, left, func(most uint32) fsm.Command {
		return &fsm.PurgeKey{Queue: queue, Key: key, States: states, Max: most}
	})
	if err != nil {
		return nil, err
	}
	out := &belfryv1.PurgeKeyResponse{Purged: wire.Count(done.Count)}
	if len(done.Witnesses) > 0 {
		out.Witness = done.Witnesses[0]
	}
	return out, nil
}

// held checks a state that a job may be held in.
func held(c *check.Request, field string, wanted belfryv1.JobState) fsm.State {
	state, ok := wire.HeldState(wanted)
	if !ok {
		c.Fail(fault.Invalid(field, "want one of DELAYED, READY, RESERVED, DEAD, not %s", codec.QuotedEnum(wanted)))
	}
	return state
}
