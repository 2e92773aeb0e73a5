package placement

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/node"
)

// fakeCluster is nodes and a catalog in memory. A node runs what the catalog places on it, and has
// everything at once.
type fakeCluster struct {
	mu         sync.Mutex
	now        time.Time
	nodes_     []catalog.Node
	placements map[uint32]catalog.Placement
	members    map[string]*worldShard // by group
	down       map[string]bool
	processes  map[string]string // of the nodes that were restarted
	departed   []catalog.Departure
	commit     uint64 // grows with each report
	refuse     error  // what every change meets
	// unreached are the nodes that each one does not reach.
	unreached map[string][]string
}

func newFakeCluster(shards int, first string) *fakeCluster {
	c := &fakeCluster{now: time.Unix(1_800_000_000, 0), placements: map[uint32]catalog.Placement{},
		members: map[string]*worldShard{}, down: map[string]bool{}, processes: map[string]string{}}
	c.nodes_ = []catalog.Node{{Name: first, ServerID: first}}
	for i := range uint32(shards) {
		c.members[catalog.ShardGroup(i)] = &worldShard{shard: i, leader: first, voters: []string{first}, members: 1}
	}
	c.members[catalog.GroupName] = &worldShard{shard: 1 << 20, leader: first, voters: []string{first}, members: 1}
	return c
}

func (c *fakeCluster) Nodes() []catalog.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.nodes_)
}

func (c *fakeCluster) Placements() (all []catalog.Placement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.placements {
		all = append(all, p)
	}
	return all
}

func (c *fakeCluster) Place(_ context.Context, p catalog.Placement) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.Servers = slices.Sorted(slices.Values(p.Servers))
	c.placements[p.Shard] = p
	return nil
}

func (c *fakeCluster) RemoveNode(_ context.Context, d catalog.Departure) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes_ = slices.DeleteFunc(c.nodes_, func(n catalog.Node) bool { return n.ServerID == d.ServerID })
	c.departed = append(c.departed, d)
	return true, nil
}

func (c *fakeCluster) Settings() catalog.Settings {
	return catalog.Settings{Factor: 3, Grace: catalog.DefaultGrace}
}

var errDown = errors.New("it is down")

func (c *fakeCluster) Report(_ context.Context, id string) (Report, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down[id] {
		return Report{}, errDown
	}
	c.commit++
	r := Report{ServerID: id, Process: c.processes[id]}
	for _, other := range c.unreached[id] {
		r.Unreached = append(r.Unreached, Unreached{ServerID: other})
	}
	for name, m := range c.members {
		c.elect(m)
		g := GroupReport{Group: name, Term: 1, Applied: c.commit, Commit: c.commit}
		if slices.Contains(c.unreached[m.leader], id) {
			g.Applied = 1 // it gets nothing from its leader
		}
		if m.leader == id {
			g.Serving, g.Voters, g.Nonvoters, g.Members = true, slices.Clone(m.voters), slices.Clone(m.nonvoters), m.members
		}
		if slices.Contains(m.voters, id) || slices.Contains(m.nonvoters, id) ||
			slices.Contains(c.placements[m.shard].Servers, id) {
			r.Groups = append(r.Groups, g)
		}
	}
	return r, nil
}

// elect gives a group another leader if its own is down and most voters are not.
func (c *fakeCluster) elect(m *worldShard) {
	up := slices.DeleteFunc(slices.Clone(m.voters), func(id string) bool { return c.down[id] })
	switch {
	case len(up) <= len(m.voters)/2:
		m.leader = ""
	case !slices.Contains(up, m.leader):
		m.leader = up[0]
	}
}

func (c *fakeCluster) Change(_ context.Context, id string, ch Change) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[ch.Group]
	if c.refuse != nil {
		return c.refuse
	}
	if c.down[id] || m.leader != id {
		return errDown
	}
	if ch.Action != Transfer {
		if ch.After != m.members {
			return node.ErrOvertaken
		}
		m.members++
	}
	s := sim{world: world{nodes: []worldNode{{server: ch.ServerID}}, shards: []worldShard{*m}}}
	s.shards[0].caughtUp = slices.Concat(m.voters, m.nonvoters)
	s.t = &testing.T{} // a step that is impossible ends the goroutine
	s.apply(step{shard: 0, action: ch.Action, server: ch.ServerID})
	*m = s.shards[0]
	return nil
}

