package admin

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// GetCluster implements AdminService.
func (s *Service) GetCluster(ctx context.Context,
	_ *belfryv1.GetClusterRequest) (*belfryv1.GetClusterResponse, error) {
	return s.look(ctx).wire(), nil
}

// DrainNode implements AdminService.
func (s *Service) DrainNode(ctx context.Context,
	req *belfryv1.DrainNodeRequest) (*belfryv1.DrainNodeResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	c.RequestID(req.GetRequestId())
	c.Incarnation(req.GetIncarnation())
	if c.Err != nil {
		return nil, c.Err
	}
	v := s.look(ctx)
	m, f := v.find(req.GetName(), req.GetIncarnation())
	if f != nil {
		return nil, f
	}
	draining := req.Draining == nil || req.GetDraining()
	var err error
	if draining {
		err = s.drainNode(ctx, v, m, req.GetForce())
	} else {
		err = s.cluster.Undrain(ctx, m.ServerID)
	}
	if err != nil {
		return nil, fault.Of(err)
	}
	m.Draining = draining
	return &belfryv1.DrainNodeResponse{Node: v.wireNode(m)}, nil
}

// drainNode starts to drain a node, if the others can take its replicas, and can hold as many
// voters of each shard as there can be now. With forced, fewer voters are enough.
func (s *Service) drainNode(ctx context.Context, v *clusterView, m *backend.Member, forced bool) error {
	left, keep := v.others(m)
	switch {
	case left == 0:
		return fault.Invalid("name",
			"no other node could take what %s has: all others are silent or draining, or there are none", v.label(m))
	case forced || m.Draining: // it was accepted before
		keep = 0
	case left < keep:
		return fault.Invalid("name",
			"%s is needed: the others that answer and do not drain are %d, so that shards would have %d voters instead of %d. "+
				"Add a node first; or force the drain (--force), and shards are under-replicated until there is one",
			v.label(m), left, left, keep)
	}
	return s.cluster.Drain(ctx, m.ServerID, keep)
}

// RemoveNode implements AdminService.
func (s *Service) RemoveNode(ctx context.Context,
	req *belfryv1.RemoveNodeRequest) (*belfryv1.RemoveNodeResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	c.RequestID(req.GetRequestId())
	c.Incarnation(req.GetIncarnation())
	if req.GetName() == "" {
		c.Fail(fault.Invalid("name", "a node's name is required"))
	}
	if c.Err != nil {
		return nil, c.Err
	}
	v := s.look(ctx)
	if req.GetIncarnation() != "" && v.byServer[req.GetName()+"."+req.GetIncarnation()] == nil {
		return &belfryv1.RemoveNodeResponse{}, nil // it may be a repeat
	}
	m, f := v.find(req.GetName(), req.GetIncarnation())
	if f == nil {
		f = v.removable(m)
	}
	if f != nil {
		return nil, f
	}
	if err := s.cluster.Remove(ctx, m.ServerID); err != nil {
		return nil, fault.Of(err)
	}
	return &belfryv1.RemoveNodeResponse{Node: v.wireNode(m)}, nil
}

// TransferLeader implements AdminService.
func (s *Service) TransferLeader(ctx context.Context,
	req *belfryv1.TransferLeaderRequest) (*belfryv1.TransferLeaderResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	c.RequestID(req.GetRequestId())
	shard := req.GetShard()
	if int64(shard) >= int64(s.router.Node.ShardCount()) {
		c.Fail(fault.Invalid("shard", "there is no shard %d; the shards are 0 to %d", shard, s.router.Node.ShardCount()-1))
	}
	if c.Err != nil {
		return nil, c.Err
	}
	v := s.look(ctx)
	g := &v.shards[shard]
	if g.leader == nil {
		f := fault.New(belfryv1.Reason_REASON_NO_LEADER)
		f.Shard = &shard
		return nil, f
	}
	to, f := v.successor(g, req.GetTo())
	if f != nil {
		return nil, f
	}
	if to != g.leader {
		if err := s.cluster.TransferLeader(ctx, backend.Transfer{
			Shard: shard, From: g.leader.ServerID, To: to.ServerID,
		}); err != nil {
			return nil, fault.OfShard(shard, err)
		}
	}
	return &belfryv1.TransferLeaderResponse{Previous: g.leader.Name, Leader: to.Name}, nil
}

