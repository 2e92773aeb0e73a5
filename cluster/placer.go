package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

const (
	// placeInterval is the time between two rounds.
	placeInterval = time.Second
	// stepInterval is the time until the next look if members of a shard were changed, for stepsInRow looks in a row: a new replica takes three
	// steps, and what is known of the others is no older for it.
	stepInterval = 100 * time.Millisecond
	stepsInRow   = 20
	// askWait bounds the question for a node's status; a node that does not answer in time counts as silent in this round.
	askWait = 2 * time.Second
	// changeWait bounds one change of a shard's members.
	changeWait = 15 * time.Second
)

// GroupReport is what a node says of its replica of a group.
type GroupReport struct {
	Group string `json:"group"`
	// Serving: this node leads the group and serves; then Voters, Nonvoters and Commit are those of the group. The members are those of the committed
	// configuration at position Members of its log.
	Serving   bool     `json:"serving"`
	Term      uint64   `json:"term"`
	Voters    []string `json:"voters,omitempty"`
	Nonvoters []string `json:"nonvoters,omitempty"`
	Members   uint64   `json:"members,omitempty"`
	// Applied and Commit are positions in the group's log; Digest is the machine's at DigestIndex.
	Applied     uint64 `json:"applied"`
	Commit      uint64 `json:"commit"`
	Digest      uint64 `json:"digest,string"`
	DigestIndex uint64 `json:"digestIndex"`
	// Digests are those of earlier entries, to be compared between replicas.
	Digests []node.IndexDigest `json:"digests,omitempty"`
	// Jobs is how many jobs a shard holds, Clock its time; both are zero for other groups.
	Jobs  uint64   `json:"jobs"`
	Clock fsm.Time `json:"clockNanos,omitempty"`
	// Restoring: a restore of the shard has begun and not ended.
	Restoring bool `json:"restoring,omitempty"`
	// ClockAhead is by how much a shard's time is ahead of the clocks if that is more than the bound, else zero.
	ClockAhead time.Duration `json:"clockAheadNanos,omitempty"`
}

// Report is what a node says of itself.
type Report struct {
	ServerID string `json:"serverId"`
	// Process names the process of the node: another one after each start.
	Process string `json:"process,omitempty"`
	// Version is the version of the software it runs.
	Version string `json:"version,omitempty"`
	// Format is the latest format that it reads; 0 is the first.
	Format fsm.Format    `json:"format,omitempty"`
	Groups []GroupReport `json:"groups"`
	// Quarantined are the groups whose replica the node has set aside.
	Quarantined []string `json:"quarantined,omitempty"`
	// Leaving: the node is about to stop.
	Leaving bool `json:"leaving,omitempty"`
	// Conditions are those of the node; older nodes say nothing of them.
	Conditions []node.Condition `json:"conditions,omitempty"`
	// Unreached are the nodes that it cannot connect to.
	Unreached []Unreached `json:"unreached,omitempty"`
	// Placement is reported by the node that leads the catalog.
	Placement *PlacementStatus `json:"story,omitempty"`
}

// Change asks the leader of a group to change its members.
type Change struct {
	Group    string `json:"group"`
	Action   action `json:"action"`
	ServerID string `json:"serverId"`
	// After is the GroupReport.Members that the change was made from: it is refused if there is a newer configuration. A transfer needs none.
	After uint64 `json:"after,omitempty"`
	// Alive are the members that the change relies on: it is refused unless Need of them have answered the leader in the last moment; 0 stands for all.
	Alive []string `json:"alive,omitempty"`
	Need  int      `json:"need,omitempty"`
}

// nodes are all nodes, this one included, as far as placement needs them.
type nodes interface {
	// report asks a node for its report.
	report(ctx context.Context, serverID string) (Report, error)
	// change asks a node, which should lead the group, for a change of its members, and returns when it is made.
	change(ctx context.Context, serverID string, c Change) error
	// quarantine asks a node to set a replica aside.
	quarantine(ctx context.Context, serverID string, d divergence) error
}

// record is what placement reads and writes in the catalog.
type record interface {
	Nodes() []Node
	Placements() []Placement
	// Settings are those of the cluster, with defaults filled in.
	Settings() Settings
	place(ctx context.Context, p Placement) error
	// removeNode forgets a node for good.
	removeNode(ctx context.Context, d departure) error
}

