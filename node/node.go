package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/storage"
)

// narrateInterval is the time between two messages about a start that takes long.
const narrateInterval = 3 * time.Second

// Node is one process's shards. Open makes one, Close ends it.
type Node struct {
	cfg      Config
	lock     *storage.DirLock
	space    *storage.Space
	watchdog *storage.Watchdog
	mux      *mux
	shards   []*shard

	mu       sync.Mutex // guards id.Groups, groups and stopping
	id       *identity
	groups   []*Group
	stopping bool // nothing is started any more

	clockChecked chan struct{}
	fatalOnce    sync.Once
	snapshotMu   sync.Mutex // held while a snapshot is taken
	snapshotWake chan struct{}

	// active counts the calls under way, and one while the node is not draining; idle is closed when none are left.
	active   atomic.Int64
	draining atomic.Bool
	idle     chan struct{}
	idleOnce sync.Once

	cancel  context.CancelFunc
	running sync.WaitGroup
	closed  chan struct{} // closed when everything has ended
}

// Open starts a node on its data directory and returns when every shard of which it is the only voter serves.
// ctx bounds the start only. The caller must Close the node.
func Open(ctx context.Context, cfg Config) (_ *Node, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Machine.Seed == 0 {
		cfg.Machine.Seed = rand.Uint64()
	}
	n := &Node{cfg: cfg, clockChecked: make(chan struct{}), snapshotWake: make(chan struct{}, 1), idle: make(chan struct{}), closed: make(chan struct{})}
	n.active.Store(1)
	if n.lock, err = storage.Lock(cfg.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.shutDown())
		}
	}()
	if n.id, err = loadIdentity(cfg); err != nil {
		return nil, err
	}
	n.space, err = storage.OpenSpace(storage.SpaceConfig{Dir: cfg.Dir, LowWaterBytes: cfg.DiskLowBytes, Free: cfg.diskFree, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	n.watchdog = storage.NewWatchdog(0, func(op string, limit time.Duration) {
		n.fatal(fmt.Errorf("the disk hangs: %q has not returned for %v", op, limit))
	})
	n.mux = newMux(cfg, n.id)
	if err := n.startShards(ctx); err != nil {
		return nil, err
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.cancel = cancel
	n.running.Go(func() { _ = n.space.Run(background) }) // it only ends with its context
	n.running.Go(func() { n.runSnapshots(background) })
	if err := n.awaitLeading(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

// startShards starts all shards at once, since each waits for the disk many times.
func (n *Node) startShards(ctx context.Context) error {
	for i := range n.id.Shards {
		n.shards = append(n.shards, newShard(n, uint32(i)))
	}
	names := make([]string, len(n.shards))
	failures := make([]error, len(n.shards))
	var starting sync.WaitGroup
	for i, s := range n.shards {
		names[i] = s.name
		starting.Go(func() { failures[i] = s.start(ctx) })
	}
	starting.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return n.founded(names...)
}

// awaitLeading waits for the shards of which this node is the only voter: until they know their last stamps, with which the
// clock is compared, and until they serve.
func (n *Node) awaitLeading(ctx context.Context) error {
	defer n.narrateStart()()
	var own []*shard
	var newest fsm.Time
	for _, s := range n.shards {
		if !s.soleVoter() {
			continue
		}
		own = append(own, s)
		if err := n.await(ctx, s, s.caughtUp); err != nil {
			return err
		}
		newest = max(newest, s.machineClock())
	}
	if err := checkClock(n.cfg.Clock.Wall(), newest, n.cfg.ClockBound); err != nil {
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

// narrateStart logs every few seconds how far the groups are that do not serve yet, until the function that it returns is called.
func (n *Node) narrateStart() (end func()) {
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(narrateInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ended:
				return
			}
			for _, s := range n.shards {
				if s.serving.Load() == nil && s.soleVoter() {
					s.logger.Info("replaying the log", "applied_index", s.replica.appliedIndex(), "last_index", s.instance().LastIndex())
				}
			}
		}
	})
	return func() {
		close(ended)
		running.Wait()
	}
}

// await waits for a step in the start of a shard.
func (n *Node) await(ctx context.Context, s *shard, step <-chan struct{}) error {
	select {
	case <-step:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to begin: %w", s.name, context.Cause(ctx))
	}
}

// holds reports whether the data directory is known to hold a group.
func (n *Node) holds(group string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.id.Groups, group)
}

// founded records that groups exist. From then on they are never founded again.
func (n *Node) founded(groups ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.id.founded(n.cfg.Dir, groups...)
}

// allGroups returns every group of this node.
func (n *Node) allGroups() []*group {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []*group
	for _, s := range n.shards {
		all = append(all, s.group)
	}
	for _, g := range n.groups {
		all = append(all, g.group)
	}
	return all
}

// spawn runs f in a goroutine that shutDown waits for. It reports false if the node is being shut down.
func (n *Node) spawn(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopping {
		return false
	}
	n.running.Go(f)
	return true
}

// fatal ends the process through the function that the configuration names.
func (n *Node) fatal(err error) {
	n.fatalOnce.Do(func() {
		n.cfg.Logger.Error("the node cannot go on", "error", err)
		n.cfg.Fatal(err)
	})
}

// diskFailed ends the process because of a write that failed. If the disk is full the reserve is given up first: the next start
// needs some room.
func (n *Node) diskFailed(err error) {
	n.releaseIfFull(err)
	n.fatal(err)
}

// releaseIfFull gives the reserve up if err says that the disk is full.
func (n *Node) releaseIfFull(err error) {
	if !storage.DiskFull(err) {
		return
	}
	if err := n.space.Release(); err != nil {
		n.cfg.Logger.Error("the disk is full", "error", err)
	}
}

// grown has the snapshots looked at.
func (n *Node) grown() {
	select {
	case n.snapshotWake <- struct{}{}:
	default:
	}
}

// Drain wakes every waiter with what it has and refuses all new work with ErrShuttingDown. What is under way goes on.
func (n *Node) Drain() {
	if n.draining.Swap(true) {
		return
	}
	for _, s := range n.shards {
		s.waiters.drain()
	}
	n.end()
}

// begin counts a call on a shard. done must be called at its end.
func (n *Node) begin(shard uint32) (s *shard, done func(), err error) {
	n.active.Add(1)
	if n.draining.Load() {
		n.end()
		return nil, nil, ErrShuttingDown
	}
	if int64(shard) >= int64(len(n.shards)) {
		n.end()
		return nil, nil, fmt.Errorf("%w: %d of %d", ErrUnknownShard, shard, len(n.shards))
	}
	return n.shards[shard], n.end, nil
}

// end counts the end of a call.
func (n *Node) end() {
	if n.active.Add(-1) == 0 {
		n.idleOnce.Do(func() { close(n.idle) }) // a refused call may bring it back to zero
	}
}

// Close drains the node, waits for what is under way until ctx ends, stops every group and unlocks the data directory.
func (n *Node) Close(ctx context.Context) error {
	n.Drain()
	var late error
	select {
	case <-n.idle:
	case <-ctx.Done():
		late = fmt.Errorf("closing the node: calls are still under way: %w", context.Cause(ctx))
	}
	return errors.Join(late, n.shutDown())
}

// shutDown stops whatever of the node was started.
func (n *Node) shutDown() error {
	n.mu.Lock()
	n.stopping = true
	n.mu.Unlock()
	if n.cancel != nil {
		n.cancel()
	}
	var problems []error
	for _, g := range n.allGroups() {
		problems = append(problems, g.stop())
	}
	if n.mux != nil {
		n.mux.close()
	}
	n.running.Wait()
	close(n.closed)
	return errors.Join(append(problems, n.lock.Close())...)
}

// ShardCount returns the number of shards; shards are numbered from 0.
func (n *Node) ShardCount() int { return len(n.shards) }

// Route returns the home shard of a queue: the one of its partition 0.
func (n *Node) Route(queue string) uint32 { return ShardOf(queue, 0, len(n.shards)) }

// Do proposes a request to a shard and waits for its results. See OutcomeOf for what an error means; if ctx ends first, the
// error wraps ErrCanceled when the request was not logged, else ErrUnknownOutcome. The request must not be changed
// meanwhile, nor, after an unknown outcome, ever.
func (n *Node) Do(ctx context.Context, shard uint32, req *fsm.Request) (Reply, error) {
	s, done, err := n.begin(shard)
	if err != nil {
		return Reply{}, err
	}
	defer done()
	return s.do(ctx, req)
}

// Reserve proposes a request that consists of one fsm.Reserve. If nothing is there to be granted, the call waits its turn among
// the waiters of the queues until something is granted or wait has passed; it then returns one Result without grants, and the
// zero Witness if nothing was logged. If ctx ends first, what was granted meanwhile is released without counting an attempt.
// Queues that do not exist yet may be named. On Drain it returns at once as if wait had passed.
func (n *Node) Reserve(ctx context.Context, shard uint32, req *fsm.Request, wait time.Duration) (Reply, error) {
	s, done, err := n.begin(shard)
	if err != nil {
		return Reply{}, err
	}
	defer done()
	return s.reserve(ctx, req, wait)
}

// Read runs f on the shard's machine such that f sees every request that was answered before Read was called. f runs
// under a shared lock: it must be quick and keep nothing that aliases the machine. now is the time at which reads evaluate:
// the later of the shard's clock and the stamp that the leader would issue. An error means that f was not run.
func (n *Node) Read(ctx context.Context, shard uint32, f func(m *fsm.Machine, now fsm.Time)) (Witness, error) {
	s, done, err := n.begin(shard)
	if err != nil {
		return Witness{}, err
	}
	defer done()
	return s.read(ctx, f)
}

// View is Read without the promise: f sees what this node has applied, which includes every reply that this node gave. It
// asks no other node and works on any replica and while the node drains, in particular to read the bodies of granted jobs
// with fsm.Machine.Held.
func (n *Node) View(shard uint32, f func(m *fsm.Machine, now fsm.Time)) (Witness, error) {
	if int64(shard) >= int64(len(n.shards)) {
		return Witness{}, fmt.Errorf("%w: %d of %d", ErrUnknownShard, shard, len(n.shards))
	}
	return n.shards[shard].view(f), nil
}