// find returns the node with a name, and with an incarnation if one is given or needed.
func (v *clusterView) find(name, incarnation string) (*backend.Member, *fault.Error) {
	var named []*backend.Member
	var all, incarnations []string
	for i := range v.members {
		m := &v.members[i]
		if !slices.Contains(all, m.Name) {
			all = append(all, m.Name)
		}
		if m.Name != name {
			continue
		}
		_, its := backend.SplitServer(m.ServerID)
		if its == incarnation {
			return m, nil
		}
		named, incarnations = append(named, m), append(incarnations, its)
	}
	switch {
	case name == "":
		return nil, fault.Invalid("name", "a node's name is required; the nodes are %s", list(all))
	case len(named) == 0:
		return nil, fault.Invalid("name", "there is no node %s; the nodes are %s", fault.Quote([]byte(fault.Clip(name, 64))),
			list(all))
	case incarnation != "":
		return nil, fault.Invalid("incarnation", "%s has no such incarnation; it has %s", name, list(incarnations))
	case len(named) > 1:
		return nil, fault.Invalid("incarnation", "%s nodes have the name %s; say which incarnation: %s",
			strconv.Itoa(len(named)), name, list(incarnations))
	}
	return named[0], nil
}

// others counts the nodes besides m that can take replicas now. voters is how many voters the
// shards can have with m: one on each node that does not drain, even if it is silent now, up to the
// replication factor.
func (v *clusterView) others(m *backend.Member) (ready, voters int) {
	staying := 1
	for i := range v.members {
		other := &v.members[i]
		if other.ServerID == m.ServerID || other.Draining {
			continue
		}
		staying++
		if other.Answers {
			ready++
		}
	}
	return ready, min(v.factor, staying)
}

// removable returns why a node must not be removed; nil if it may be. What a shard with a leader
// acknowledged is on a majority. Of a shard without one, this node may have the only copy.
func (v *clusterView) removable(m *backend.Member) *fault.Error {
	if m.Answers {
		return fault.Invalid("name", "%s still answers; drain it, stop it, and remove it then", v.label(m))
	}
	var headless []string
	for i := range v.shards {
		if g := &v.shards[i]; g.leader == nil && (len(g.Voters) == 0 || g.isMember(m.ServerID)) {
			headless = append(headless, strconv.Itoa(i))
		}
	}
	if len(headless) > 0 {
		return fault.Invalid("name", "without a leader: %s; what only %s has would be lost, so start it again instead",
			shardList(headless), v.label(m))
	}
	return nil
}

// successor returns the voter with a name. Without a name, it returns the voter that leads the
// fewest shards, among those that answer, do not drain and have no condition, but not the leader.
func (v *clusterView) successor(g *groupView, name string) (*backend.Member, *fault.Error) {
	var voters []*backend.Member
	for _, id := range g.Voters {
		if m := v.byServer[id]; m != nil && m.Answers {
			voters = append(voters, m)
		}
	}
	if name != "" {
		if i := slices.IndexFunc(voters, func(m *backend.Member) bool { return m.Name == name }); i >= 0 {
			sound := slices.ContainsFunc(voters, func(m *backend.Member) bool { return len(m.Conditions) == 0 })
			if c := voters[i].Conditions; len(c) > 0 && sound && voters[i] != g.leader {
				return nil, fault.Invalid("to", "%s has %s (%s), and would hand the leadership over again", name, c[0].Kind,
					c[0].Message)
			}
			return voters[i], nil
		}
		if slices.Contains(backend.NodeNames(g.Voters), name) {
			return nil, fault.Invalid("to", "%s does not answer", name)
		}
		return nil, fault.Invalid("to", "%s is no voter of shard %d; its voters are %s",
			fault.Quote([]byte(fault.Clip(name, 64))), g.Shard, list(backend.NodeNames(g.Voters)))
	}
	voters = slices.DeleteFunc(voters, func(m *backend.Member) bool {
		return m == g.leader || m.Draining || len(m.Conditions) > 0
	})
	if len(voters) == 0 {
		return nil, fault.Invalid("shard", "shard %d has no other voter that answers, is not draining and has no condition",
			g.Shard)
	}
	return slices.MinFunc(voters, func(a, b *backend.Member) int { return cmp.Compare(v.leadsOf(a), v.leadsOf(b)) }), nil
}

// leadsOf counts the shards that a node leads.
func (v *clusterView) leadsOf(m *backend.Member) (n int) {
	for i := range v.shards {
		if v.shards[i].leads(m.ServerID) {
			n++
		}
	}
	return n
}
