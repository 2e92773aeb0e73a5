package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/cluster/quota"
	"github.com/belfrydb/belfry/cluster/routing"
	"github.com/belfrydb/belfry/cluster/tasks"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// Config configures this node's part in its cluster.
type Config struct {
	// PeerAddr is where other nodes reach this one, and ClientAddr where clients do. PeerAddr is
	// empty if there can be no other nodes.
	PeerAddr, ClientAddr string
	// Zone names the failure domain of this node. Replicas are spread over zones.
	Zone string
	// RequiresTokens says that this node requires tokens of its callers.
	RequiresTokens bool
	// Version is the version that this node reports.
	Version string
	// ZoneData is the version of the time-zone data with which this node finds the firings of schedules.
	ZoneData string
	// Directory resolves server ids for the node. It is updated from the catalog.
	Directory *Directory
	// Clocks reads the clocks of other nodes for the node; nil if the node reads none.
	Clocks *Clocks
	// Seeds are server ids of members that this node asks for admission. The directory resolves
	// them. A node that was admitted, or that founded its cluster, needs none.
	Seeds []string
	// Settings are the settings of the cluster if this node founds it; later they are ignored. A
	// zero stands for the default.
	Settings catalog.Settings
	// SteadyAfter is how long a node must have answered before placement counts on it; 0 stands for
	// DefaultSteadyAfter. A shorter time is for nodes that end together, as in a demonstration.
	SteadyAfter time.Duration
	// LastBackup returns when this node last sent a complete backup, zero for never. It must return at
	// once. Nil stands for a node that sends none.
	LastBackup func() time.Time
	// Mirrored returns what the node's bridges to Redis have done. It must return at once. Nil stands for
	// a node that has none.
	Mirrored func() []placement.MirroredQueue
	// Departed is called once if this node has left its cluster for good: the node should end. It
	// must return soon. It may be nil.
	Departed func(*catalog.DepartedError)
	Logger   *slog.Logger
}

