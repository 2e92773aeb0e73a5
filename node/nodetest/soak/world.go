package soak

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// Options say what to run.
type Options struct {
	// Seed makes the schedule of faults and what the clients want. The same seed makes the same
	// schedule; what becomes of it differs, since neither Raft's timeouts nor the order of goroutines
	// come from the seed.
	Seed uint64
	// Length is how long faults go on, in virtual time; 5 minutes if it is 0.
	Length time.Duration
	// Trace takes all that the nodes log; nil for nothing.
	Trace io.Writer
	// plan changes what the seed planned, for planted mistakes; nil for nothing.
	plan func(*plan)
}

// Report is what came of one schedule.
type Report struct {
	Seed uint64
	// Virtual is the time that the cluster lived.
	Virtual time.Duration
	Nodes   int
	// Violations are the invariants that did not hold; empty is what everybody hopes for.
	Violations []string
	// Narrative is what was done to the cluster.
	Narrative []string
	// Counts are what happened, by name.
	Counts map[string]int
}

// String describes the schedule.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d nodes, %v of virtual time\n", r.Seed, r.Nodes, r.Virtual.Round(time.Second))
	for _, line := range slices.Concat(r.Narrative, []string{"violations:"}, r.Violations) {
		fmt.Fprintln(&b, line)
	}
	return b.String()
}

// World is one cluster with its disks, its network, its clients and its misfortunes.
type World struct {
	options Options
	plan    plan
	network *network
	history *history
	random  *rand.Rand // of the faults
	dying   sync.WaitGroup
	trap    atomic.Pointer[trap]

	mu        sync.Mutex
	members   []*member
	clusterID string
	lives     int
	visitors  int
	moving    bool // a change of members is under way

	// settings counts the versions of the settings of keyedQueue.
	settings atomic.Uint64

	// wild is when a clock was first set further wrong than the rest; 0 for never.
	wild atomic.Int64

	// left is what each node held in the end, by serial.
	left map[string]map[uint64]fsm.Job
}

// Run runs one schedule. It must be called inside a bubble of testing/synctest, and leaves no
// goroutine behind.
func Run(ctx context.Context, options Options) Report {
	w := newWorld(options)
	if err := w.found(ctx); err != nil {
		w.history.violated("founding", "%v", err)
	} else {
		w.live(ctx)
	}
	w.killAll()
	w.judge()
	return Report{
		Seed: options.Seed, Virtual: w.history.now(), Nodes: w.plan.nodes, Violations: w.history.violations,
		Narrative: w.history.narrative, Counts: w.history.counts,
	}
}

// killAll ends all nodes.
func (w *World) killAll() {
	for _, m := range w.all() {
		w.hold(m)
		w.kill(m, nil, nil, diskfault.KeepNames)
	}
	w.dying.Wait()
}

// newWorld returns a world without nodes.
func newWorld(options Options) *World {
	if options.Trace != nil {
		options.Trace = &oneAtATime{to: options.Trace}
	}
	w := &World{
		options: options, network: newNetwork(), history: newHistory(),
		random: rand.New(rand.NewPCG(options.Seed, 1)),
	}
	w.plan = newPlan(w.random)
	if options.Length > 0 {
		w.plan.length = options.Length
	}
	if options.plan != nil {
		options.plan(&w.plan)
	}
	return w
}

// live lets clients work while things go wrong, and then sees that all ends well.
func (w *World) live(ctx context.Context) {
	working, stop := context.WithCancel(ctx)
	var clients, supervisor sync.WaitGroup
	for i := range w.plan.clients {
		c := &client{
			world: w, name: fmt.Sprintf("c%d", i), number: uint64(i),
			random: rand.New(rand.NewPCG(w.options.Seed, uint64(i)+2)),
		}
		for _, role := range []func(context.Context){c.produce, c.consume, c.propose}[i%3 : i%3+1] {
			clients.Go(func() { role(working) })
		}
	}
	supervisor.Go(func() { w.supervise(working) })
	w.misfortunes()
	stop()
	clients.Wait()
	supervisor.Wait()
	w.heal(ctx)
	w.drain(ctx)
}

