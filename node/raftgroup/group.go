package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/peer"
	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/wakeup"
)

const (
	// After a leader fails, each follower misses it within one to two heartbeat timeouts. Two
	// followers must both miss it before one votes for the other. If their votes split, they try
	// again after one to two election timeouts. Raft does not allow an election timeout shorter
	// than the heartbeat timeout.
	heartbeatTimeout = 700 * time.Millisecond
	electionTimeout  = 700 * time.Millisecond
	leaseTimeout     = 500 * time.Millisecond
	// commitTimeout is when followers learn, besides with the heartbeats, how far the leader has
	// committed, if no further entry tells them. A caller that waits for this asks for it
	// (Group.Spread). Other calls do not need it: leaders answer them, and a new leader applies
	// everything first. With Raft's own 50 ms, an idle node spends most of its processor time on
	// it.
	commitTimeout      = 500 * time.Millisecond
	submitTimeout      = 5 * time.Second
	insistPause        = 100 * time.Millisecond
	trailingEntriesMin = 64
	// transferMax is far longer than Raft's own limit for a transfer of the leadership.
	transferMax = 5 * time.Second
	never       = 365 * 24 * time.Hour
)

// Group is one Raft group on this node: a replica, its stores and its transport. Its methods may be
// called from any goroutine. Those that ask Raft or the files need a group that was started.
type Group struct {
	cfg     Config
	replica *Replica

	mu       sync.Mutex // guards raft, which a restart replaces, and stopping
	raft     *instance
	stopping bool // nothing new is started

	reloading sync.Mutex // held from reading Raft's configuration to replacing it

	// submitting orders proposals and changes of leadership; see submit.
	submitting disk.ChannelMutex
	current    *Leadership // nil unless this node leads
	latest     *Leadership // the newest one
	serving    atomic.Pointer[Leadership]

	wedged        wakeup.Signal // a request to restart; see catchUp
	running       sync.WaitGroup
	done          chan struct{}
	leaderChanges atomic.Uint64
	lastError     atomic.Pointer[string]
	snapshots     snapshotCounters
}

// New returns a group that is not started yet.
func New(cfg Config) *Group {
	g := &Group{
		cfg: cfg, done: make(chan struct{}), submitting: disk.NewChannelMutex(), wedged: wakeup.New(),
		replica: &Replica{cfg: cfg, machine: cfg.Machine},
	}
	g.replica.log.Store(NewRecentLog(nil))
	return g
}

// Name returns the name of the group.
func (g *Group) Name() string { return g.cfg.Name }

// Dir returns the directory of the group's files.
func (g *Group) Dir() string { return g.cfg.Dir }

// Logger returns the logger of the group, whose messages carry its name.
func (g *Group) Logger() *slog.Logger { return g.cfg.Logger }

// Start opens the stores, founds the group if it is new, and starts Raft. ctx is the parent of
// every leadership's context. Its end does not stop the group; Stop does.
func (g *Group) Start(ctx context.Context) error {
	notify := make(chan bool)
	founds := g.founds()
	if err := g.open(notify); err != nil {
		return fmt.Errorf("starting %s: %w", g.cfg.Name, err)
	}
	g.running.Go(func() { g.watch(context.WithoutCancel(ctx), notify) })
	if len(founds) > 1 {
		g.running.Go(func() { g.standWhenFounded(context.WithoutCancel(ctx), founds) })
	} else {
		g.running.Go(g.standSoon)
	}
	return nil
}

// open opens the stores and starts Raft on them.
func (g *Group) open(notify chan<- bool) error {
	stores, err := storage.Open(g.cfg.Dir, g.StoreConfig())
	if err != nil {
		return err
	}
	trans := g.cfg.Transport()
	r, err := g.startRaft(stores, trans, notify)
	if err != nil {
		return errors.Join(err, trans.Close(), stores.Close())
	}
	i := &instance{Raft: r, stores: stores, replica: g.replica, transport: trans, ended: make(chan struct{})}
	if !g.publish(i) {
		return errors.Join(outcome.ErrShuttingDown, i.shutDown())
	}
	g.planSnapshot()
	if g.SoleVoter() {
		if err := g.stand(); err != nil {
			return errors.Join(fmt.Errorf("setting the heartbeat timeout: %w", err), i.shutDown())
		}
	}
	return nil
}

// StoreConfig returns the configuration of the group's files. They must exist if the group is known
// to be here, or to have been here.
func (g *Group) StoreConfig() storage.Config {
	mode := storage.CreateIfMissing
	if g.cfg.Known() {
		mode = storage.MustExist
	}
	return storage.Config{
		Group: g.cfg.ClusterID + "/" + g.cfg.Self + "/" + g.cfg.Name,
		Mode:  mode, Engine: g.cfg.Engine, FS: g.cfg.FS, SegmentBytes: g.cfg.SegmentBytes,
		Logger: g.cfg.Logger, Watchdog: g.cfg.Watchdog, OnFatal: g.cfg.DiskFailed,
	}
}

// publish makes i the instance of the group. It refuses while the group is being stopped: no call
// would stop i then.
func (g *Group) publish(i *instance) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return false
	}
	g.raft = i
	return true
}

// Spawn runs f in a goroutine that stop waits for. It reports false if the group is being stopped.
func (g *Group) Spawn(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return false
	}
	g.running.Go(f)
	return true
}

