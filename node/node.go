package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/conditions"
	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/histogram"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/peer"
	"github.com/belfrydb/belfry/node/propose"
	"github.com/belfrydb/belfry/node/raftgroup"
	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/wakeup"
)

// Node runs the shards of one process. Open makes one, Close ends it.
type Node struct {
	cfg Config
	// detached is the context of Open without its end: for work that no call waits for.
	detached   context.Context
	lock       io.Closer
	space      *disk.Space
	memory     *admit.Memory
	watchdog   *disk.Watchdog
	mux        *peer.Mux
	clock      *clock.Node
	clocks     *clock.Comparer
	conditions *conditions.Set
	// shards has an element for each shard of the cluster. It is nil unless a replica of the shard
	// is here.
	shards []atomic.Pointer[shard]

	mu       sync.Mutex // guards id.Groups, id.Left, id.Quarantined, groups, calls and stopping
	id       *identity.Record
	groups   []*Group
	calls    net.Listener // nil before PeerListener
	stopping bool         // nothing new is started

	clockChecked  chan struct{}
	fatalOnce     sync.Once
	throttle      *raftgroup.Throttle
	snapshotMutex disk.ChannelMutex // held while a snapshot is taken
	moveMu        sync.Mutex        // held while a shard is started or stopped
	snapshotWake  wakeup.Signal
	planning      sync.Mutex // held by planSpace

	format       atomic.Uint32 // see Format
	minVoters    atomic.Int32  // see RequireVoters
	noAutoCreate atomic.Bool   // see RefuseNewQueues
	openings     atomic.Uint32 // how many replicas of shards were opened

	// active counts the calls in progress, plus one while the node is not draining. idle is closed
	// when the count reaches 0.
	active   atomic.Int64
	draining atomic.Bool
	// namespacesLimited: some namespace has a quota. onQuotaShort is called when a request waits
	// for a share of one.
	namespacesLimited atomic.Bool
	onQuotaShort      atomic.Pointer[func()]
	leaving           atomic.Bool // the node is about to stop
	idle              chan struct{}
	idleOnce          sync.Once

	handedOver chan struct{} // closed when the leaderships are transferred; see Drain

	cancel  context.CancelFunc
	running sync.WaitGroup
	closed  chan struct{} // closed when everything has ended
}

