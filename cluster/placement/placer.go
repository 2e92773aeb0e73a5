package placement

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
)

const (
	// placeInterval is the time between two rounds.
	placeInterval = time.Second
	// stepInterval replaces placeInterval after a change of members, for up to stepsInRow rounds. A
	// new replica takes three steps, and they make no other knowledge older.
	stepInterval = 100 * time.Millisecond
	stepsInRow   = 20
	// AskWait bounds the question for a node's status. A late node counts as silent in this round.
	AskWait = 2 * time.Second
	// ChangeWait bounds one change of a shard's members.
	ChangeWait = 15 * time.Second
)

// Nodes are all nodes, this one included, as far as placement needs them.
type Nodes interface {
	// Report asks a node for its report.
	Report(ctx context.Context, serverID string) (Report, error)
	// Change asks a node, which should lead the group, for a change of its members, and awaits it.
	Change(ctx context.Context, serverID string, c Change) error
	// Quarantine asks a node to set a replica aside.
	Quarantine(ctx context.Context, serverID string, d Divergence) error
}

// Records is what placement reads and writes in the catalog.
type Records interface {
	Nodes() []catalog.Node
	Placements() []catalog.Placement
	// Settings returns the cluster's settings, with defaults filled in.
	Settings() catalog.Settings
	Place(ctx context.Context, p catalog.Placement) error
	// RemoveNode forgets a node for good.
	RemoveNode(ctx context.Context, d catalog.Departure) (known bool, err error)
}

// Config configures a placer.
type Config struct {
	Records Records
	Nodes   Nodes
	Logger  *slog.Logger
	// Shards is the number of shards of the cluster.
	Shards int
	// Publish receives the status of each round; it may be nil.
	Publish func(*Status)
	// Reported receives the reports of each round; it may be nil.
	Reported func(ctx context.Context, reports map[string]*Report)
	// SteadyAfter is how long a node must have answered before placement counts on it; 0 stands for
	// DefaultSteadyAfter.
	SteadyAfter time.Duration
}

// New returns a placer that has not looked at the cluster yet.
func New(cfg Config) *Placer {
	return &Placer{
		record: cfg.Records, nodes: cfg.Nodes, logger: cfg.Logger, shards: cfg.Shards, now: time.Now,
		publish: cfg.Publish, reported: cfg.Reported,
		steadyAfter: cmp.Or(cfg.SteadyAfter, DefaultSteadyAfter),
	}
}

// Placer moves replicas and leaderships while this node leads the catalog. It keeps no state that a
// successor needs: besides the catalog, its first rounds learn everything anew.
type Placer struct {
	record Records
	nodes  Nodes
	logger *slog.Logger
	shards int
	// publish receives the status of each round; nil if there is no receiver.
	publish func(*Status)
	now     func() time.Time
	// reported receives the reports of each round; it may be nil.
	reported func(ctx context.Context, reports map[string]*Report)

	lastReport map[string]time.Time      // when each node last sent a report
	liveness   map[string]livenessRecord // how long each node has been answering
	// steadyAfter is how long a node must have answered before placement counts on it.
	steadyAfter time.Duration
	// commits are the positions that the leaders had committed in the round before. A member that
	// has applied them is caught up.
	commits map[string]uint64
	// handed are the transferred leaderships, by shard. declined are the nodes that gave some back.
	handed   sync.Map
	declined map[string]decline
	// cuts holds when a report last said that two nodes are cut off from each other. saidCut holds
	// the pairs of which the previous round said so.
	cuts    map[[2]string]time.Time
	saidCut map[[2]string]bool
	// behind holds since when voters have not been caught up, by server and group.
	behind map[Behind]time.Time
	// undecided are the groups that were logged as differing without a majority for one state.
	undecided map[string]bool
}

