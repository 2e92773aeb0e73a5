package admin

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// ResetClock implements AdminService. It does what it can: a shard that cannot be asked keeps no
// other from being moved back.
func (s *Service) ResetClock(ctx context.Context,
	req *belfryv1.ResetClockRequest) (*belfryv1.ResetClockResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	c.RequestID(req.GetRequestId())
	if c.Err != nil {
		return nil, c.Err
	}
	v := s.look(ctx)
	out := &belfryv1.ResetClockResponse{}
	var failed error
	for i := range v.shards {
		shard, err := s.resetShard(ctx, &v.shards[i])
		if err != nil {
			failed = err
			continue
		}
		out.Shards = append(out.Shards, shard)
	}
	if failed != nil {
		return nil, failed
	}
	return out, nil
}

// resetShard moves the time of a shard back, if it is ahead, and leaves a trace of it.
func (s *Service) resetShard(ctx context.Context, g *groupView) (*belfryv1.ShardClock, error) {
	if g.leader == nil {
		f := fault.New(belfryv1.Reason_REASON_NO_LEADER)
		f.Shard = &g.Shard
		return nil, f
	}
	reset, err := s.cluster.ResetClock(ctx, g.leader.ServerID, g.Shard)
	if err != nil {
		return nil, fault.OfShard(g.Shard, err)
	}
	if reset.To != reset.From {
		s.logger.Warn("audit: an operator moved the time of a shard back", slog.Uint64("shard", uint64(g.Shard)),
			slog.Time("from", wire.ExactTime(reset.From).AsTime()), slog.Time("to", wire.ExactTime(reset.To).AsTime()))
	}
	return &belfryv1.ShardClock{Shard: g.Shard, From: wire.ExactTime(reset.From), To: wire.ExactTime(reset.To)}, nil
}

// wireClockAhead returns by how much a shard's time is ahead, nil if all is well.
func wireClockAhead(g *node.GroupStatus) *durationpb.Duration {
	if !g.ClockAhead {
		return nil
	}
	return durationpb.New(g.ClockAheadBy)
}

// aheadOfTime says which shards' time is ahead, and by how much the worst; it is empty if none is.
func (v *clusterView) aheadOfTime() string {
	var ahead []string
	var most time.Duration
	for i := range v.shards {
		if g := &v.shards[i]; g.leader != nil && g.ClockAhead {
			ahead, most = append(ahead, fmt.Sprint(i)), max(most, g.ClockAheadBy)
		}
	}
	if len(ahead) == 0 {
		return ""
	}
	return fmt.Sprintf("CLOCK_AHEAD: the time of %s is ahead of the nodes' clocks, by up to %v; 'belfry cluster "+
		"reset-clock' moves it back",
		shardList(ahead), most.Round(time.Millisecond))
}