// found makes the cluster: the first node founds it and the others join.
func (w *World) found(ctx context.Context) error {
	for i := range w.plan.nodes {
		m := w.newMember(fmt.Sprintf("n%d", i+1))
		m.founder = i == 0
		w.mu.Lock()
		w.members = append(w.members, m)
		w.mu.Unlock()
		if !w.startMember(m) {
			return fmt.Errorf("node %s does not start", m.name)
		}
		if i == 0 {
			continue
		}
		deadline, cancel := context.WithTimeout(ctx, time.Minute)
		err := w.admit(deadline, m)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *World) newMember(name string) *member {
	return &member{name: name, clock: &faultyClock{base: clock.System()}, disk: diskfault.New()}
}

// supervise starts what is down again, after a while, as an init system does.
func (w *World) supervise(ctx context.Context) {
	random := rand.New(rand.NewPCG(w.options.Seed, 1_000))
	var starting sync.WaitGroup
	defer starting.Wait()
	for w.sleep(ctx, time.Second+time.Duration(random.Int64N(int64(2*time.Second)))) {
		for _, m := range w.all() {
			starting.Go(func() { w.startMember(m) })
		}
	}
}

// sleep waits, and reports false if ctx ended before.
func (w *World) sleep(ctx context.Context, d time.Duration) bool { return wait(ctx, d) }

// wait lets time pass, and reports false if ctx ended before. Timers of one bubble that are due at
// once, in several goroutines, have been seen to crash the runtime under the race detector
// (golang/go issue 78156), so there is none for no time.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// all returns the members.
func (w *World) all() []*member {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.members)
}

// names returns the names of all members.
func (w *World) names() (names []string) {
	for _, m := range w.all() {
		names = append(names, m.name)
	}
	return names
}

// hold keeps a member from being started; release ends that.
func (w *World) hold(m *member) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.held = true
}

func (w *World) release(m *member) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.held = false
}

// lifeOf returns the life of a member that takes calls, nil if it has none.
func (w *World) lifeOf(m *member) *life {
	w.mu.Lock()
	l := m.life
	w.mu.Unlock()
	if l == nil || !l.ready() {
		return nil
	}
	return l
}

// lifeNumber returns the life of one of the members.
func (w *World) lifeNumber(n int) *life {
	all := w.all()
	return w.lifeOf(all[n%len(all)])
}

// idOf returns the server id of a member.
func (w *World) idOf(m *member) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return m.serverID
}

// status returns the state of a group on a life.
func (l *life) status(group string) node.GroupStatus {
	st := l.node.Status()
	for _, g := range slices.Concat(st.Shards, st.Groups) {
		if g.Group == group {
			return g
		}
	}
	return node.GroupStatus{}
}

// leader returns a member that serves as a group's leader, with its life; nil if there is none now.
func (w *World) leader(group string) (*member, *life) {
	var best *member
	var bestLife *life
	var term uint64
	for _, m := range w.all() {
		if l := w.lifeOf(m); l != nil {
			if st := l.status(group); st.Serving && (best == nil || st.Term > term) {
				best, bestLife, term = m, l, st.Term
			}
		}
	}
	return best, bestLife
}

// await lets time pass until condition holds; false if it does not before ctx ends.
func (w *World) await(ctx context.Context, condition func() bool) bool {
	for !condition() {
		if !w.sleep(ctx, 50*time.Millisecond) {
			return false
		}
	}
	return true
}

// admit makes a member that runs a voter of both groups.
func (w *World) admit(ctx context.Context, m *member) error {
	l := w.lifeOf(m)
	if l == nil {
		return fmt.Errorf("%s is down", m.name)
	}
	if err := l.node.StartShard(ctx, 0); err != nil {
		return fmt.Errorf("starting the shard on %s: %w", m.name, err)
	}
	id := w.idOf(m)
	for _, group := range []string{catalogGroup, shardGroup} {
		if err := w.change(ctx, group, id, (*node.Node).AddNonvoter, func(st node.GroupStatus) bool {
			return slices.Contains(st.Nonvoters, id) || slices.Contains(st.Voters, id)
		}); err != nil {
			return err
		}
		caughtUp := w.await(ctx, func() bool {
			_, leads := w.leader(group)
			at := w.lifeOf(m)
			return leads != nil && at != nil && at.status(group).AppliedIndex+5 >= leads.status(group).CommitIndex
		})
		if !caughtUp {
			return fmt.Errorf("%s does not catch up in %s: %w", m.name, group, ctx.Err())
		}
		if err := w.change(ctx, group, id, (*node.Node).AddVoter, func(st node.GroupStatus) bool {
			return slices.Contains(st.Voters, id)
		}); err != nil {
			return err
		}
	}
	return nil
}

// memberChange is a method of a node.
type memberChange func(n *node.Node, ctx context.Context, group, id string, after uint64) error

// change repeats a change of members until the leader shows that it is done.
func (w *World) change(
	ctx context.Context, group, id string, carryOut memberChange, done func(node.GroupStatus) bool,
) error {
	ok := w.await(ctx, func() bool {
		_, l := w.leader(group)
		if l == nil {
			return false
		}
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		err := carryOut(l.node, attempt, group, id, l.status(group).MembersIndex)
		return err == nil && done(l.status(group))
	})
	if !ok {
		return fmt.Errorf("changing the place of %s in %s: %w", id, group, ctx.Err())
	}
	return nil
}