func (c *fakeCluster) Quarantine(context.Context, string, Divergence) error { return nil }

func (c *fakeCluster) placer() *Placer {
	return &Placer{
		record: c, nodes: c, logger: slog.New(slog.DiscardHandler), shards: len(c.members) - 1,
		steadyAfter: DefaultSteadyAfter,
		now:         func() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now },
		lastReport:  map[string]time.Time{}, liveness: map[string]livenessRecord{}, declined: map[string]decline{},
		commits: map[string]uint64{}, undecided: map[string]bool{},
		cuts: map[[2]string]time.Time{},
	}
}

// rounds lets so many rounds pass, a second each.
func (c *fakeCluster) rounds(t *testing.T, p *Placer, n int) {
	for range n {
		p.round(t.Context())
		c.mu.Lock()
		c.now = c.now.Add(placeInterval)
		c.mu.Unlock()
	}
}

// want checks that each shard has so many voters, none of them one of without, and that the catalog
// records exactly those.
func (c *fakeCluster) want(t *testing.T, voters int, without ...string) {
	t.Helper()
	for name, m := range c.members {
		if name == catalog.GroupName {
			continue
		}
		if len(m.voters) != voters || len(m.nonvoters) > 0 ||
			slices.ContainsFunc(m.voters, func(id string) bool { return slices.Contains(without, id) }) {
			t.Errorf("%s: %+v, want %d voters without %v", name, *m, voters, without)
		}
		if got, want := c.placements[m.shard].Servers, slices.Sorted(slices.Values(m.voters)); !slices.Equal(got, want) {
			t.Errorf("%s: recorded on %v, its voters are %v", name, got, want)
		}
	}
}

// votesOf counts the groups in which a node votes.
func (c *fakeCluster) votesOf(id string) (n int) {
	for _, m := range c.members {
		if slices.Contains(m.voters, id) {
			n++
		}
	}
	return n
}

func (c *fakeCluster) add(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.nodes_ = append(c.nodes_, catalog.Node{Name: id, ServerID: id})
	}
}

// TestPlacerGrowsAndDrains grows a cluster from one node to five and drains two.
func TestPlacerGrowsAndDrains(t *testing.T) {
	c := newFakeCluster(6, "a.1")
	p := c.placer()
	c.rounds(t, p, 5)
	c.want(t, 1)
	c.add("b.1", "c.1")
	c.rounds(t, p, 30)
	c.want(t, 3)
	c.add("d.1", "e.1")
	c.rounds(t, p, 100)
	c.want(t, 3)
	c.nodes_[0].Draining, c.nodes_[3].Draining = true, true
	c.rounds(t, p, 100)
	c.want(t, 3, "a.1", "d.1")
}

// TestPlacerTakesStepsInARow: a step is followed by the next at once, and one that fails by none;
// so a cluster is whole soon after its nodes are counted on.
func TestPlacerTakesStepsInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(6, "a.1")
		c.add("b.1", "c.1")
		p := c.placer()
		p.now = time.Now
		looks := func(over time.Duration) uint64 {
			before := c.commits()
			time.Sleep(over)
			synctest.Wait()
			return c.commits() - before
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go p.Run(ctx)
		time.Sleep(DefaultSteadyAfter + 2*placeInterval)
		synctest.Wait()
		c.want(t, 3)
		looks(10 * placeInterval) // leaderships move, too
		if got := looks(10 * placeInterval); got != 3*10 {
			t.Errorf("nodes that nothing is to be done for were asked %d times in ten looks, want 30", got)
		}
		c.mu.Lock()
		c.refuse, c.nodes_[2].Draining = errDown, true
		c.mu.Unlock()
		if got := looks(10 * placeInterval); got != 3*10 {
			t.Errorf("while every step fails they were asked %d times, want 30", got)
		}
	})
}

// commits is how often a node was asked for its report.
func (c *fakeCluster) commits() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.commit
}

