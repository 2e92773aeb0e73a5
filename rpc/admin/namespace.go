package admin

import (
	"context"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

const (
	// putsPerSecondMax bounds the rate of a namespace.
	putsPerSecondMax = 1_000_000_000
	// limitMax bounds the other limits of a namespace, so that their sums do not overflow.
	limitMax = 1 << 60
)

// SetNamespace implements AdminService.
func (s *Service) SetNamespace(ctx context.Context,
	req *belfryv1.SetNamespaceRequest) (*belfryv1.SetNamespaceResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	name := c.Namespace("name", req.GetName())
	c.RequestID(req.GetRequestId())
	var set [node.Limits]bool
	var quota node.Amounts
	for _, l := range []struct {
		limit node.Limit
		field string
		value *uint64
		most  uint64
		unit  uint64
	}{
		{node.JobsLimit, "maxJobs", req.MaxJobs, limitMax, 1},
		{node.BytesLimit, "maxBytes", req.MaxBytes, limitMax, 1},
		{node.LeasesLimit, "maxInFlight", req.MaxInFlight, limitMax, 1},
		{node.PutRate, "putsPerSecond", req.PutsPerSecond, putsPerSecondMax, 1000},
	} {
		switch {
		case l.value == nil:
		case *l.value > l.most:
			c.Fail(fault.Invalid(l.field, "have %d, at most %d; 0 stands for no limit", *l.value, l.most))
		default:
			set[l.limit], quota[l.limit] = true, *l.value*l.unit
		}
	}
	if set == ([node.Limits]bool{}) {
		c.Fail(fault.Invalid("maxJobs",
			"nothing is to be changed: name maxJobs, maxBytes, maxInFlight, putsPerSecond or several of them"))
	}
	if c.Err != nil {
		return nil, c.Err
	}
	n, err := s.cluster.SetNamespace(ctx, name, set, quota)
	if err != nil {
		return nil, fault.Of(err)
	}
	return &belfryv1.SetNamespaceResponse{Namespace: wireNamespace(&n)}, nil
}

// wireNamespace converts a quota.
func wireNamespace(n *backend.Namespace) *belfryv1.Namespace {
	return &belfryv1.Namespace{
		Name: n.Name, MaxJobs: n.Quota[node.JobsLimit], MaxBytes: n.Quota[node.BytesLimit],
		MaxInFlight:   n.Quota[node.LeasesLimit],
		PutsPerSecond: n.Quota[node.PutRate] / 1000, PendingShards: n.Pending,
	}
}

// GetNamespace implements AdminService.
func (s *Service) GetNamespace(ctx context.Context,
	req *belfryv1.GetNamespaceRequest) (*belfryv1.GetNamespaceResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	name := c.Namespace("name", req.GetName())
	if c.Err != nil {
		return nil, c.Err
	}
	out := &belfryv1.GetNamespaceResponse{Namespace: &belfryv1.Namespace{Name: name}}
	for _, n := range s.cluster.Namespaces() {
		if n.Name == name {
			out.Namespace = wireNamespace(&n)
		}
	}
	out.Stale = req.GetStale()
	page := &belfryv1.ListQueuesRequest{
		Prefix: name + "/", PageSize: int32(s.rules.Limits.PageMax), Stale: req.GetStale(),
	}
	for {
		queues, err := s.ListQueues(ctx, page)
		if err != nil {
			return nil, err
		}
		for _, q := range queues.GetQueues() {
			n := q.GetCounts()
			out.Queues++
			out.Jobs += uint64(n.GetDelayed()) + uint64(n.GetReady()) + uint64(n.GetReserved()) + uint64(n.GetDead())
			out.InFlight += uint64(n.GetReserved())
			out.Bytes += q.GetBytes()
			if at := q.GetAsOf(); out.AsOf == nil || at.AsTime().Before(out.AsOf.AsTime()) {
				out.AsOf = at
			}
		}
		if page.PageToken = queues.GetNextPageToken(); page.PageToken == "" {
			return out, nil
		}
	}
}

// ListNamespaces implements AdminService.
func (s *Service) ListNamespaces(context.Context,
	*belfryv1.ListNamespacesRequest) (*belfryv1.ListNamespacesResponse, error) {
	out := &belfryv1.ListNamespacesResponse{}
	for _, n := range s.cluster.Namespaces() {
		out.Namespaces = append(out.Namespaces, wireNamespace(&n))
	}
	return out, nil
}

// DeleteNamespace implements AdminService.
func (s *Service) DeleteNamespace(ctx context.Context,
	req *belfryv1.DeleteNamespaceRequest) (*belfryv1.DeleteNamespaceResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	name := c.Namespace("name", req.GetName())
	c.RequestID(req.GetRequestId())
	if c.Err != nil {
		return nil, c.Err
	}
	found, err := s.cluster.RemoveNamespace(ctx, name)
	if err != nil {
		return nil, fault.Of(err)
	}
	return &belfryv1.DeleteNamespaceResponse{Found: found}, nil
}