// placer moves replicas and leaderships while this node leads the catalog. It keeps nothing that a successor would miss: what
// it knows besides the catalog it sees anew in its first rounds.
type placer struct {
	record record
	nodes  nodes
	logger *slog.Logger
	shards int
	// publish receives the status of each round; nil if there is no receiver.
	publish func(*PlacementStatus)
	now     func() time.Time
	// reported receives the reports of each round; it may be nil.
	reported func(ctx context.Context, reports map[string]*Report)

	lastReport map[string]time.Time      // when each node last sent a report
	liveness   map[string]livenessRecord // how long each node has been answering
	// steadyAfter is how long a node must have answered before placement counts on it.
	steadyAfter time.Duration
	// commits are the positions that the leaders had committed in the round before. A member that has
	// applied them is level.
	commits map[string]uint64
	// handed are the leaderships that were handed over, by shard; declined are the nodes that gave some back.
	handed   sync.Map
	declined map[string]decline
	// cuts is when two nodes that are cut off from each other were last said to be. saidCut are those that the round before said so of.
	cuts    map[[2]string]time.Time
	saidCut map[[2]string]bool
	// behind is since when voters have not been level, by server and group.
	behind map[Behind]time.Time
	// undecided are the groups whose replicas were reported to differ without a majority that shows which
	// is right.
	undecided map[string]bool
}

