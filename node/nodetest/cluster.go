package nodetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/clock"
)

// awaitMax is how long, in virtual time, Await waits.
const awaitMax = time.Minute

// Options describe a cluster.
type Options struct {
	// Dir is where the data directories are made. It must come from outside the bubble, so that it
	// outlives the nodes.
	Dir string
	// Nodes is the number of nodes, Shards that of shards; both default to 3 and 1.
	Nodes, Shards int
	// Latency is how long a question for a clock takes to arrive; the answer takes no time, so that a
	// clock is taken to be ahead by half of it.
	Latency time.Duration
	// Clocks is how wrong the members' wall clocks are at first; those of members beyond its length
	// are right.
	Clocks []time.Duration
	// Configure changes the configuration of a node before it starts; nil for nothing.
	Configure func(cfg *node.Config)
	Logger    *slog.Logger
}

// Cluster is a running cluster. It must be made and used inside a bubble of testing/synctest, by
// one goroutine.
type Cluster struct {
	t       testing.TB
	options Options
	network *network
	id      string
	members []*Member

	mu    sync.Mutex
	muted bool                  // no node answers questions for its time
	nodes map[string]*node.Node // that run, by name, for those who ask for their clocks
}

// Member is one node of a cluster.
type Member struct {
	// Node is nil while the member is stopped.
	Node  *node.Node
	Clock *Clock
	name  string
	// ServerID stays the same over restarts.
	ServerID string
}

// New starts a cluster: the first node founds it, and the others join every shard as voters. It
// ends with the test.
func New(t testing.TB, options Options) *Cluster {
	t.Helper()
	if options.Nodes == 0 {
		options.Nodes = 3
	}
	if options.Shards == 0 {
		options.Shards = 1
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Cluster{t: t, options: options, network: newNetwork(), nodes: map[string]*node.Node{}}
	t.Cleanup(func() {
		for _, m := range c.members {
			c.Stop(m)
		}
	})
	for i := range options.Nodes {
		m := &Member{name: fmt.Sprintf("n%d", i+1), Clock: &Clock{Source: clock.System()}}
		if i < len(options.Clocks) {
			m.Clock.Step(options.Clocks[i])
		}
		c.members = append(c.members, m)
		c.Start(m)
		c.id = m.Node.Status().ClusterID
		if i > 0 {
			c.Join(m)
		}
	}
	return c
}

// Join makes a member that runs a voter of every shard. Its server id must be new to them.
func (c *Cluster) Join(m *Member) {
	c.t.Helper()
	for shard := range uint32(c.options.Shards) {
		leader, group := c.Leader(shard), fmt.Sprintf("shard-%d", shard)
		if err := m.Node.StartShard(c.t.Context(), shard); err != nil {
			c.t.Fatal(err)
		}
		if err := leader.Node.AddNonvoter(c.t.Context(), group, m.ServerID, 0); err != nil {
			c.t.Fatal(err)
		}
		c.Await("the new member has caught up", func() bool {
			return m.status(shard).AppliedIndex >= leader.status(shard).CommitIndex
		})
		if err := leader.Node.AddVoter(c.t.Context(), group, m.ServerID, 0); err != nil {
			c.t.Fatal(err)
		}
	}
}

// Start starts a member that is stopped.
func (c *Cluster) Start(m *Member) {
	c.t.Helper()
	if err := c.TryStart(m); err != nil {
		c.t.Fatalf("starting node %s: %v", m.name, err)
	}
}

// TryStart is Start for a member that may have reason to refuse: the error is that of node.Open,
// and the member stays stopped.
func (c *Cluster) TryStart(m *Member) error {
	cfg := node.Config{
		Dir: filepath.Join(c.options.Dir, m.name), Name: m.name, Shards: c.options.Shards, Join: c.id, Clock: m.Clock,
		Clocks: clocks{c, m.name},
		Peers:  c.network.listen(m.name), Dial: c.network.dialer(m.name), Resolve: addressesOf,
		Logger: c.options.Logger.With("node", m.name),
		Fatal:  func(err error) { c.t.Errorf("node %s gave up: %v", m.name, err) },
	}
	if c.options.Configure != nil {
		c.options.Configure(&cfg)
	}
	n, err := node.Open(c.t.Context(), cfg)
	if err != nil {
		return errors.Join(err, cfg.Peers.Close()) // no call waits for it
	}
	m.Node, m.ServerID = n, n.Status().ServerID
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[m.name] = n
	return nil
}

// Name returns the member's name, which is in its configuration.
func (m *Member) Name() string { return m.name }

// Mute makes all nodes refuse questions for their time, until Unmute.
func (c *Cluster) Mute() { c.mute(true) }

// Unmute ends Mute.
func (c *Cluster) Unmute() { c.mute(false) }

func (c *Cluster) mute(muted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.muted = muted
}

// running returns the node of a name, nil if it does not run or does not tell the time.
func (c *Cluster) running(name string) *node.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.muted {
		return nil
	}
	return c.nodes[name]
}