// TestPlacerWaitsForSilence replaces a silent node after the grace period, not before, also if the
// placer is another one by then.
func TestPlacerWaitsForSilence(t *testing.T) {
	c := newFakeCluster(3, "a.1")
	c.add("b.1", "c.1", "d.1")
	p := c.placer()
	c.rounds(t, p, 60)
	c.want(t, 3)
	c.down["b.1"] = true
	held := c.votesOf("b.1")
	if held == 0 {
		t.Fatal("b.1 held nothing to begin with")
	}
	c.rounds(t, p, int(catalog.DefaultGrace/placeInterval)-5)
	if now := c.votesOf("b.1"); now != held {
		t.Errorf("within the grace period b.1 has %d votes of %d", now, held)
	}
	p = c.placer() // the catalog has another leader, which has no reports yet
	c.rounds(t, p, 60)
	if now := c.votesOf("b.1"); now != held {
		t.Errorf("under a new leader of the catalog, which did not wait, b.1 has %d votes of %d", now, held)
	}
	c.rounds(t, p, int(catalog.DefaultGrace/placeInterval)+60)
	c.want(t, 3, "b.1")
}

// TestPlacerReplacement replaces a node by the new incarnation of its name, and not by a node that
// is empty, and forgets the old one when nothing is left to it. As long as two nodes of the name
// answer, nothing happens.
func TestPlacerReplacement(t *testing.T) {
	c := newFakeCluster(6, "a.1")
	c.add("b.1", "c.1")
	p := c.placer()
	c.rounds(t, p, 60)
	c.want(t, 3)
	c.nodes_ = append(c.nodes_, catalog.Node{Name: "b.1", ServerID: "b.2", Draining: true}) // a name as add gives it
	c.rounds(t, p, 60)
	c.want(t, 3, "b.2")
	c.nodes_[3].Draining = false
	c.down["b.1"] = true
	c.nodes_ = append(c.nodes_, catalog.Node{Name: "d.1", ServerID: "d.1"})
	began := c.now
	for len(c.nodes_) == 5 {
		c.rounds(t, p, 1)
		if c.now.Sub(began) > catalog.DefaultGrace {
			t.Fatal("the old incarnation is still recorded")
		}
		for name, m := range c.members {
			if !slices.ContainsFunc(c.nodes_, func(n catalog.Node) bool { return n.ServerID == "b.1" }) &&
				slices.Contains(m.voters, "b.1") && name != catalog.GroupName {
				t.Errorf("b.1 is forgotten and still in %+v", *m)
			}
		}
	}
	if want := []catalog.Departure{{ServerID: "b.1", Replacement: "b.2"}}; !slices.Equal(c.departed, want) {
		t.Errorf("of who left is remembered %v, want %v", c.departed, want)
	}
	for _, m := range c.members {
		if m.shard < 6 && !slices.Contains(m.voters, "b.2") {
			t.Errorf("%+v did not get the new incarnation", *m)
		}
	}
	c.rounds(t, p, 60)
	c.want(t, 3, "b.1")
	if catalog := c.members[catalog.GroupName]; len(catalog.voters) != 4 || slices.Contains(catalog.voters, "b.1") {
		t.Errorf("%+v", *catalog)
	}
}

// TestOldIncarnationIsForgottenLast: not before its replacement has what the catalog has, nor while
// it may be a member of a shard.
func TestOldIncarnationIsForgottenLast(t *testing.T) {
	level, lagging := []string{"a", "b.2"}, []string{"a"}
	for _, tt := range []struct {
		name     string
		caughtUp []string
		shard    worldShard
		back     bool
		want     int
	}{
		{"the replacement lacks what the catalog has", lagging, worldShard{leader: "a"}, false, 3},
		{"a shard has it as a member", level, worldShard{leader: "a", nonvoters: []string{"b.1"}}, false, 3},
		{"a shard has no leader to say so", level, worldShard{}, false, 3},
		{"it is back", level, worldShard{leader: "a", voters: []string{"a", "b.2"}}, true, 3},
		{"nothing is left to it", level, worldShard{leader: "a", voters: []string{"a", "b.2"}}, false, 2},
	} {
		c := newFakeCluster(1, "a")
		c.add("b.1", "b.2")
		c.down["b.1"] = !tt.back
		w := world{nodes: []worldNode{{server: "a"}, {server: "b.1", silent: true, replacement: "b.2"}, {server: "b.2"}},
			shards: []worldShard{tt.shard}}
		c.placer().retire(t.Context(), &w, &worldShard{leader: "a", caughtUp: tt.caughtUp})
		if got := len(c.Nodes()); got != tt.want {
			t.Errorf("%s: %d nodes are recorded, want %d", tt.name, got, tt.want)
		}
	}
}

