package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/histogram"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/peer"
	"github.com/belfrydb/belfry/node/raftgroup"
	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/wakeup"
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

// groupConfig is what a group gets from its node.
type groupConfig struct {
	Name string
	// Dir holds the files of the group. Their mark has ClusterID, Self and Name. Self is the server id
	// of this node.
	Dir, ClusterID, Self string
	// Engine, FS and SegmentBytes configure the log store. Watchdog watches writes. DiskFailed ends
	// the process because of a write that failed.
	Engine       storage.Engine
	FS           disk.FS
	SegmentBytes int
	Watchdog     *disk.Watchdog
	DiskFailed   func(error)
	// SnapshotBytes is the least amount of log between two snapshots, TrailingBytes about how much of
	// the log before a snapshot is kept.
	SnapshotBytes, TrailingBytes int64
	// Throttle counts the entries of all groups, and spreads the writing of snapshots.
	Throttle *throttle
	// Grown is called when a snapshot may be due, or files may be removed. SnapshotEnded is called
	// after each snapshot, with its error.
	Grown         func()
	SnapshotEnded func(err error)

	Logger *slog.Logger
	// Transport returns the connections to the other members, for one start of Raft.
	Transport func() *peer.Transport
	// FirstVoters are the server ids of the first voters, if this node founds the group; else nil.
	// Known reports that the group is known to be here, or to have been here: its files must exist,
	// and it is not founded again.
	FirstVoters []string
	Known       func() bool
	// SetAside reports whether the replica is in quarantine. Fatal ends the process because the group
	// cannot go on.
	SetAside func() bool
	Fatal    func(error)

	Machine Machine
	// Renewal makes the machine anew; nil if a machine can only be made with the process.
	Renewal *renewal
	// After runs after each applied entry and each restored snapshot, Applied only after each applied
	// entry. Both run under the lock of the machine, and may be nil.
	After   func(Machine)
	Applied func(log *raft.Log, m Machine)
	// ApplySeconds receives how long each entry takes.
	ApplySeconds *histogram.Histogram

	// Lead runs in its own goroutine each time this node is elected, after every earlier entry is
	// applied. ctx ends with the leadership. The next call waits until this one has returned.
	Lead func(ctx context.Context, l *leadership)
}

// renewal makes the machine of a group anew, before a snapshot is restored or Raft begins again
// with the first entry.
type renewal struct {
	// Fresh returns a machine in its first state.
	Fresh func() Machine
	// Restores counts the snapshots that are being restored in place of a state. Restored runs under
	// the lock of the machine after a snapshot was restored.
	Restores *atomic.Int32
	Restored func(Machine)
	// Stateless runs when a running group cannot restore a snapshot and has no state. It runs on a
	// goroutine of Raft or of the group.
	Stateless func(why error)
}

// group is one Raft group on this node: a replica, its stores and its transport.
type group struct {
	cfg     groupConfig
	replica *replica

	mu       sync.Mutex // guards raft, which a restart replaces, and stopping
	raft     *instance
	stopping bool // nothing new is started

	reloading sync.Mutex // held from reading Raft's configuration to replacing it

	// submitting orders proposals and changes of leadership; see submit.
	submitting disk.ChannelMutex
	current    *leadership // nil unless this node leads
	latest     *leadership // the newest one
	serving    atomic.Pointer[leadership]

	wedged        wakeup.Signal // a request to restart; see catchUp
	running       sync.WaitGroup
	done          chan struct{}
	leaderChanges atomic.Uint64
	lastError     atomic.Pointer[string]
	snapshots     snapshotCounters
}

// leadership is one unbroken time as leader. Its address stands for its term. Raft reports each
// loss and each gain in order, so no two terms share a leadership.
type leadership struct {
	end  context.CancelFunc
	over chan struct{} // closed when its duties have ended
}

// newGroup returns a group that is not started yet.
func newGroup(cfg groupConfig) *group {
	return &group{
		cfg: cfg, done: make(chan struct{}), submitting: disk.NewChannelMutex(), wedged: wakeup.New(),
		replica: &replica{cfg: cfg, machine: cfg.Machine},
	}
}

// name returns the name of the group.
func (g *group) name() string { return g.cfg.Name }

// dir returns the directory of the group's files.
func (g *group) dir() string { return g.cfg.Dir }

// logger returns the logger of the group, whose messages carry its name.
func (g *group) logger() *slog.Logger { return g.cfg.Logger }