// Run runs rounds until ctx ends.
func (p *Placer) Run(ctx context.Context) {
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
func (p *Placer) round(ctx context.Context) bool {
	reports := p.ask(ctx)
	if p.reported != nil {
		p.reported(ctx, reports)
	}
	w := p.world(reports)
	catalogGroup := p.group(catalog.GroupName, reports)
	p.commits = commits(reports)
	p.compare(ctx, &w, &catalogGroup, reports)
	steps := plan(w)
	behind := p.noteBehind(&w, &catalogGroup, reports)
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
			ctx, cancel := context.WithTimeout(ctx, ChangeWait)
			defer cancel()
			done, err := p.executeStep(ctx, &w, st, reports)
			p.report(catalog.ShardGroup(st.shard), st, err)
			if done && err == nil {
				taken.Store(true)
			}
		})
	}
	if st, ok := planCatalog(&w, &catalogGroup); ok {
		ctx, cancel := context.WithTimeout(ctx, ChangeWait)
		defer cancel()
		err := p.nodes.Change(ctx, catalogGroup.leader, catalogGroup.change(catalog.GroupName, st, catalogWanted))
		p.report(catalog.GroupName, st, err)
		if err == nil {
			taken.Store(true)
		}
	}
	changing.Wait()
	p.retire(ctx, &w, &catalogGroup)
	return taken.Load()
}

// report logs a step that failed. It is planned again, if it still makes sense then.
func (p *Placer) report(group string, st step, err error) {
	if err != nil {
		p.logger.Warn("changing the members of a group", "group", group, "action", st.action.String(), "server", st.server,
			"error", err)
	}
}