// TestPlacerHeedsWhoDeclines: a node that gives leaderships back, because its clock is wrong or it
// is about to stop, is not handed them again and again.
func TestPlacerHeedsWhoDeclines(t *testing.T) {
	p := newFakeCluster(1, "a").placer()
	shard := func(leader string) *worldShard { return &worldShard{shard: 0, leader: leader} }
	ahead := func(d time.Duration) {
		later := p.now().Add(d)
		p.now = func() time.Time { return later }
	}
	handed := func(leaders ...string) time.Duration {
		p.handed.Store(uint32(0), handover{to: "b", at: p.now()})
		p.watchHandover(shard("a")) // which does not know yet
		ahead(placeInterval)
		for _, leader := range leaders {
			p.watchHandover(shard(leader))
		}
		return p.declined["b"].until().Sub(p.now())
	}
	for _, want := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second,
		time.Minute, time.Minute} {
		if got := handed("" /* an election */, "b", "a", "a"); got != want {
			t.Errorf("b gave the leadership back again and is left alone for %v, want %v", got, want)
		}
	}
	p.handed.Store(uint32(0), handover{to: "b", at: p.now().Add(-time.Second)})
	first := p.declined["b"]
	ahead(time.Second)
	p.watchHandover(shard("a"))
	if got := p.declined["b"]; got != first {
		t.Errorf("b gave two leaderships back at once, which counts twice: %+v, %+v", first, got)
	}
	for _, declined := range []bool{true, false} { // what it accepts while it is left alone says nothing
		handed("b")
		ahead(handoverWatch + time.Second)
		p.watchHandover(shard("b"))
		if _, got := p.declined["b"]; got != declined {
			t.Errorf("b keeps the leadership and is said to decline: %v", got)
		}
		ahead(declinedMax)
	}
	handed("b")
	ahead(handoverWatch + time.Second) // a round that took long
	p.watchHandover(shard("a"))
	if got := p.declined["b"].until().Sub(p.now()); got != declinedMin {
		t.Errorf("b gave the leadership back while nobody looked and is left alone for %v", got)
	}
}

// TestPlanSparesTheUnsettled: a node that gave a leadership back, or whose process has just
// started, leads only if no other node can.
func TestPlanSparesTheUnsettled(t *testing.T) {
	for name, b := range map[string]worldNode{"declined": {server: "b", declines: true},
		"started": {server: "b", fresh: true}} {
		even := world{factor: 3, nodes: []worldNode{{server: "a"}, b}}
		for i := range uint32(3) {
			even.shards = append(even.shards, worldShard{shard: i, leader: "a", voters: []string{"a", "b"},
				recorded: []string{"a", "b"}, caughtUp: []string{"a", "b"}})
		}
		if steps := plan(even); len(steps) != 0 {
			t.Errorf("%s: planned %v, want nothing", name, steps)
		}
		even.nodes[0].draining = true
		if steps := plan(even); len(steps) == 0 || steps[0].action != Transfer || steps[0].server != "b" {
			t.Errorf("%s: planned %v, want that b leads all the same", name, steps)
		}
	}
}

// TestRestartIsNoticed: a node gets its part of the leaderships when its new process has answered
// for a while, however short the node was away.
func TestRestartIsNoticed(t *testing.T) {
	c := newFakeCluster(1, "a")
	c.nodes_ = append(c.nodes_, catalog.Node{Name: "b", ServerID: "b.1"})
	p := c.placer()
	fresh := func(what string, want bool) {
		t.Helper()
		w := p.world(p.ask(t.Context()))
		for _, n := range w.nodes {
			if n.fresh != (want && n.server == "b.1") {
				t.Errorf("%s: %s is fresh: %v", what, n.server, n.fresh)
			}
		}
	}
	c.rounds(t, p, steadyRounds+1)
	fresh("both have answered for a while", false)
	c.processes["b.1"] = "another"
	fresh("one was restarted", true)
	c.rounds(t, p, steadyRounds+1)
	fresh("that was a while ago", false)
}