// run runs rounds until ctx ends.
func (p *placer) run(ctx context.Context) {
	p.lastReport, p.liveness, p.declined = map[string]time.Time{}, map[string]livenessRecord{}, map[string]decline{}
	p.commits, p.undecided, p.cuts = map[string]uint64{}, map[string]bool{}, map[[2]string]time.Time{}
	tick := time.NewTicker(placeInterval)
	defer tick.Stop()
	for row := 0; ; {
		if p.round(ctx) && row < stepsInRow {
			row++
			tick.Reset(stepInterval)
		} else {
			row = 0
			tick.Reset(placeInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// round examines the whole cluster once and takes the steps that can be taken. It reports whether
// the next round may follow at once.
func (p *placer) round(ctx context.Context) bool {
	reports := p.ask(ctx)
	if p.reported != nil {
		p.reported(ctx, reports)
	}
	w := p.world(reports)
	catalog := p.group(groupName, reports)
	p.commits = commits(reports)
	p.compare(ctx, &w, &catalog, reports)
	steps := plan(w)
	behind := p.noteBehind(&w, &catalog, reports)
	if p.publish != nil {
		status := p.status(&w, steps)
		status.Behind = behind
		p.publish(status)
	}
	p.correct(ctx, &w, steps)
	var changing sync.WaitGroup
	var taken atomic.Bool // a step after which the next look may follow
	for _, st := range steps {
		changing.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, changeWait)
			defer cancel()
			done, err := p.executeStep(ctx, &w, st, reports)
			p.report(shardGroup(st.shard), st, err)
			if done && err == nil {
				taken.Store(true)
			}
		})
	}
	if st, ok := planCatalog(&w, &catalog); ok {
		ctx, cancel := context.WithTimeout(ctx, changeWait)
		defer cancel()
		err := p.nodes.change(ctx, catalog.leader, catalog.change(groupName, st, catalogWanted))
		p.report(groupName, st, err)
		if err == nil {
			taken.Store(true)
		}
	}
	changing.Wait()
	p.retire(ctx, &w, &catalog)
	return taken.Load()
}

// report logs a step that failed. It is planned again, if it still makes sense then.
func (p *placer) report(group string, st step, err error) {
	if err != nil {
		p.logger.Warn("changing the members of a group", "group", group, "action", st.action.String(), "server", st.server, "error", err)
	}
}

// ask collects the reports of all nodes that answer, and updates their liveness.
func (p *placer) ask(ctx context.Context) map[string]*Report {
	all := p.record.Nodes()
	reports := askAll(ctx, all, p.nodes)
	now := p.now()
	for _, n := range all {
		// The grace period of a node that never answered this leader begins now.
		if reports[n.ServerID] != nil || p.lastReport[n.ServerID].IsZero() {
			p.lastReport[n.ServerID] = now
		}
		report, known := reports[n.ServerID], p.liveness[n.ServerID]
		if now.Sub(p.lastReport[n.ServerID]) > missedMax {
			delete(p.liveness, n.ServerID)
		} else if report != nil && (known.since.IsZero() || report.Process != known.process) {
			p.liveness[n.ServerID] = livenessRecord{report.Process, now}
		}
	}
	return reports
}

// fresh reports whether placement must not count on a node yet: its process has not answered for
// long enough, or has stopped answering.
func (p *placer) fresh(serverID string) bool {
	known, there := p.liveness[serverID]
	return !there || p.now().Sub(known.since) < p.steadyAfter
}

// livenessRecord is the time since which a process of a node has answered.
type livenessRecord struct {
	process string
	since   time.Time
}

const (
	// DefaultSteadyAfter is how long a node must have answered before it gets replicas, votes and
	// its part of the leaderships. A node that joins for a moment must not cost a shard a lasting
	// voter. A process that cannot run ends within seconds of its start. A shard that lacks a
	// voter waits as long, and so does a new cluster.
	DefaultSteadyAfter = 5 * time.Second
	// missedMax is how long a node may miss rounds meanwhile. On a busy machine some answers are
	// late, and clusters grow on busy machines.
	missedMax = 3 * time.Second
)

// askAll returns the reports of the nodes that answer, by server id.
func askAll(ctx context.Context, all []Node, of nodes) map[string]*Report {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	answers := make([]*Report, len(all))
	var asking sync.WaitGroup
	for i, n := range all {
		asking.Go(func() {
			if r, err := of.report(ctx, n.ServerID); err == nil {
				answers[i] = &r
			}
		})
	}
	asking.Wait()
	reports := map[string]*Report{}
	for i, n := range all {
		if answers[i] != nil {
			reports[n.ServerID] = answers[i]
		}
	}
	return reports
}

// world makes of the reports what a plan depends on.
func (p *placer) world(reports map[string]*Report) world {
	settings := p.record.Settings()
	w := world{factor: settings.Factor, minVoters: settings.MinVoters, steadyAfter: p.steadyAfter}
	recorded := p.record.Nodes()
	for _, n := range recorded {
		report := reports[n.ServerID]
		silent, since := report == nil, p.now().Sub(p.lastReport[n.ServerID])
		w.nodes = append(w.nodes, worldNode{
			server: n.ServerID, zone: n.Zone, draining: n.Draining, leaving: !silent && report.Leaving, impaired: report.impaired(),
			silent: silent, lost: silent && since > settings.Grace, fresh: p.fresh(n.ServerID),
			declines: p.now().Before(p.declined[n.ServerID].until()),
		})
	}
	p.findReplacements(w.nodes, recorded)
	p.noteCuts(w.nodes, reports)
	placed := map[uint32][]string{}
	for _, pl := range p.record.Placements() {
		placed[pl.Shard] = pl.Servers
	}
	for shard := range uint32(p.shards) { //nolint:gosec // at most 1,024
		s := p.group(shardGroup(shard), reports)
		s.shard, s.recorded = shard, placed[shard]
		p.watchHandover(&s)
		w.shards = append(w.shards, s)
	}
	return w
}

// group returns what the reports say of a group.
func (p *placer) group(name string, reports map[string]*Report) (s worldShard) {
	var term uint64 // a leader that was replaced may not know it yet
	for id, r := range reports {
		if g := r.group(name); g != nil && g.Serving && g.Term >= term {
			s.leader, s.voters, s.nonvoters, s.members, term = id, g.Voters, g.Nonvoters, g.Members, g.Term
		}
	}
	level, known := p.commits[name]
	for id, r := range reports {
		if slices.Contains(r.Quarantined, name) {
			s.quarantined = append(s.quarantined, id)
		}
	}
	slices.Sort(s.quarantined)
	for _, id := range slices.Concat(s.voters, s.nonvoters) {
		if g := reports[id].group(name); known && g != nil && g.Applied >= level {
			s.caughtUp = append(s.caughtUp, id)
		}
	}
	return s
}

// commits returns the position that the leader of each group has committed. One that was replaced may not know it yet, and be far behind.
func commits(reports map[string]*Report) map[string]uint64 {
	all, terms := map[string]uint64{}, map[string]uint64{}
	for _, r := range reports {
		for i := range r.Groups {
			if g := &r.Groups[i]; g.Serving && g.Term >= terms[g.Group] {
				all[g.Group], terms[g.Group] = g.Commit, g.Term
			}
		}
	}
	return all
}

// group returns what the report says of a group, nil if the node does not run it or did not answer.
func (r *Report) group(name string) *GroupReport {
	if r == nil {
		return nil
	}
	if i := slices.IndexFunc(r.Groups, func(g GroupReport) bool { return g.Group == name }); i >= 0 {
		return &r.Groups[i]
	}
	return nil
}

// handover is a leadership that was handed to a server.
type handover struct {
	to string
	at time.Time
}

// decline is what became of handing leaderships to a node that gave them back, one after the other.
type decline struct {
	since time.Time     // when it gave the last one back
	pause time.Duration // how long it is left alone after that
}

func (d decline) until() time.Time { return d.since.Add(d.pause) }

const (
	// handoverWatch is how long a leadership must stay where it was handed to for that to count as accepted.
	handoverWatch = 10 * time.Second
	// A node that gave a leadership back is left alone for declinedMin, and twice as long each time that it does so again. A leader that
	// crashes in its first seconds looks the same from here, and should not wait long for its part when it is back.
	declinedMin = 5 * time.Second
	declinedMax = time.Minute
)

// watchHandover records which nodes gave back a leadership that they were handed. Handing it over
// again and again would cost two elections each time.
func (p *placer) watchHandover(s *worldShard) {
	v, ok := p.handed.Load(s.shard)
	if !ok || s.leader == "" {
		return
	}
	h := v.(handover)
	switch {
	case p.now().Sub(h.at) < placeInterval: // the previous leader may not know yet
	case s.leader != h.to:
		p.handed.Delete(s.shard)
		if last := p.declined[h.to]; !h.at.Before(last.since) { // else it gave several back at once
			p.declined[h.to] = decline{p.now(), min(max(declinedMin, 2*last.pause), declinedMax)}
		}
	case p.now().Sub(h.at) > handoverWatch:
		p.handed.Delete(s.shard)
		if h.at.After(p.declined[h.to].until()) { // what was accepted before it declined says nothing
			delete(p.declined, h.to)
		}
	}
}

// executeStep carries out one step. It reports whether the next round may follow at once. A
// replica is recorded before it becomes a member, so that its node has started it. It stays
// recorded until it is not a member any more.
func (p *placer) executeStep(ctx context.Context, w *world, st step, reports map[string]*Report) (bool, error) {
	s, name := &w.shards[st.shard], shardGroup(st.shard)
	if st.action == addNonvoter {
		if !slices.Contains(s.recorded, st.server) {
			return true, p.record.place(ctx, Placement{Shard: st.shard, Servers: append(slices.Concat(s.voters, s.nonvoters), st.server)})
		}
		if reports[st.server].group(name) == nil {
			return false, nil // its node is about to start it
		}
	}
	if st.action == transfer {
		p.handed.Store(st.shard, handover{to: st.server, at: p.now()})
	}
	p.logger.Info("changing the replicas of a shard", "shard", st.shard, "action", st.action.String(), "server", st.server)
	// A new leader serves a while after it has the leadership. Until then it seems to lead too few shards.
	return st.action != transfer, p.nodes.change(ctx, s.leader, s.change(name, st, newPlanner(*w).wanted))
}

// change returns what the group's leader, of which so many voters are wanted, is asked for. A server that gets a vote must be there, and so must as many
// sound voters as must remain for another one to lose its own: the reports are seconds old by the time that the leader acts.
func (s *worldShard) change(group string, st step, wanted int) Change {
	c := Change{Group: group, Action: st.action, ServerID: st.server, After: s.members}
	switch {
	case st.action == promote:
		c.Alive = []string{st.server}
	case st.action == demote, st.action == remove && slices.Contains(s.voters, st.server):
		for _, id := range s.voters {
			if id != st.server && slices.Contains(s.caughtUp, id) {
				c.Alive = append(c.Alive, id)
			}
		}
		c.Need = soundWithout(s, slices.Contains(s.caughtUp, st.server), wanted)
	}
	return c
}

// correct brings the records up to what the leaders say: members that are not recorded are, and a server that ceased to be
// a member, or never became one because another was chosen, no longer is.
func (p *placer) correct(ctx context.Context, w *world, steps []step) {
	for i := range w.shards {
		s := &w.shards[i]
		if s.leader == "" {
			continue
		}
		want := slices.Concat(s.voters, s.nonvoters)
		for _, st := range steps {
			if st.shard == s.shard && st.action == addNonvoter && slices.Contains(s.recorded, st.server) {
				want = append(want, st.server)
			}
		}
		slices.Sort(want)
		if slices.Equal(want, s.recorded) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, changeWait)
		if err := p.record.place(ctx, Placement{Shard: s.shard, Servers: want}); err != nil {
			p.logger.Warn("recording the replicas of a shard", "shard", s.shard, "error", err)
		}
		cancel()
	}
}

// shardGroup returns the name of a shard's Raft group.
func shardGroup(shard uint32) string { return fmt.Sprintf("shard-%d", shard) }

// String returns the action as logs and operators see it.
func (a action) String() string {
	switch a {
	case addNonvoter:
		return "add"
	case promote:
		return "promote"
	case remove:
		return "remove"
	case transfer:
		return "transfer"
	case demote:
		return "demote"
	default:
		return fmt.Sprintf("action %d", uint8(a))
	}
}
