package admin

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// ListQueues implements AdminService.
func (s *Service) ListQueues(ctx context.Context,
	req *belfryv1.ListQueuesRequest) (*belfryv1.ListQueuesResponse, error) {
	c := s.rules.Request(ctx, tokens.View)
	most := c.Page("pageSize", req.GetPageSize())
	if len(req.GetPrefix()) > s.rules.Limits.QueueBytesMax {
		c.Fail(fault.TooLarge("prefix", len(req.GetPrefix()), s.rules.Limits.QueueBytesMax))
	}
	after := c.QueueToken("pageToken", req.GetPageToken())
	if c.Err != nil {
		return nil, c.Err
	}
	all := make([]uint32, s.router.Node.ShardCount())
	for i := range all {
		all[i] = uint32(i)
	}
	out := &belfryv1.ListQueuesResponse{Stale: req.GetStale()}
	var due fsm.Due
	for _, names := range c.Permissions.NamesUnder(req.GetPrefix()) {
		query := &fsm.QueuesQuery{Prefix: names.Prefix, After: after, Max: most + 1 - len(out.Queues)}
		if names.One {
			query.Max = 1 // the queue comes first, if it exists
		}
		readings, _, err := shardcall.Reader{Router: s.router, Stale: req.GetStale()}.ReadAll(ctx, all, func(int) fsm.Query {
			return query
		})
		if err != nil {
			return nil, err
		}
		parts := queueParts(readings)
		slices.SortStableFunc(parts, func(a, b queuePart) int { return cmp.Compare(a.Name, b.Name) })
		for len(parts) > 0 && (!names.One || parts[0].Name == names.Prefix) {
			n := 1
			for n < len(parts) && parts[n].Name == parts[0].Name {
				n++
			}
			if len(out.Queues) == most {
				out.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(out.Queues[most-1].GetName()))
				out.Due = wire.DueHistogram(&due)
				return out, nil
			}
			out.Queues = append(out.Queues, s.listed(parts[:n], &due))
			parts = parts[n:]
		}
	}
	out.Due = wire.DueHistogram(&due)
	return out, nil
}

// listed sums up the parts of a queue for a list. It adds the due times of the queue's jobs to all,
// which has those of all queues in the list.
func (s *Service) listed(parts []queuePart, all *fsm.Due) *belfryv1.Queue {
	var due fsm.Due
	for i := range parts {
		wire.AddDueSums(&due, &parts[i].Due)
		wire.AddDue(all, &parts[i].Due)
	}
	out := s.wireQueue(parts)
	out.Due = wire.DueSums(&due)
	return out
}
