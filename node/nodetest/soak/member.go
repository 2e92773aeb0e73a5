package soak

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

const (
	dataDir      = "/data"
	catalogGroup = "catalog"
	shardGroup   = "shard-0"

	// Small, so that minutes are enough for many snapshots and many files of log.
	snapshotBytes = 24 << 10
	segmentBytes  = 32 << 10
	diskLowBytes  = 1 << 20
)

// faultyClock is a node's clock that can be wrong by a constant and lose time.
type faultyClock struct {
	base clock.Source
	off  atomic.Int64 // of the wall clock
	lost atomic.Int64 // of the monotonic clock, in suspensions
}

// Wall implements clock.Source.
func (c *faultyClock) Wall() fsm.Time { return c.base.Wall() + fsm.Time(c.off.Load()) }

// Monotonic implements clock.Source.
func (c *faultyClock) Monotonic() time.Duration {
	return c.base.Monotonic() - time.Duration(c.lost.Load())
}

// member is one node with its disk, over all its lives. Its fields are guarded by world.mu.
type member struct {
	name  string
	clock *faultyClock
	disk  *diskfault.Disk // of the present life, or of the next one
	life  *life           // nil while it is down
	// serverID is the present one; a wiped disk gets another.
	serverID string
	// founder made the cluster, with this disk.
	founder bool
	// starting is set while a start is in progress, held while the member must not be started.
	starting, held bool
	// outside is set while the member is not a voter yet; leaving are the server ids that it had
	// before and that are still to be removed. Only who has claimed the changes of members touches
	// them.
	outside bool
	leaving []string
}

// visits reports whether a member is one that came for a while and could not leave yet. Only who
// has claimed the changes of members may ask.
func (m *member) visits() bool { return len(m.leaving) > 0 && !m.outside }

// life is one run of a member's process.
type life struct {
	name     string
	number   int
	listener *listener
	gate     gate
	over     chan struct{} // closed at the end; after that no node sees what the goroutines of this life do
	opened   chan struct{} // closed when node is set, or could not be opened
	ctx      context.Context
	end      context.CancelFunc
	disk     *diskfault.Disk
	trouble  atomic.Pointer[trouble]
	trap     *atomic.Pointer[trap] // the world's
	failed   atomic.Bool           // a write of its log or vote has failed
	troubled atomic.Bool           // it had trouble, or was paused: a reason to end itself
	ended    bool                  // guarded by history.mu

	node    *node.Node
	catalog *node.Group
}

func (l *life) isOver() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

// ready reports whether the life takes calls.
func (l *life) ready() bool {
	select {
	case <-l.opened:
		return l.catalog != nil && !l.isOver()
	default:
		return false
	}
}

// trouble is what a disk suffers from.
type trouble struct {
	slow    time.Duration // for each write, on average
	hung    bool
	failing func(diskfault.Op) error
	ended   chan struct{}
}

// trap springs at a step of a disk, before the step is taken: without it the power would always be
// cut between two things, since a disk takes no virtual time.
type trap struct {
	left   atomic.Int64 // steps to go
	spring func()
}

// hook applies faults to the disk of a life. It touches only writes that Raft's main loop waits
// for, and those of snapshots: others are made under locks of the libraries, and no virtual time
// passes while a goroutine waits for a lock.
func (l *life) hook(o diskfault.Op) error {
	if t := l.trap.Load(); t != nil && o.Mutates() && !l.isOver() && t.left.Add(-1) == 0 {
		t.spring()
	}
	if o.Kind != diskfault.OpWrite && o.Kind != diskfault.OpSync {
		return nil
	}
	entries := strings.HasSuffix(o.Path, ".wal")
	if !entries && !strings.Contains(o.Path, "/stable") && !strings.Contains(o.Path, ".snap") || l.isOver() {
		return nil
	}
	l.gate.pass(l.over)
	t := l.trouble.Load()
	if t == nil || l.isOver() {
		return nil
	}
	switch {
	case t.failing != nil:
		return l.fail(t.failing(o), o)
	case t.hung:
		select {
		case <-t.ended:
		case <-l.over:
		}
	case o.Kind == diskfault.OpSync:
		pause := time.NewTimer(rand.N(2 * t.slow))
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-l.over:
		}
	}
	return nil
}

// fail passes the failure of an operation on. The first one of a log or of a vote ends the process;
// who meets another one before it has ended would have Raft panic, which a process that ends does
// not live to see.
func (l *life) fail(err error, o diskfault.Op) error {
	if err != nil && !strings.Contains(o.Path, ".snap") && l.failed.Swap(true) {
		<-l.over
		runtime.Goexit()
	}
	return err
}

