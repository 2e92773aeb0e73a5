package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/wire"
)

// clusterView is the cluster as all nodes reported it in one round.
type clusterView struct {
	id, answeredBy string
	factor         int
	votersWanted   int
	settings       backend.ClusterSettings
	moves          []backend.Move
	format         fsm.Format
	members        []backend.Member
	byServer       map[string]*backend.Member
	// shards are ordered by number. catalog has no members if no node that answers runs it.
	shards  []groupView
	catalog groupView
	// heard is when this node last heard from the catalog's leader, or led; zero if never.
	heard time.Time
}

// groupView is a Raft group as its leader reports it. Without a leader, it is the report of the
// replica that has applied most.
type groupView struct {
	node.GroupStatus
	// leader is the node that serves the group; nil if there is none.
	leader *backend.Member
	// held has the reports of all nodes that answer and run a replica, by server id.
	held map[string]*node.GroupStatus
	// behindSince says since when a voter has been behind the leader, by server id.
	behindSince map[string]*timestamppb.Timestamp
}

// look asks all nodes for their state.
func (s *Service) look(ctx context.Context) *clusterView {
	status := s.router.Node.Status()
	v := &clusterView{
		id: status.ClusterID, answeredBy: status.Name, settings: s.cluster.Settings(), format: s.cluster.Format(),
		byServer: map[string]*backend.Member{},
	}
	for i := range status.Groups {
		if g := &status.Groups[i]; g.Group == backend.CatalogGroup {
			v.heard = g.Heard
		}
	}
	v.factor, v.votersWanted = v.settings.Factor, s.cluster.VotersWanted()
	v.members, v.moves = s.cluster.Members(ctx)
	groups := map[string][]*backend.Member{}
	held := map[string]map[string]*node.GroupStatus{}
	for i := range v.members {
		m := &v.members[i]
		v.byServer[m.ServerID] = m
		for j := range m.Groups {
			g := &m.Groups[j]
			if held[g.Group] == nil {
				held[g.Group] = map[string]*node.GroupStatus{}
			}
			groups[g.Group], held[g.Group][m.ServerID] = append(groups[g.Group], m), g
		}
	}
	for shard := range s.router.Node.ShardCount() {
		name := backend.ShardGroup(shard)
		g := newGroupView(groups[name], held[name])
		g.Shard = uint32(shard)
		g.behindSince = v.behindSince(name)
		v.shards = append(v.shards, g)
	}
	v.catalog = newGroupView(groups[backend.CatalogGroup], held[backend.CatalogGroup])
	v.catalog.behindSince = v.behindSince(backend.CatalogGroup)
	return v
}

// newGroupView chooses the report that counts. members are the nodes that run a replica.
func newGroupView(members []*backend.Member, held map[string]*node.GroupStatus) groupView {
	v := groupView{held: held}
	var best *node.GroupStatus
	for _, m := range members {
		g := held[m.ServerID]
		// A leader that was replaced may not know it yet. A node that is no member may have a
		// replica without members.
		if len(g.Voters) == 0 || best != nil &&
			cmp.Or(compareServing(g, best), cmp.Compare(g.Term, best.Term), cmp.Compare(g.DigestIndex, best.DigestIndex)) <= 0 {
			continue
		}
		best = g
		if g.Serving {
			v.leader = m
		}
	}
	if best != nil {
		v.GroupStatus = *best
		v.Voters, v.Nonvoters = slices.Sorted(slices.Values(best.Voters)), slices.Sorted(slices.Values(best.Nonvoters))
	}
	return v
}

// compareServing orders a group that serves after one that does not.
func compareServing(a, b *node.GroupStatus) int {
	switch {
	case a.Serving == b.Serving:
		return 0
	case a.Serving:
		return 1
	default:
		return -1
	}
}

// isMember reports whether a server is a member of the group.
func (g *groupView) isMember(serverID string) bool {
	return slices.Contains(g.Voters, serverID) || slices.Contains(g.Nonvoters, serverID)
}

// leads reports whether a server leads the group.
func (g *groupView) leads(serverID string) bool {
	return g.leader != nil && g.leader.ServerID == serverID
}