// Cluster is this node's part in its cluster: its replica of the catalog, the router to every
// shard, and, while it leads the catalog, placement. Its methods may be called from any goroutine.
type Cluster struct {
	*catalog.Catalog
	peers   *routing.Peers
	router  *Router
	members *members
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// reconcileWait bounds one round of starting and stopping replicas, so that a replica that hangs
// does not keep this node's record and directory from being updated.
const reconcileWait = 30 * time.Second

// foundedPause is the time between two looks at the records while the cluster is being founded.
const foundedPause = 100 * time.Millisecond

// Open starts this node's part in its cluster. If the node founded its cluster and is alone, the
// catalog serves when Open returns. Otherwise the node joins or comes back in the background. ctx
// bounds the start only. Call Close before closing the node.
func Open(ctx context.Context, n *node.Node, cfg Config) (*Cluster, error) {
	st := n.Status()
	if cfg.Directory == nil {
		cfg.Directory = NewDirectory()
	}
	if cfg.Mirrored == nil {
		cfg.Mirrored = func() []placement.MirroredQueue { return nil }
	}
	if cfg.LastBackup == nil {
		cfg.LastBackup = func() time.Time { return time.Time{} }
	}
	if err := cfg.Settings.Check(); err != nil {
		return nil, err
	}
	self := catalog.Node{
		Name: st.Name, ServerID: st.ServerID, PeerAddr: cfg.PeerAddr, ClientAddr: cfg.ClientAddr, Zone: cfg.Zone,
		Format: fsm.LatestFormat, RequiresTokens: cfg.RequiresTokens,
	}
	calls := routing.OpenPeers(n, cfg.Logger)
	records := catalog.New(n, catalog.Config{
		Self: self, Peers: calls, Deadline: routing.LeaderDeadline, Logger: cfg.Logger,
	})
	calls.AdmitOnly(records.MayCall)
	unrecorded := new(atomic.Pointer[string])
	m := &members{
		host: n, catalog: records, peers: calls, config: cfg, record: self, unrecorded: unrecorded,
		process: rand.Text(), rebuilt: map[uint32]bool{}, confirmed: make(chan struct{}),
	}
	router := &Router{
		Router: routing.NewRouter(n, records, calls, m.knownServers),
		peers:  calls, catalog: records, self: self.ServerID, unrecorded: unrecorded,
	}
	c := &Cluster{Catalog: records, peers: calls, members: m, router: router}
	quotas := quota.NewAllocator(n, records, cfg.Logger)
	m.router = router
	if err := records.Start(ctx, n, c.router, m.lead); err != nil {
		return nil, err
	}
	m.answer()
	router.Answer()
	answerClocks(calls, n)
	cfg.Clocks.setPeers(calls)
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	c.running.Go(func() {
		if err := calls.Serve(n.PeerListener()); err != nil {
			cfg.Logger.Error("answering other nodes", "error", err)
		}
	})
	if records.Group().Alone() { // it leads; with several voters a leader may lose that again, and follow retries
		if err := errors.Join(records.Introduce(ctx, cfg.Settings), m.enrol(ctx)); err != nil {
			return nil, errors.Join(err, c.Close(ctx))
		}
		m.raiseFormatAlone(ctx)
		m.confirm()
		quotas.MarkCaughtUp()
	}
	c.running.Go(func() { m.follow(background) })
	c.running.Go(func() { m.shedLeaderships(background) })
	c.running.Go(func() { m.watchReachability(background) })
	c.running.Go(func() { c.router.Watch(background) })
	c.running.Go(func() { quotas.Run(background) })
	return c, nil
}

// Close ends this node's part in the cluster: it answers no more calls of other nodes. The
// catalog's replica ends with the node. Drain the node before: otherwise the calls of other nodes
// on their way here end with an unknown outcome. Close waits for answers to be sent until ctx
// ends, and a second at most.
func (c *Cluster) Close(ctx context.Context) error {
	c.cancel()
	err := c.peers.Close(ctx)
	c.running.Wait()
	return err
}

// Confirmed returns a channel that is closed once this node knows a leader of the catalog while it
// is recorded as one of its nodes. Before that it may have been removed without knowing.
func (c *Cluster) Confirmed() <-chan struct{} { return c.members.confirmed }

// Router returns the router to every shard of the cluster.
func (c *Cluster) Router() *Router { return c.router }

// follow keeps this node's record up to date, and the directory equal to the catalog.
func (m *members) follow(ctx context.Context) {
	tick := time.NewTicker(enrolPause)
	defer tick.Stop()
	if m.host.Founding() != nil && !m.catalog.Recorded() {
		tick.Reset(foundedPause) // its cluster was founded a moment ago
	}
	var told refusal
	for {
		m.config.Directory.record(m.catalog.Nodes())
		m.applyFormat()
		m.applySettings(ctx)
		err := m.enrol(ctx)
		if m.handleDeparture(err) {
			return
		}
		if m.confirm() {
			tick.Reset(enrolPause)
		}
		m.reportRefusal(ctx, &told, err)
		m.reconcileReplicas(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// applySettings applies settings of the cluster to the node: it refuses mutations of shards that
// have too few voters, and puts into queues that do not exist. It lowers a setting only if the
// catalog here is as new as its leader's: a catalog that starts anew knows no settings yet.
func (m *members) applySettings(ctx context.Context) {
	now, least, refuse := m.catalog.Settings(), m.host.MinVoters(), m.host.NoAutoCreate()
	if (now.MinVoters < least || refuse && !*now.NoAutoCreate) && m.catalog.Refresh(ctx) == nil {
		now, least, refuse = m.catalog.Settings(), 0, false
	}
	least, refuse = max(least, now.MinVoters), refuse || *now.NoAutoCreate
	if err := m.host.RequireVoters(least); err != nil {
		m.config.Logger.Error("taking over how many voters a shard must have", "min_voters", least, "error", err)
	}
	apply := m.host.MakeNewQueues
	if refuse {
		apply = m.host.RefuseNewQueues
	}
	if err := apply(); err != nil {
		m.config.Logger.Error("taking over whether puts make queues", "no_auto_create", refuse, "error", err)
	}
}

// reconcileReplicas starts the replicas that are recorded for this node. It stops a replica that
// is not recorded if the shard's leader says that it is no member. A record alone may be older
// than the group.
func (m *members) reconcileReplicas(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reconcileWait)
	defer cancel()
	self := m.record.ServerID
	here := map[uint32]bool{}
	st := m.host.Status()
	for _, g := range st.Shards {
		here[g.Shard] = true
	}
	placements := m.catalog.Placements()
	// After the placements are read: a replica that starts writes the format of its placement, or a
	// later one.
	m.applyFormat()
	for _, p := range placements {
		var err error
		switch placed := slices.Contains(p.Servers, self); {
		case slices.Contains(st.Quarantined, catalog.ShardGroup(p.Shard)):
			if !m.rebuilt[p.Shard] && m.checkRemoved(ctx, p) == nil {
				err = m.stopReplica(ctx, p)
				m.rebuilt[p.Shard] = err == nil
			}
		case placed && !here[p.Shard]:
			err = m.host.StartShard(ctx, p.Shard)
		case !placed && here[p.Shard] && m.checkRemoved(ctx, p) == nil:
			err = m.stopReplica(ctx, p)
		}
		if err != nil && ctx.Err() == nil {
			m.config.Logger.Warn("starting or stopping a replica", "shard", p.Shard, "error", err)
		}
	}
}

// stopReplica stops a replica that is not a member any more. It asks twice. It asks before the
// stop, because a replica that is stopped by mistake is missing. It asks again when the replica
// acknowledges nothing any more, because the replica may have become a member again.
func (m *members) stopReplica(ctx context.Context, p catalog.Placement) error {
	return m.host.StopShard(ctx, p.Shard, func(ctx context.Context) error { return m.checkRemoved(ctx, p) })
}

// checkRemoved returns nil if the shard's leader, which is one of the recorded servers, says that
// this node is no member and that this is committed. A removal that is only in the leader's log
// may never happen, and what this replica has acknowledged counts until it has.
func (m *members) checkRemoved(ctx context.Context, p catalog.Placement) error {
	err := fmt.Errorf("%w of %s", node.ErrNoLeader, catalog.ShardGroup(p.Shard))
	for _, server := range p.Servers {
		if server == m.record.ServerID {
			continue
		}
		known, unknown := m.membersOf(ctx, server, p.Shard)
		switch {
		case unknown != nil:
			err = errors.Join(err, unknown)
		case known.Has(m.record.ServerID):
			return fmt.Errorf("%w: %s is a member of %s", errStillMember, m.record.ServerID, catalog.ShardGroup(p.Shard))
		default:
			return nil
		}
	}
	return err
}

// errStillMember says that a replica must not be stopped.
var errStillMember = errors.New("the replica is still a member")

// membersOf asks a node for the members of a shard, which it must lead.
func (m *members) membersOf(ctx context.Context, server string, shard uint32) (node.Membership, error) {
	ctx, cancel := context.WithTimeout(ctx, placement.AskWait)
	defer cancel()
	return routing.Call[node.Membership](ctx, m.peers, server, pathMembers, shard)
}

// The paths of the calls between nodes.
const (
	pathReport = "/report"
	pathChange = "/change"
	pathAside  = "/quarantine"
	// pathMembers asks the leader of a shard for its committed members.
	pathMembers = "/members"
)

// members is this node's part in the cluster besides the catalog. It answers the other nodes,
// joins, follows the catalog, and runs placement while it leads the catalog.
type members struct {
	host    *node.Node
	catalog *catalog.Catalog
	peers   *routing.Peers
	router  *Router
	config  Config
	// record is the record that this node should have. unrecorded is the reason, for people, why the
	// catalog has another one or none; nil if it has it.
	record     catalog.Node
	unrecorded *atomic.Pointer[string]
	process    string // it differs after each start
	// placement is this node's knowledge as the leader of the catalog; nil while it does not lead.
	placement atomic.Pointer[placement.Status]
	// audit is the function of Cluster.AnswerAudit; nil before it was called.
	audit atomic.Pointer[func(query []byte) ([]byte, error)]
	// confirmed is closed, by the goroutine that enrols, as Cluster.Confirmed documents.
	confirmed chan struct{}
	// led is when this node last knew a leader, zero for not since its start. Only the goroutine
	// that enrols uses it.
	led time.Time
	// rebuilt are the shards whose replica was set aside and replaced by a new one since the start.
	// If the new one differs again, the reason is in this process. It then stays set aside until
	// another process starts. Only follow uses rebuilt.
	rebuilt map[uint32]bool
}

// answer registers the calls that other nodes may make.
func (m *members) answer() {
	routing.Handle(m.peers, pathReport, func(context.Context, string, struct{}) (placement.Report, error) {
		return m.self(), nil
	})
	routing.Handle(m.peers, pathChange, func(ctx context.Context, _ string, c placement.Change) (struct{}, error) {
		return struct{}{}, m.carryOut(ctx, c)
	})
	routing.Handle(m.peers, pathMembers, func(ctx context.Context, _ string, shard uint32) (node.Membership, error) {
		return m.host.Members(ctx, catalog.ShardGroup(shard))
	})
	routing.Handle(m.peers, pathAside, func(ctx context.Context, from string, d placement.Divergence) (struct{}, error) {
		return struct{}{}, m.setAside(ctx, from, d)
	})
	routing.Handle(m.peers, pathAlive, m.answerAlive)
	routing.Handle(m.peers, pathAudit, m.answerAudit)
	routing.Handle(m.peers, routing.JoinPath, m.answerJoin)
}

// self returns this node's own report.
func (m *members) self() placement.Report {
	st := m.host.Status()
	r := placement.Report{
		ServerID: st.ServerID, Process: m.process, Version: m.config.Version, ZoneData: m.config.ZoneData,
		Format:      fsm.LatestFormat,
		Quarantined: st.Quarantined, Leaving: st.Leaving, Conditions: st.Conditions, Placement: m.placement.Load(),
		DiskFree: st.DiskFreeBytes, DiskLow: st.DiskLowBytes, ClockOffset: clockOffset(m.host.Clocks()),
		BackupAt: m.config.LastBackup(), Mirrored: m.config.Mirrored(),
	}
	for _, lost := range m.peers.Reachability().Unreached() {
		r.Unreached = append(r.Unreached, placement.Unreached{
			ServerID: lost.Server, Address: m.config.Directory.address(lost.Server), For: lost.Away, Calls: lost.Calls,
		})
	}
	for _, groups := range [][]node.GroupStatus{st.Shards, st.Groups} {
		for i := range groups {
			g := &groups[i]
			r.Groups = append(r.Groups, placement.GroupReport{
				Group: g.Group, Serving: g.Serving, Term: g.Term, Voters: g.Voters, Nonvoters: g.Nonvoters, Members: g.MembersIndex,
				Applied: g.AppliedIndex, Commit: g.CommitIndex,
				Digest: g.Digest, DigestIndex: g.DigestIndex, Digests: g.Digests, Jobs: uint64(g.Jobs), Clock: g.Clock,
				Restoring: g.Restoring, ClockAhead: clockAhead(g), SnapshotAt: g.SnapshotAt,
			})
		}
	}
	return r
}

// carryOut changes the members of a group that this node leads.
func (m *members) carryOut(ctx context.Context, c placement.Change) error {
	if c.Action != placement.Transfer && c.After == 0 {
		return fmt.Errorf("%w: the change does not say from which members it was made", node.ErrCanceled)
	}
	if err := m.host.Answered(c.Group, c.Alive, cmp.Or(c.Need, len(c.Alive))); err != nil {
		return err
	}
	switch c.Action {
	case placement.AddNonvoter:
		return m.host.AddNonvoter(ctx, c.Group, c.ServerID, c.After)
	case placement.Promote:
		return m.host.AddVoter(ctx, c.Group, c.ServerID, c.After)
	case placement.Remove:
		return m.host.RemoveServer(ctx, c.Group, c.ServerID, c.After)
	case placement.Transfer:
		return m.host.TransferLeader(ctx, c.Group, c.ServerID)
	case placement.Demote:
		return m.host.DemoteVoter(ctx, c.Group, c.ServerID, c.After)
	default:
		return fmt.Errorf("%w: %s is no change of members", node.ErrCanceled, c.Action)
	}
}

// Report implements placement.Nodes.
func (m *members) Report(ctx context.Context, serverID string) (placement.Report, error) {
	if serverID == m.record.ServerID {
		return m.self(), nil
	}
	return routing.Call[placement.Report](ctx, m.peers, serverID, pathReport, struct{}{})
}

// Change implements placement.Nodes.
func (m *members) Change(ctx context.Context, serverID string, c placement.Change) error {
	if serverID == m.record.ServerID {
		return m.carryOut(ctx, c)
	}
	_, err := routing.Call[struct{}](ctx, m.peers, serverID, pathChange, c)
	return err
}

// Quarantine implements placement.Nodes.
func (m *members) Quarantine(ctx context.Context, serverID string, d placement.Divergence) error {
	if serverID == m.record.ServerID {
		return m.setAside(ctx, serverID, d)
	}
	_, err := routing.Call[struct{}](ctx, m.peers, serverID, pathAside, d)
	return err
}

// setAside takes a replica of this node out of service.
func (m *members) setAside(ctx context.Context, from string, d placement.Divergence) error {
	m.config.Logger.Error("a replica here is said to differ from the others", "group", d.Group, "index", d.Right.Index,
		"says", from)
	return m.host.Quarantine(ctx, d.Group, d.Right)
}

// lead runs placement and tasks while this node leads the catalog.
func (m *members) lead(ctx context.Context) {
	if f := m.host.Founding(); f != nil {
		m.catalog.RecordFounding(ctx, f, m.config.Directory.Resolve)
	}
	p := placement.New(placement.Config{
		Records: m.catalog, Nodes: m, Logger: m.config.Logger, Shards: m.host.ShardCount(),
		Publish: m.placement.Store, Reported: m.raiseFormat, SteadyAfter: m.config.SteadyAfter,
	})
	defer m.placement.Store(nil)
	var beside sync.WaitGroup
	defer beside.Wait()
	runner := &tasks.Runner{
		Records: m.catalog, Shards: m.router, Changed: m.catalog.TasksChanged(), Logger: m.config.Logger,
	}
	beside.Go(func() { runner.Run(ctx) })
	p.Run(ctx)
}