// startMember starts a member that is down. It reports false if it is up, is being started, or must
// not be started.
func (w *World) startMember(m *member) bool {
	w.mu.Lock()
	if m.life != nil || m.starting || m.held {
		w.mu.Unlock()
		return false
	}
	m.starting = true
	w.lives++
	ctx, cancel := context.WithCancel(context.Background())
	l := &life{
		name: m.name, number: w.lives, over: make(chan struct{}), opened: make(chan struct{}), ctx: ctx, end: cancel,
		disk: m.disk, trap: &w.trap,
	}
	l.listener = w.network.listen(l)
	m.life = l
	cfg := w.config(m, l)
	w.mu.Unlock()

	err := w.open(l, cfg)
	w.mu.Lock()
	m.starting = false
	if err == nil && m.life == l {
		m.serverID = l.node.Status().ServerID
		if m.founder {
			w.clusterID = l.node.Status().ClusterID
		}
	}
	w.mu.Unlock()
	close(l.opened)
	if err != nil {
		if !l.isOver() {
			w.history.violated("start", "%s does not start again: %v", m.name, err)
		}
		w.kill(m, l, nil, diskfault.KeepNames)
		return false
	}
	l.disk.SetHook(l.hook)
	return true
}

// config returns the configuration of a life. w.mu is held.
func (w *World) config(m *member, l *life) node.Config {
	var join string
	if !m.founder {
		join = w.clusterID
	}
	var files disk.FS = m.disk
	if w.plan.wrapDisk != nil {
		files = w.plan.wrapDisk(m.disk)
	}
	logger := slog.New(&listenerToLogs{history: w.history, life: l, trace: w.options.Trace})
	return node.Config{
		Dir: dataDir, Name: m.name, Shards: 1, Join: join, FS: files, SegmentBytes: segmentBytes, Clock: m.clock,
		Clocks: clocks{w, l}, Peers: l.listener,
		Dial: w.network.dialer(l), Resolve: addressesOf, Logger: logger, SnapshotBytes: snapshotBytes, TrailingBytes: 1,
		DiskLowBytes: diskLowBytes,
		Machine:      fsm.Config{Seed: 1}, Calendar: w.plan.calendar,
		Applied: func(e node.AppliedEntry) { w.history.applied(l, shardGroup, e) },
		Fatal:   func(err error) { w.fatal(m, l, err) },
	}
}

// open opens the node of a life and its catalog.
func (w *World) open(l *life, cfg node.Config) error {
	n, err := node.Open(l.ctx, cfg)
	if err != nil {
		return err
	}
	l.node = n
	if w.plan.keyed {
		if err := n.Speak(fsm.KeysFormat); err != nil {
			return err
		}
	}
	machine := &tally{watch: func(e node.AppliedEntry) {
		w.history.applied(l, catalogGroup, e)
	}, plan: &w.plan, owner: l.name}
	l.catalog, err = n.StartGroup(l.ctx, node.GroupConfig{Name: catalogGroup, Machine: machine})
	return err
}

// fatal is the end of a process that found that it cannot go on. It does not return to a goroutine
// that would go on all the same.
func (w *World) fatal(m *member, l *life, err error) {
	if l.isOver() {
		return
	}
	var corrupt *disk.CorruptError
	if errors.As(err, &corrupt) || !l.troubled.Load() {
		w.history.violated("fatal", "%s gave up: %v", m.name, err)
	}
	w.history.count("process ended itself")
	w.kill(m, l, nil, diskfault.KeepNames)
	select {
	case <-l.opened:
		runtime.Goexit()
	default: // in the goroutine that starts the node
	}
}

// kill ends a life of a member, if it is still this one (nil: any), and returns whether it did. The
// member stays down.
func (w *World) kill(m *member, which *life, fate diskfault.Fate, names diskfault.Names) bool {
	w.mu.Lock()
	l := m.life
	if l == nil || which != nil && l != which {
		w.mu.Unlock()
		return false
	}
	m.life = nil
	// In this order: who hears from the life after its disk was taken would know of what is lost.
	w.history.endLife(l)
	close(l.over)
	w.network.sever(l)
	m.disk = l.disk.Fork(fate, names)
	l.disk.SetHook(nil)
	w.mu.Unlock()
	l.end()
	w.dying.Go(func() {
		<-l.opened
		if l.node == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := l.node.Close(ctx); err != nil && w.options.Trace != nil {
			_, _ = fmt.Fprintf(w.options.Trace, "closing %s: %v\n", l.name, err)
		}
	})
	return true
}