// wire converts the view.
func (v *clusterView) wire() *belfryv1.GetClusterResponse {
	out := &belfryv1.GetClusterResponse{
		ClusterId: v.id, AnsweredBy: v.answeredBy, ReplicationFactor: wire.Count(uint64(v.factor)), Format: uint32(v.format),
		Problems:  v.problems(),
		MinVoters: wire.Count(uint64(v.settings.MinVoters)), NoAutoCreate: isTrue(v.settings.NoAutoCreate),
		Advice: v.advice(),
	}
	if v.settings.Grace > 0 {
		out.GracePeriod = durationpb.New(v.settings.Grace)
	}
	for _, m := range v.moves {
		if m.Leaves != "" && int(m.Shard) < len(v.shards) && !v.shards[m.Shard].isMember(m.Leaves) {
			continue // the move was reported before the members changed
		}
		out.Moves = append(out.Moves, &belfryv1.ShardMove{Shard: m.Shard, Text: m.Text})
	}
	for i := range v.members {
		out.Nodes = append(out.Nodes, v.wireNode(&v.members[i]))
	}
	for _, u := range v.unreached() {
		at := slices.IndexFunc(v.members, func(m backend.Member) bool { return m.ServerID == u.member.ServerID })
		for _, from := range u.by {
			out.Nodes[at].UnreachedBy = append(out.Nodes[at].UnreachedBy, from.Name)
		}
	}
	for i := range v.shards {
		g := &v.shards[i]
		out.Shards = append(out.Shards, &belfryv1.Shard{
			Shard: g.Shard, Leader: g.leaderName(), Term: g.Term, AppliedIndex: g.DigestIndex, Digest: digestText(g.Digest),
			Jobs: wire.Count(uint64(g.Jobs)), Time: wire.ExactTime(g.Clock), Voters: backend.NodeNames(g.Voters),
			Nonvoters: backend.NodeNames(g.Nonvoters), Replicas: g.wireReplicas(),
			ClockAhead: wireClockAhead(&g.GroupStatus), VotersWanted: wire.Count(uint64(v.votersWanted)),
		})
	}
	if c := &v.catalog; len(c.Voters) > 0 {
		out.Catalog = &belfryv1.Catalog{
			Leader: c.leaderName(), Term: c.Term, Voters: backend.NodeNames(c.Voters), Nonvoters: backend.NodeNames(c.Nonvoters),
			Replicas: c.wireReplicas(), HeardAt: wireTime(v.heard),
		}
	}
	return out
}

// wireNode converts a node, and counts its replicas and leaderships of shards.
func (v *clusterView) wireNode(m *backend.Member) *belfryv1.Node {
	_, incarnation := backend.SplitServer(m.ServerID)
	out := &belfryv1.Node{
		Name: m.Name, Incarnation: incarnation, Address: m.ClientAddr, PeerAddress: m.PeerAddr, Zone: m.Zone,
		Version: m.Version, TimeZoneData: m.ZoneData, Format: uint32(m.Format),
		Draining: m.Draining, State: belfryv1.NodeState_NODE_STATE_LIVE,
		DiskFreeBytes: m.DiskFree, DiskLowBytes: m.DiskLow, BackupAt: wireTime(m.BackupAt),
		SilentSince: wireTime(m.SilentSince),
	}
	for i := range m.Mirrored {
		out.Mirrored = append(out.Mirrored, wireMirrored(&m.Mirrored[i]))
	}
	if m.ClockOffset != nil {
		out.ClockOffset = durationpb.New(*m.ClockOffset)
	}
	switch {
	case !m.Answers:
		out.State = belfryv1.NodeState_NODE_STATE_SILENT
	case m.Draining:
		out.State = belfryv1.NodeState_NODE_STATE_DRAINING
	}
	for _, c := range m.Conditions {
		out.Conditions = append(out.Conditions, &belfryv1.NodeCondition{
			Kind: string(c.Kind), Message: c.Message, Since: timestamppb.New(c.Since),
		})
	}
	for i := range v.shards {
		if v.shards[i].isMember(m.ServerID) {
			out.Replicas++
		}
		if v.shards[i].leads(m.ServerID) {
			out.Leads++
		}
	}
	return out
}

// leaderName returns the name of the leader, empty if there is none.
func (g *groupView) leaderName() string {
	if g.leader == nil {
		return ""
	}
	return g.leader.Name
}

// wireTime converts a time; one that is zero is not set.
func wireTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// wireMirrored converts what a bridge has done.
func wireMirrored(q *backend.MirroredQueue) *belfryv1.MirroredQueue {
	return &belfryv1.MirroredQueue{
		RedisQueue: q.RedisQueue, Queue: q.Queue, Waits: q.Waits, Came: q.Came, Delivered: q.Delivered, Dead: q.Dead,
		SetAside: q.SetAside, Failed: q.Failed, Left: q.Left, LookedAt: wireTime(q.Looked),
		EarliestDueAt: wireTime(q.Earliest), Lateness: durationpb.New(q.Lateness),
	}
}

// wireReplicas converts the replicas of the members, voters first.
func (g *groupView) wireReplicas() (all []*belfryv1.Replica) {
	for i, id := range slices.Concat(g.Voters, g.Nonvoters) {
		r := &belfryv1.Replica{Voter: i < len(g.Voters)}
		r.Node, r.Incarnation = backend.SplitServer(id)
		if held := g.held[id]; held != nil {
			r.AppliedIndex, r.Digest = held.DigestIndex, digestText(held.Digest)
			r.BehindSince, r.SnapshotAt = g.behindSince[id], wireTime(held.SnapshotAt)
		} else {
			r.Silent = true
		}
		all = append(all, r)
	}
	return all
}

// digestText writes a digest.
func digestText(digest uint64) string { return fmt.Sprintf("%016x", digest) }
