package queue

import (
	"context"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// routingQueuesMax bounds the queues that GetRouting is asked for.
const routingQueuesMax = 64

// GetRouting implements belfryv1connect.QueueServiceHandler.
func (s *Service) GetRouting(ctx context.Context,
	req *belfryv1.GetRoutingRequest) (*belfryv1.GetRoutingResponse, error) {
	c := s.rules.Request(ctx, tokens.View)
	viewable := c.Permissions
	c.Permissions = nil // the caller gets the leaders even if it may not see one of the queues
	c.Entries("queues", max(1, len(req.GetQueues())), routingQueuesMax)
	for i, queue := range req.GetQueues() {
		c.Queue(fault.Indexed("queues", i), queue)
	}
	if c.Err != nil {
		return nil, c.Err
	}
	shards := s.router.Node.ShardCount()
	out := &belfryv1.GetRoutingResponse{
		HashVersion: node.PlacementVersion, Shards: uint32(shards), Leaders: make([]string, shards),
		Partitions: map[string]uint32{}, ClusterId: s.router.Node.Status().ClusterID,
	} //nolint:gosec // at most 1,024
	for shard := range out.Leaders {
		out.Leaders[shard] = s.router.Node.ClientAddr(uint32(shard))
	}
	for _, queue := range req.GetQueues() {
		if n := s.router.Partitions(queue); n > 1 && viewable.Allows(queue) {
			out.Partitions[queue] = n
		}
	}
	return out, nil
}