// ask collects the reports of all nodes that answer, and updates their liveness.
func (p *Placer) ask(ctx context.Context) map[string]*Report {
	all := p.record.Nodes()
	reports := AskAll(ctx, all, p.nodes)
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
func (p *Placer) fresh(serverID string) bool {
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

// world converts the reports to the input of a plan.
func (p *Placer) world(reports map[string]*Report) world {
	settings := p.record.Settings()
	w := world{factor: settings.Factor, minVoters: settings.MinVoters, steadyAfter: p.steadyAfter}
	recorded := p.record.Nodes()
	for _, n := range recorded {
		report := reports[n.ServerID]
		silent, since := report == nil, p.now().Sub(p.lastReport[n.ServerID])
		w.nodes = append(w.nodes, worldNode{
			server: n.ServerID, zone: n.Zone, draining: n.Draining, leaving: !silent && report.Leaving,
			impaired: report.impaired(),
			silent:   silent, lost: silent && since > settings.Grace, fresh: p.fresh(n.ServerID),
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
		s := p.group(catalog.ShardGroup(shard), reports)
		s.shard, s.recorded = shard, placed[shard]
		p.watchHandover(&s)
		w.shards = append(w.shards, s)
	}
	return w
}

// group combines the reports on a group.
func (p *Placer) group(name string, reports map[string]*Report) (s worldShard) {
	var term uint64 // a replaced leader may not know yet that it was replaced
	for id, r := range reports {
		if g := r.Group(name); g != nil && g.Serving && g.Term >= term {
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
		if g := reports[id].Group(name); known && g != nil && g.Applied >= level {
			s.caughtUp = append(s.caughtUp, id)
		}
	}
	return s
}

// handover is a leadership that was transferred to a server.
type handover struct {
	to string
	at time.Time
}

// decline records that a node gave back leaderships that were transferred to it.
type decline struct {
	since time.Time     // when the node gave the last one back
	pause time.Duration // how long it gets no leadership after that
}

func (d decline) until() time.Time { return d.since.Add(d.pause) }

const (
	// handoverWatch is how long a transferred leadership must stay in place to count as accepted.
	handoverWatch = 10 * time.Second
	// A node that gave a leadership back is avoided for declinedMin, and twice as long each time
	// that it does so again. A leader that crashes in its first seconds looks the same from here,
	// and should not wait long for leaderships when it is back.
	declinedMin = 5 * time.Second
	declinedMax = time.Minute
)

// watchHandover records which nodes gave back a leadership that was transferred to them. Repeating
// the transfer would cost two elections each time.
func (p *Placer) watchHandover(s *worldShard) {
	v, ok := p.handed.Load(s.shard)
	if !ok || s.leader == "" {
		return
	}
	h := v.(handover)
	switch {
	case p.now().Sub(h.at) < placeInterval: // the previous leader may not know yet
	case s.leader != h.to:
		p.handed.Delete(s.shard)
		if last := p.declined[h.to]; !h.at.Before(last.since) { // otherwise the node gave back several at once
			p.declined[h.to] = decline{p.now(), min(max(declinedMin, 2*last.pause), declinedMax)}
		}
	case p.now().Sub(h.at) > handoverWatch:
		p.handed.Delete(s.shard)
		if h.at.After(p.declined[h.to].until()) { // an acceptance from before the decline does not count
			delete(p.declined, h.to)
		}
	}
}

// executeStep carries out one step. It reports whether the next round may follow at once. A
// replica is recorded before it becomes a member, so that its node has started it. It stays
// recorded until it is not a member any more.
func (p *Placer) executeStep(ctx context.Context, w *world, st step, reports map[string]*Report) (bool, error) {
	s, name := &w.shards[st.shard], catalog.ShardGroup(st.shard)
	if st.action == AddNonvoter {
		if !slices.Contains(s.recorded, st.server) {
			return true, p.record.Place(ctx, catalog.Placement{Shard: st.shard,
				Servers: append(slices.Concat(s.voters, s.nonvoters), st.server)})
		}
		if reports[st.server].Group(name) == nil {
			return false, nil // its node is about to start it
		}
	}
	if st.action == Transfer {
		p.handed.Store(st.shard, handover{to: st.server, at: p.now()})
	}
	p.logger.Info("changing the replicas of a shard", "shard", st.shard, "action", st.action.String(), "server", st.server)
	// A new leader serves a while later. Until then it seems to lead too few shards.
	return st.action != Transfer, p.nodes.Change(ctx, s.leader, s.change(name, st, newPlanner(*w).wanted))
}

// change returns the change to request from the group's leader; wanted is the wanted number of
// voters. A server that gets a vote must be alive. When a voter loses its vote, as many sound
// voters as must remain must be alive. The reports are seconds old by then.
func (s *worldShard) change(group string, st step, wanted int) Change {
	c := Change{Group: group, Action: st.action, ServerID: st.server, After: s.members}
	switch {
	case st.action == Promote:
		c.Alive = []string{st.server}
	case st.action == Demote, st.action == Remove && slices.Contains(s.voters, st.server):
		for _, id := range s.voters {
			if id != st.server && slices.Contains(s.caughtUp, id) {
				c.Alive = append(c.Alive, id)
			}
		}
		c.Need = soundWithout(s, slices.Contains(s.caughtUp, st.server), wanted)
	}
	return c
}

// correct updates the records to what the leaders report. It records members that are not recorded.
// It removes servers that are no longer members, and servers that never became members because
// another one was chosen.
func (p *Placer) correct(ctx context.Context, w *world, steps []step) {
	for i := range w.shards {
		s := &w.shards[i]
		if s.leader == "" {
			continue
		}
		want := slices.Concat(s.voters, s.nonvoters)
		for _, st := range steps {
			if st.shard == s.shard && st.action == AddNonvoter && slices.Contains(s.recorded, st.server) {
				want = append(want, st.server)
			}
		}
		slices.Sort(want)
		if slices.Equal(want, s.recorded) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, ChangeWait)
		if err := p.record.Place(ctx, catalog.Placement{Shard: s.shard, Servers: want}); err != nil {
			p.logger.Warn("recording the replicas of a shard", "shard", s.shard, "error", err)
		}
		cancel()
	}
}

// String returns the action as logs and operators see it.
func (a Action) String() string {
	switch a {
	case AddNonvoter:
		return "add"
	case Promote:
		return "promote"
	case Remove:
		return "remove"
	case Transfer:
		return "transfer"
	case Demote:
		return "demote"
	default:
		return fmt.Sprintf("action %d", uint8(a))
	}
}