// startRaft founds the group if necessary and starts Raft on the stores.
func (g *Group) startRaft(stores *storage.Stores, trans *peer.Transport, notify chan<- bool) (*raft.Raft, error) {
	g.replica.stopped.Store(false)
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(g.cfg.Self)
	conf.HeartbeatTimeout = heartbeatTimeout + electNow
	conf.ElectionTimeout = electionTimeout + electNow
	conf.LeaderLeaseTimeout = leaseTimeout
	conf.CommitTimeout = commitTimeout
	conf.MaxAppendEntries = peer.MessageEntriesMax
	conf.ShutdownOnRemove = false // other groups share the process
	conf.SnapshotInterval = never // the node decides, by bytes
	conf.SnapshotThreshold = math.MaxUint64
	conf.NotifyCh = notify
	conf.Logger = NewLogger(g.cfg.Logger)
	if voters := g.founds(); voters != nil {
		if err := found(stores, voters); err != nil {
			return nil, fmt.Errorf("founding: %w", err)
		}
	}
	log := NewRecentLog(stores.Log)
	g.replica.log.Store(log)
	r, err := raft.NewRaft(conf, g.replica, log, termStore{stores.Stable, log},
		snapshotStore{stores.Snapshots, g.replica}, trans)
	if err != nil {
		return nil, fmt.Errorf("starting raft: %w", err)
	}
	g.replica.started.Store(true)
	trans.Attach(r, log.Unwritten) // first: from now on, no follower learns of what is not durable
	// A sole voter has nobody to wait for beside its own disk.
	log.WriteBeside(func() bool { return r.State() == raft.Leader && g.replica.VoterCount() > 1 })
	return r, nil
}

// watch follows the leadership and restarts the group when its storage asks for it. It always reads
// from notify: an unread channel would block Raft's main loop.
func (g *Group) watch(ctx context.Context, notify chan bool) {
	for {
		restart := g.instance().stores.RestartNeeded()
		select {
		case leads := <-notify:
			g.EndLeadership() // two gains in a row mean that a loss lies between them
			g.beat(leads)
			if leads {
				g.gain(ctx)
			}
		case <-restart:
			if !g.renew(notify, "an installed snapshot replaced a longer log") {
				return
			}
		case <-g.wedged:
			if !g.renew(notify, "a handing over of the leadership never ended") {
				return
			}
		case <-g.done:
			g.EndLeadership()
			return
		}
	}
}

// renew restarts the group. If that fails, it waits for the end of the group and returns false.
func (g *Group) renew(notify chan<- bool, reason string) bool {
	g.cfg.Logger.Warn("restarting the group", "reason", reason)
	err := g.restart(notify)
	if err == nil {
		return true
	}
	if !errors.Is(err, outcome.ErrShuttingDown) && !g.cfg.SetAside() {
		g.cfg.Fatal(fmt.Errorf("restarting %s because %s: %w", g.cfg.Name, reason, err))
	}
	<-g.done
	return false
}

// restart stops Raft and starts it again on the same files.
func (g *Group) restart(notify chan<- bool) error {
	g.EndLeadership()
	if err := g.close(); err != nil { // Raft reports nothing after it is told to stop
		return err
	}
	// Raft begins with the newest snapshot, or with the first entry if there is none.
	if g.cfg.Renewal != nil {
		g.replica.rewind()
	} else if _, ok := g.instance().stores.Snapshots.Newest(); !ok && g.replica.AppliedIndex() > 0 {
		return errors.New("there is no snapshot to begin with, and a machine can only be made with the process")
	}
	return g.open(notify)
}

// instance returns the present Raft instance.
func (g *Group) instance() *instance {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.raft
}

// Note logs a failure that is not a caller's, and keeps it for the status. A failure because the
// Group is being stopped is ignored. Unreached or silent nodes are logged only at level Info,
// because they are normal where nodes start and stop; other messages report missing nodes.
func (g *Group) Note(doing string, err error) {
	g.mu.Lock()
	stopping := g.stopping
	g.mu.Unlock()
	if stopping {
		return
	}
	text := doing + ": " + err.Error()
	g.lastError.Store(&text)
	say := g.cfg.Logger.Warn
	if errors.Is(err, outcome.ErrNoLeader) || errors.Is(err, outcome.ErrUnknownOutcome) {
		say = g.cfg.Logger.Info
	}
	say("the group is in trouble", "doing", doing, "error", err)
}

// Stop ends the group. It may be called again, and concurrently.
func (g *Group) Stop() error {
	g.mu.Lock()
	first := !g.stopping
	g.stopping = true
	g.mu.Unlock()
	err := g.close()
	if first {
		close(g.done)
	}
	g.running.Wait()
	return err
}

// close stops Raft and closes the stores, if they were opened.
func (g *Group) close() error {
	i := g.instance()
	if i == nil {
		return nil
	}
	if err := i.shutDown(); err != nil {
		return fmt.Errorf("stopping %s: %w", g.cfg.Name, err)
	}
	return nil
}

// Replica returns the part of the group that applies entries.
func (g *Group) Replica() *Replica { return g.replica }

// LeaderID returns the server id of the group's leader as far as this node knows; empty if it knows
// none.
func (g *Group) LeaderID() string {
	_, id := g.instance().LeaderWithID()
	return string(id)
}

// IsLeader reports whether Raft has elected this node, which need not serve yet.
func (g *Group) IsLeader() bool { return g.instance().State() == raft.Leader }

// LastIndex returns the index of the last entry in the log.
func (g *Group) LastIndex() uint64 { return g.instance().LastIndex() }

// Spread tells the followers at once how far this node has committed. Without it, they learn that
// with the next entry, or within a second. This node should lead the group. Spread does not wait
// for a follower.
func (g *Group) Spread() { g.instance().Barrier(submitTimeout) }

// Abstain keeps this node from elections in the group for peer.AbstainFor. A leadership that it has
// goes on.
func (g *Group) Abstain() { g.instance().transport.Abstain() }