// start opens the stores, founds the group if it is new, and starts Raft. ctx is the parent of
// every leadership's context. Its end does not stop the group; stop does.
func (g *group) start(ctx context.Context) error {
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
func (g *group) open(notify chan<- bool) error {
	stores, err := storage.Open(g.cfg.Dir, g.storeConfig())
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
	if g.soleVoter() {
		if err := g.stand(); err != nil {
			return errors.Join(fmt.Errorf("setting the heartbeat timeout: %w", err), i.shutDown())
		}
	}
	return nil
}

// storeConfig returns the configuration of the group's files. They must exist if the group is known
// to be here, or to have been here.
func (g *group) storeConfig() storage.Config {
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
func (g *group) publish(i *instance) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return false
	}
	g.raft = i
	return true
}

// spawn runs f in a goroutine that stop waits for. It reports false if the group is being stopped.
func (g *group) spawn(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return false
	}
	g.running.Go(f)
	return true
}

// startRaft founds the group if necessary and starts Raft on the stores.
func (g *group) startRaft(stores *storage.Stores, trans *peer.Transport, notify chan<- bool) (*raft.Raft, error) {
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
	conf.Logger = raftgroup.NewLogger(g.cfg.Logger)
	if voters := g.founds(); voters != nil {
		if err := found(stores, voters); err != nil {
			return nil, fmt.Errorf("founding: %w", err)
		}
	}
	r, err := raft.NewRaft(conf, g.replica, raftgroup.NewRecentLog(stores.Log), stores.Stable,
		snapshotStore{stores.Snapshots, g.replica}, trans)
	if err != nil {
		return nil, fmt.Errorf("starting raft: %w", err)
	}
	g.replica.started.Store(true)
	trans.Attach(r)
	return r, nil
}

// watch follows the leadership and restarts the group when its storage asks for it. It always reads
// from notify: an unread channel would block Raft's main loop.
func (g *group) watch(ctx context.Context, notify chan bool) {
	for {
		restart := g.instance().stores.RestartNeeded()
		select {
		case leads := <-notify:
			g.lose() // two gains in a row mean that a loss lies between them
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
			g.lose()
			return
		}
	}
}