// Open starts a node on its data directory. It returns when every shard of which the node is the
// only voter serves. ctx bounds the start only. The caller must Close the node.
func Open(ctx context.Context, cfg Config) (_ *Node, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Machine.Seed == 0 {
		cfg.Machine.Seed = rand.Uint64()
	}
	n := &Node{cfg: cfg, detached: context.WithoutCancel(ctx), clockChecked: make(chan struct{}),
		snapshotWake:  wakeup.New(),
		snapshotMutex: disk.NewChannelMutex(), idle: make(chan struct{}), handedOver: make(chan struct{}),
		closed: make(chan struct{})}
	n.conditions = conditions.NewSet(cfg.Logger)
	n.throttle = raftgroup.NewThrottle(n.snapshotsUrgent)
	n.memory = admit.NewMemory(cfg.MemoryBytes, cfg.HeapLive, cfg.Logger)
	n.active.Store(1)
	if n.lock, err = lockDir(cfg); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.shutDown())
		}
	}()
	if n.id, err = identity.Load(cfg.identity()); err != nil {
		return nil, err
	}
	n.space, err = disk.OpenSpace(disk.SpaceConfig{Dir: cfg.Dir, FS: cfg.FS, LowWaterBytes: cfg.DiskLowBytes,
		Free: cfg.diskFree, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	n.watchdog = disk.NewWatchdog(0, func(op string, limit time.Duration) {
		n.fatal(fmt.Errorf("the disk hangs: %q has not returned for %v", op, limit))
	})
	n.shards = make([]atomic.Pointer[shard], n.id.Shards)
	n.clock = clock.NewNode(cfg.Clock, cfg.ClockBound, n.alone)
	n.clocks = clock.NewComparer(n.id.ServerID(), n.clock, cfg.ClockBound, cfg.Clocks)
	n.mux = peer.New(peer.Config{
		ClusterID: n.id.ClusterID, Self: n.id.ServerID(), Shards: n.id.Shards, Founding: n.id.Founding,
		Room: n.snapshotRoom, Full: n.space.Exhausted, Listener: cfg.Peers, Dial: cfg.Dial, Resolve: cfg.Resolve,
		Logger: cfg.Logger, RaftLogger: raftgroup.NewLogger(cfg.Logger),
	})
	n.speaks(n.id.Speaks)
	n.minVoters.Store(int32(n.id.MinVoters)) //nolint:gosec // at most 7
	n.noAutoCreate.Store(n.id.NoAutoCreate)
	if err := n.startShards(ctx); err != nil {
		return nil, err
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.cancel = cancel
	n.running.Go(func() { _ = n.space.Run(background) }) // ends only with its context
	n.running.Go(func() { n.runConditions(background) })
	n.running.Go(func() { n.runSnapshots(background) })
	n.running.Go(func() { n.watchMemory(background) })
	n.running.Go(func() { n.runClocks(background) })
	if err := n.awaitLeading(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

// lockDir makes and locks the data directory, unless the caller has locked it. A file system from
// Config.FS belongs to this process and has no locks.
func lockDir(cfg Config) (io.Closer, error) {
	if cfg.Lock != nil {
		return io.NopCloser(nil), nil
	}
	if _, ok := cfg.FS.(disk.OSFS); ok {
		return disk.Lock(cfg.Dir)
	}
	return io.NopCloser(nil), disk.MakeDir(cfg.FS, cfg.Dir)
}

// startShards starts the shards that are here: those that this node founds and that did not leave,
// and those that were started before. It starts them concurrently, since each waits for the disk
// many times.
func (n *Node) startShards(ctx context.Context) error {
	for i := range n.shards {
		s := newShard(n, uint32(i))
		switch {
		case n.setAside(s.Name()):
			s.Logger().Error("the replica stays set aside", "reason", errQuarantined)
		case n.hasLeft(s.Name()):
			n.completeLeaving(s)
		case n.id.FirstVoters(s.Name()) != nil || n.holds(s.Name()):
			n.shards[i].Store(s)
		}
	}
	here := n.here()
	names := make([]string, len(here))
	failures := make([]error, len(here))
	var starting sync.WaitGroup
	for i, s := range here {
		names[i] = s.Name()
		starting.Go(func() { failures[i] = s.Start(ctx) })
	}
	starting.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return n.founded(names...)
}

// awaitLeading waits for the shards of which this node is the only voter. First it waits until they
// know their last timestamps and compares the clock with these. Then it waits until they serve.
func (n *Node) awaitLeading(ctx context.Context) error {
	defer n.narrateStart()()
	var own []*shard
	var newest fsm.Time
	for _, s := range n.here() {
		if !s.SoleVoter() {
			continue
		}
		own = append(own, s)
		if err := n.await(ctx, s, s.caughtUp); err != nil {
			return err
		}
		newest = max(newest, s.machineClock())
	}
	if err := clock.Check(n.cfg.Clock.Wall(), newest, n.cfg.ClockBound); err != nil {
		if !n.cfg.AcceptClock {
			return err
		}
		n.cfg.Logger.Warn("the clock was accepted", "error", err)
	}
	close(n.clockChecked)
	for _, s := range own {
		if err := n.await(ctx, s, s.led); err != nil {
			return err
		}
	}
	return nil
}

// await waits for one step in the start of a shard.
func (n *Node) await(ctx context.Context, s *shard, step <-chan struct{}) error {
	select {
	case <-step:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to begin: %w", s.Name(), context.Cause(ctx))
	}
}

// holds reports whether the data directory is known to hold a group.
func (n *Node) holds(group string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.id.Groups, group)
}

// hasLeft reports whether a group was here and left.
func (n *Node) hasLeft(group string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.id.Left, group)
}

// founded records that groups exist. From then on they are never founded again.
func (n *Node) founded(groups ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.id.Found(groups...)
}

// here returns the shards that have a replica here, in order of their number.
func (n *Node) here() []*shard {
	var here []*shard
	for i := range n.shards {
		if s := n.shards[i].Load(); s != nil {
			here = append(here, s)
		}
	}
	return here
}

// replicaOf returns a shard that is here.
func (n *Node) replicaOf(number uint32) (*shard, error) {
	if int64(number) >= int64(len(n.shards)) {
		return nil, fmt.Errorf("%w: %d of %d", outcome.ErrUnknownShard, number, len(n.shards))
	}
	s := n.shards[number].Load()
	if s == nil {
		return nil, fmt.Errorf("%s: %w", founding.ShardGroup(number), outcome.ErrNotHere)
	}
	return s, nil
}

// allGroups returns every group of this node.
func (n *Node) allGroups() []*raftgroup.Group {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []*raftgroup.Group
	for _, s := range n.here() {
		all = append(all, s.Group)
	}
	for _, g := range n.groups {
		all = append(all, g.group)
	}
	return all
}

// spawn runs f in a goroutine that shutDown waits for. It reports false if the node is being shut
// down.
func (n *Node) spawn(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopping {
		return false
	}
	n.running.Go(f)
	return true
}

// lastWordsMax bounds the wait for the log message before the process ends. The log may be on the
// disk that hangs.
const lastWordsMax = 250 * time.Millisecond

// fatal ends the process with Config.Fatal.
func (n *Node) fatal(err error) {
	n.fatalOnce.Do(func() {
		said := make(chan struct{})
		go func() {
			defer close(said)
			n.cfg.Logger.Error("the node cannot go on", "error", err)
		}()
		timeout := time.NewTimer(lastWordsMax)
		defer timeout.Stop()
		select {
		case <-said:
		case <-timeout.C:
		}
		n.cfg.Fatal(err)
	})
}

// diskFailed ends the process because of a write that failed. If the disk is full, it first
// releases the reserve: the next start needs some room.
func (n *Node) diskFailed(err error) {
	n.releaseIfFull(err)
	n.fatal(err)
}

// releaseIfFull releases the disk reserve if err says that the disk is full.
func (n *Node) releaseIfFull(err error) {
	if !disk.Full(err) {
		return
	}
	if err := n.space.Release(); err != nil {
		n.cfg.Logger.Error("the disk is full", "error", err)
	}
}

// groupConfig returns what all groups have in common, for the group of a name.
func (n *Node) groupConfig(name, dir string) raftgroup.Config {
	return raftgroup.Config{
		Name: name, Dir: dir, ClusterID: n.id.ClusterID, Self: n.id.ServerID(),
		Engine: storage.Engine(n.id.Store), FS: n.cfg.FS, SegmentBytes: n.cfg.SegmentBytes, Watchdog: n.watchdog,
		DiskFailed: n.diskFailed, SnapshotBytes: n.cfg.SnapshotBytes, TrailingBytes: n.cfg.TrailingBytes,
		Throttle: n.throttle, Grown: n.grown, SnapshotEnded: n.snapshotEnded, Logger: n.cfg.Logger.With("group", name),
		Transport: func() *peer.Transport { return n.mux.Transport(name) }, FirstVoters: n.id.FirstVoters(name),
		Known:    func() bool { return n.holds(name) || n.hasLeft(name) },
		SetAside: func() bool { return n.setAside(name) }, Fatal: n.fatal, ApplySeconds: histogram.Seconds(),
	}
}

// grown makes runSnapshots check which groups need a snapshot.
func (n *Node) grown() { n.snapshotWake.Send() }

// Drain answers every parked call without jobs, and refuses all new work with ErrShuttingDown.
// Calls in progress go on. In the background, each leadership of this node is transferred to
// another voter, if there is one. Calls that are then still in progress end as with any other loss
// of leadership.
func (n *Node) Drain() {
	n.leaving.Store(true)
	if n.draining.Swap(true) {
		return
	}
	for _, s := range n.here() {
		s.calls.Drain()
	}
	n.endCall()
	if !n.spawn(n.handOver) {
		close(n.handedOver)
	}
}

// beginCall counts a call on a shard. The caller must call done at its end.
func (n *Node) beginCall(shard uint32) (s *shard, done func(), err error) {
	n.active.Add(1)
	if n.draining.Load() {
		n.endCall()
		return nil, nil, outcome.ErrShuttingDown
	}
	if s, err = n.replicaOf(shard); err != nil {
		n.endCall()
		return nil, nil, err
	}
	return s, n.endCall, nil
}

// endCall counts the endCall of a call.
func (n *Node) endCall() {
	if n.active.Add(-1) == 0 {
		n.idleOnce.Do(func() { close(n.idle) }) // a refused call may reach zero again
	}
}

// Close drains the node, waits as AwaitDrained does, stops every group and unlocks the data
// directory.
func (n *Node) Close(ctx context.Context) error {
	return errors.Join(n.AwaitDrained(ctx), n.shutDown())
}

// AwaitDrained drains the node. It waits for the calls in progress until ctx ends, and at most
// three seconds for the transfer of the leaderships. Until Close, the groups follow their new
// leaders.
func (n *Node) AwaitDrained(ctx context.Context) error {
	n.Drain()
	var late error
	select {
	case <-n.idle:
	case <-ctx.Done():
		late = fmt.Errorf("closing the node: calls are still under way: %w", context.Cause(ctx))
	}
	<-n.handedOver
	return late
}

// shutDown stops every started part of the node.
func (n *Node) shutDown() error {
	n.mu.Lock()
	n.stopping = true
	n.mu.Unlock()
	if n.cancel != nil {
		n.cancel()
	}
	var problems []error
	for _, g := range n.allGroups() {
		problems = append(problems, g.Stop())
	}
	if n.mux != nil {
		n.mux.Close()
	}
	n.running.Wait()
	close(n.closed)
	return errors.Join(append(problems, n.lock.Close())...)
}

// ShardCount returns the number of shards of the cluster; shards are numbered from 0.
func (n *Node) ShardCount() int { return len(n.shards) }

// Route returns the home shard of a queue: the shard of its partition 0.
func (n *Node) Route(queue string) uint32 { return ShardOf(queue, 0, len(n.shards)) }

// Leader returns the server id of a shard's leader as far as this node knows; empty if it knows
// none.
func (n *Node) Leader(shard uint32) (string, error) {
	s, err := n.replicaOf(shard)
	if err != nil {
		return "", err
	}
	return s.LeaderID(), nil
}

// Follows reports whether this node takes calls, but its replica of the shard names another leader.
// Calls for the shard would then only be refused with ErrNotLeader.
func (n *Node) Follows(shard uint32) bool {
	s, err := n.replicaOf(shard)
	if err != nil || s.Serves() || n.draining.Load() {
		return false
	}
	id := s.LeaderID()
	return id != "" && id != n.id.ServerID()
}

// Do proposes a request to a shard and waits for its results. See OutcomeOf for the meaning of an
// error. If ctx ends first, the error wraps ErrCanceled when the request was not logged, else
// ErrUnknownOutcome. The caller must not change the request during the call; after an unknown
// outcome, never.
func (n *Node) Do(ctx context.Context, shard uint32, req *fsm.Request) (propose.Reply, error) {
	s, done, err := n.beginCall(shard)
	if err != nil {
		return propose.Reply{}, err
	}
	defer done()
	return s.calls.Do(ctx, req)
}

// Start is the first half of Do: it proposes a request to a shard, and finish, which must be called
// once, waits for its results. So one goroutine can propose many requests before it waits. ok is
// false, and nothing was done, if the request might have to wait for quota; it is for Do then.
func (n *Node) Start(ctx context.Context, shard uint32,
	req *fsm.Request) (finish func() (propose.Reply, error), ok bool) {
	s, done, err := n.beginCall(shard)
	if err != nil {
		return func() (propose.Reply, error) { return propose.Reply{}, err }, true
	}
	defer func() {
		if !ok { // it was not started, or there was a panic
			done()
		}
	}()
	wait, started := s.calls.Start(ctx, req)
	if !started {
		return nil, false
	}
	return func() (propose.Reply, error) {
		defer done()
		return wait()
	}, true
}

// Reserve proposes a request that consists of one fsm.Reserve and returns the granted jobs. If no
// job can be granted, the call is parked among the waiters of its queues until a job is granted or
// the wait ends. At the end of the wait it returns one Result without grants; if nothing was
// logged, the Witness is zero.
//
// To end the wait early but take a reservation in flight, the caller closes wait.Stop. If ctx ends
// first, jobs that are still granted are released without counting an attempt. A request without an
// id releases them at once. A request with an id releases them when no repeat of it has come for a
// while. The queues need not exist yet. On Drain the call returns as if the wait were over.
func (n *Node) Reserve(ctx context.Context, shard uint32, req *fsm.Request, wait Wait) (propose.Reply, error) {
	s, done, err := n.beginCall(shard)
	if err != nil {
		return propose.Reply{}, err
	}
	defer done()
	reply, err := s.calls.Reserve(ctx, req, wait)
	if err == nil {
		reply.Jobs, err = s.granted(reply.Results)
	}
	return reply, err
}

// Query answers q. The answer shows every request that was answered before the call. Query
// evaluates at the later of the shard's clock and the timestamp that the leader would issue. Only
// the shard's leader answers. Query changes nothing, so the call may be repeated after any error.
func (n *Node) Query(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, propose.Witness, error) {
	s, done, err := n.beginCall(shard)
	if err != nil {
		return fsm.Reading{}, propose.Witness{}, err
	}
	defer done()
	return s.query(ctx, q)
}

// Peek is Query without this guarantee. The answer shows the entries that this node has applied,
// which include every reply that this node gave. Peek asks no other node. It works on any replica,
// and while the node drains. A replica that is about to restore its state, from a snapshot or from
// its own files, answers with ErrNotHere: another replica knows more.
func (n *Node) Peek(shard uint32, q fsm.Query) (fsm.Reading, propose.Witness, error) {
	s, err := n.replicaOf(shard)
	if err != nil {
		return fsm.Reading{}, propose.Witness{}, err
	}
	return s.peek(q)
}