// Stop stops a member, as far as the others can tell without warning. It may be stopped already.
func (c *Cluster) Stop(m *Member) {
	c.t.Helper()
	if err := c.stop(m); err != nil {
		c.t.Errorf("closing node %s: %v", m.name, err)
	}
}

// StopFailed is Stop for a member whose process ended itself, in Config.Fatal: what is left of it
// need not close without an error.
func (c *Cluster) StopFailed(m *Member) { _ = c.stop(m) }

func (c *Cluster) stop(m *Member) error {
	if m.Node == nil {
		return nil
	}
	c.network.isolate(m.name)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), awaitMax)
	defer cancel()
	err := m.Node.Close(ctx)
	c.network.heal(m.name)
	m.Node = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.nodes, m.name)
	return err
}

// Shut stops a member as an operator does: it hands over what it leads first. It returns a function
// that waits for the end.
func (c *Cluster) Shut(m *Member) (wait func()) {
	c.t.Helper()
	n := m.Node
	m.Node = nil // callers go elsewhere
	closed := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), awaitMax)
	go func() { closed <- n.Close(ctx) }()
	return func() {
		defer cancel()
		if err := <-closed; err != nil {
			c.t.Errorf("closing node %s: %v", m.name, err)
		}
	}
}

// Isolate cuts a member off from all others.
func (c *Cluster) Isolate(m *Member) { c.network.isolate(m.name) }

// FlipBits has one bit of each write between nodes flipped with a probability, until it is called
// with 0. It returns how many were flipped so far.
func (c *Cluster) FlipBits(probability float64) int {
	c.network.flip(probability)
	return c.network.flippedBits()
}

// Shield has no other member connect to this one, which connects to the others as before.
func (c *Cluster) Shield(m *Member) { c.network.shield(m.name) }

// Heal ends Isolate and Shield.
func (c *Cluster) Heal(m *Member) { c.network.heal(m.name) }

// Members returns all members, in the order in which they were first started.
func (c *Cluster) Members() []*Member { return c.members }

// Leader waits until a member serves as a shard's leader and returns it.
func (c *Cluster) Leader(shard uint32) *Member {
	c.t.Helper()
	return c.LeaderExcept(shard, nil)
}

// LeaderExcept is Leader for one who does not count: a leader who was cut off and does not know it
// yet.
func (c *Cluster) LeaderExcept(shard uint32, except *Member) (leader *Member) {
	c.t.Helper()
	c.Await("a leader serves", func() bool {
		for _, m := range c.members {
			if m != except && m.Node != nil && m.status(shard).Serving {
				leader = m
				return true
			}
		}
		return false
	})
	return leader
}

// Followers returns the members that run and do not lead a shard.
func (c *Cluster) Followers(shard uint32) (followers []*Member) {
	leader := c.Leader(shard)
	for _, m := range c.members {
		if m != leader && m.Node != nil {
			followers = append(followers, m)
		}
	}
	return followers
}

// Await lets time pass until condition holds, and fails the test if it does not within a minute.
func (c *Cluster) Await(what string, condition func() bool) {
	c.t.Helper()
	for range awaitMax / (10 * time.Millisecond) {
		synctest.Wait()
		if condition() {
			return
		}
		tick := time.NewTimer(10 * time.Millisecond)
		<-tick.C
	}
	for _, m := range c.members {
		if m.Node != nil {
			c.t.Logf("%s: %+v", m.name, m.Node.Status().Shards)
		}
	}
	c.t.Fatalf("after %v it is not true that %s", awaitMax, what)
}

// Converge waits until all members that run have applied the same entries of a shard, and fails the
// test if their states differ then.
func (c *Cluster) Converge(shard uint32) {
	c.t.Helper()
	var digests map[string]uint64
	c.Await("all members have applied the same entries", func() bool {
		digests = map[string]uint64{}
		indexes := map[uint64]bool{}
		for _, m := range c.members {
			if m.Node == nil {
				continue
			}
			st := m.status(shard)
			digests[m.name] = st.Digest
			indexes[m.index(shard)] = true
		}
		return len(indexes) == 1
	})
	distinct := map[uint64]bool{}
	for _, digest := range digests {
		distinct[digest] = true
	}
	if len(distinct) != 1 {
		c.t.Errorf("at the same index the digests of shard %d differ: %x", shard, digests)
	}
}

// status returns the state of a shard on the member, the zero status if it is not there.
func (m *Member) status(shard uint32) node.GroupStatus {
	for _, st := range m.Node.Status().Shards {
		if st.Shard == shard {
			return st
		}
	}
	return node.GroupStatus{}
}

// index returns the index of the entry that the member's machine applied last.
func (m *Member) index(shard uint32) uint64 {
	_, w, err := m.Node.Peek(shard, &fsm.QueueQuery{})
	if err != nil {
		return 0
	}
	return w.Index
}