// renew restarts the group. If that fails, it waits for the end of the group and returns false.
func (g *group) renew(notify chan<- bool, reason string) bool {
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
func (g *group) restart(notify chan<- bool) error {
	g.lose()
	if err := g.close(); err != nil { // Raft reports nothing after it is told to stop
		return err
	}
	// Raft begins with the newest snapshot, or with the first entry if there is none.
	if g.cfg.Renewal != nil {
		g.replica.rewind()
	} else if _, ok := g.instance().stores.Snapshots.Newest(); !ok && g.replica.appliedIndex() > 0 {
		return errors.New("there is no snapshot to begin with, and a machine can only be made with the process")
	}
	return g.open(notify)
}

// gain begins a leadership. Its duties wait until those of the previous one have ended.
func (g *group) gain(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	l := &leadership{end: cancel, over: make(chan struct{})}
	g.submitting.Lock()
	before := g.latest
	g.current, g.latest = l, l
	g.submitting.Unlock()
	g.leaderChanges.Add(1)
	g.running.Go(func() {
		defer close(l.over)
		if before != nil {
			<-before.over
		}
		if err := g.catchUp(ctx); err != nil {
			if ctx.Err() == nil {
				g.note("waiting for the entries of earlier terms", err)
			}
			return
		}
		g.cfg.Lead(ctx, l)
	})
}

// catchUp waits until the entries of earlier terms are applied.
//
// A leader can be deposed during a transfer of its leadership to a follower that does not answer.
// It may then believe for ever that the transfer is in progress, and refuse everything when it is
// elected again (hashicorp/raft issue 696). Only a new instance of Raft helps.
func (g *group) catchUp(ctx context.Context) error {
	begun := time.Now()
	return insist(ctx, func() error {
		r := g.instance()
		err := r.outcome(r.Barrier(submitTimeout))
		if errors.Is(err, raft.ErrLeadershipTransferInProgress) && time.Since(begun) > transferMax {
			g.wedged.Send()
		}
		return raftgroup.ProposalError(err)
	})
}

// insist repeats an attempt to log an entry while it is refused unlogged, until ctx ends. While a
// long log is replayed, Raft's main loop waits for the machine and takes no entries, for longer
// than any timeout that could be set here. A leader that gave up would stay leader and never serve.
// Any other failure ends the leadership by itself.
func insist(ctx context.Context, attempt func() error) error {
	for {
		err := attempt()
		if outcome.Of(err) != outcome.NotApplied {
			return err
		}
		pause := time.NewTimer(insistPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// lose ends the leadership, if there is one. It does not wait for its duties to end: they may be
// waiting for Raft, and Raft waits for watch.
func (g *group) lose() {
	g.submitting.Lock()
	l := g.current
	g.current = nil
	g.serving.Store(nil)
	g.submitting.Unlock()
	if l != nil {
		l.end()
		g.leaderChanges.Add(1)
	}
}

// submit gives an entry to Raft in the given leadership. It returns ErrNoLeader if that leadership
// is over.
//
// Raft blocks in its report of a loss, and again in its report of the next gain, until watch reads
// it. watch reads a gain only after lose has run. So an entry that passes the check here is taken
// in the term of l or refused. It never gets into a later term, where it would come before that
// term's Lead.
func (g *group) submit(l *leadership, entry []byte) (raft.ApplyFuture, error) {
	g.submitting.Lock()
	defer g.submitting.Unlock()
	if g.current != l {
		return nil, outcome.ErrNoLeader
	}
	r := g.instance()
	return boundFuture{r.Apply(entry, submitTimeout), r}, nil
}

// serve admits callers. It reports false if the leadership is over.
func (g *group) serve(l *leadership) bool {
	g.submitting.Lock()
	defer g.submitting.Unlock()
	if g.current != l {
		return false
	}
	g.serving.Store(l)
	return true
}

// instance returns the present Raft instance.
func (g *group) instance() *instance {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.raft
}

// serves reports whether this node leads the group and serves.
func (g *group) serves() bool { return g.serving.Load() != nil }

// leader returns the serving leadership. If there is none, it returns the error for callers.
func (g *group) leader() (*leadership, error) {
	if l := g.serving.Load(); l != nil {
		return l, nil
	}
	if _, id := g.instance().LeaderWithID(); id != "" && string(id) != g.cfg.Self {
		return nil, fmt.Errorf("%s: %w: server %q does", g.cfg.Name, outcome.ErrNotLeader, id)
	}
	return nil, fmt.Errorf("%s: %w", g.cfg.Name, outcome.ErrNoLeader)
}

// soleVoter reports whether this node is the only voter.
func (g *group) soleVoter() bool {
	voters, _ := g.members()
	return len(voters) == 1 && voters[0] == g.cfg.Self
}

// members returns the server ids of the voters and of the nonvoters, from the latest configuration
// in the log. That configuration may never be committed.
func (g *group) members() (voters, nonvoters []string) {
	future := g.instance().GetConfiguration()
	if future.Error() != nil { // never: the library answers from memory
		return nil, nil
	}
	m := membership(0, future.Configuration())
	return m.Voters, m.Nonvoters
}

// confirm returns nil if l was still the leadership at some moment after the call began.
//
// A sole voter need not ask. Another leader would need this node's vote, or a second voter. Only
// this node could have added one, in l or after it.
func (g *group) confirm(ctx context.Context, l *leadership) error {
	if !g.soleVoter() {
		verified := make(chan error, 1)
		go func() { verified <- g.instance().VerifyLeader().Error() }()
		select {
		case err := <-verified:
			if err != nil {
				return fmt.Errorf("%s: %w: %w", g.cfg.Name, outcome.ErrNoLeader, err)
			}
		case <-ctx.Done():
			return outcome.Canceled(ctx)
		}
	}
	if g.serving.Load() != l {
		return fmt.Errorf("%s: %w", g.cfg.Name, outcome.ErrNoLeader)
	}
	return nil
}

// note logs a failure that is not a caller's, and keeps it for the status. A failure because the
// group is being stopped is ignored. Unreached or silent nodes are logged only at level Info,
// because they are normal where nodes start and stop; other messages report missing nodes.
func (g *group) note(doing string, err error) {
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

// stop ends the group. It may be called again, and concurrently.
func (g *group) stop() error {
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
func (g *group) close() error {
	i := g.instance()
	if i == nil {
		return nil
	}
	if err := i.shutDown(); err != nil {
		return fmt.Errorf("stopping %s: %w", g.cfg.Name, err)
	}
	return nil
}

// shardDir returns the directory of a shard below the data directory.
func shardDir(dir string, shard uint32) string {
	return filepath.Join(dir, shardsDir, fmt.Sprintf("%04d", shard))
}

// groupDir returns the directory of a group that is not a shard.
func groupDir(dir, group string) string { return filepath.Join(dir, groupsDir, group) }
