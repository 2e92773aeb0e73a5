package quota

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/wakeup"
)

const (
	// interval is the time between two updates of the shards' quotas, if no request waits for
	// quota.
	interval = 200 * time.Millisecond
	// intervalMin is the least time between two updates.
	intervalMin = 10 * time.Millisecond
	// catchUpInterval is the time between two attempts, after a start, to catch up with the
	// catalog's leader.
	catchUpInterval = 100 * time.Millisecond
	// changeTimeout bounds a catalog entry that changes the quotas of a shard.
	changeTimeout = 2 * time.Second
)

// Host is the part of a node that enforces quotas. *node.Node implements it.
type Host interface {
	ShardCount() int
	QuotaUse(shard uint32) (term uint64, all map[string]node.NamespaceUse)
	SetShardQuotas(shard uint32, term uint64, all map[string]node.ShardQuota) (used map[string]node.Amounts)
	SetNamespacesLimited(spaces int)
	OnQuotaShort(f func())
}

// Records are the recorded quotas. *catalog.Catalog implements it.
type Records interface {
	// ViewQuotas calls f with all records, by name, and the index of the last entry that set or
	// removed a quota. f does not change the records, and does not keep them.
	ViewQuotas(f func(limited uint64, all []*Record))
	// ChangeShardQuotas changes the quotas of one shard, which this node leads.
	ChangeShardQuotas(ctx context.Context, changes ShardChanges) error
	// Refresh returns when this node has the records that the catalog's leader has.
	Refresh(ctx context.Context) error
}

// Allocator divides the quotas of namespaces among the shards that this node leads. It takes
// a shard's quotas over when a leadership starts, lets them grow with their use, and gives back
// what other shards need. See DESIGN.md.
type Allocator struct {
	host    Host
	records Records
	// caughtUp: Refresh has succeeded once. Before that this node does not know which namespaces
	// have quotas.
	caughtUp bool
	wake     wakeup.Signal
	logger   *slog.Logger
	shards   map[uint32]*shardQuotas
	// limited is the index of the newest quota change seen. A replica that is rebuilt from its files
	// shows older quotas for a moment.
	limited uint64
}

// shardQuotas is the allocator's state for one shard. At most one change of it is under way.
type shardQuotas struct {
	term   uint64
	states map[string]*namespaceState
	// limited is the index of the newest quota change that the shard was told of.
	limited uint64
}

// namespaceState is a shard's quota in one namespace, as its leader uses it.
type namespaceState struct {
	// from is the version that pending changes start from. most is what remains of the quota if
	// any of them is carried out; a change of unknown outcome still may be. Both count while the
	// record has that version.
	from uint64
	most node.Amounts
	use  node.NamespaceUse
}

// NewAllocator returns an allocator. Until it knows which namespaces have quotas, no shard
// that this node leads accepts anything into a namespace.
func NewAllocator(host Host, records Records, logger *slog.Logger) *Allocator {
	host.SetNamespacesLimited(1)
	return &Allocator{
		host: host, records: records, wake: wakeup.New(), logger: logger,
		shards: map[uint32]*shardQuotas{},
	}
}

// MarkCaughtUp records that the catalog here has once had all that its leader had.
func (a *Allocator) MarkCaughtUp() {
	a.caughtUp = true
	a.records.ViewQuotas(func(_ uint64, all []*Record) { a.host.SetNamespacesLimited(len(all)) })
}

// awaitCatalog waits until the catalog here has had all that its leader had. It reports false when
// ctx ends.
func (a *Allocator) awaitCatalog(ctx context.Context) bool {
	for !a.caughtUp {
		if a.records.Refresh(ctx) == nil {
			a.MarkCaughtUp()
			break
		}
		pause := time.NewTimer(catchUpInterval)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return false
		}
	}
	return true
}

// Run updates the quotas until ctx ends.
func (a *Allocator) Run(ctx context.Context) {
	a.host.OnQuotaShort(a.wake.Send)
	if !a.awaitCatalog(ctx) {
		return
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	pause := time.NewTimer(intervalMin)
	defer pause.Stop()
	for {
		a.update(ctx)
		pause.Reset(intervalMin)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-a.wake:
		}
	}
}

// update updates the quotas of all shards that this node leads.
func (a *Allocator) update(ctx context.Context) {
	var spaces int
	var old bool
	a.records.ViewQuotas(func(limited uint64, all []*Record) {
		spaces, old = len(all), limited < a.limited
		a.limited = max(a.limited, limited)
	})
	if old {
		return
	}
	a.host.SetNamespacesLimited(spaces)
	if spaces == 0 && len(a.shards) == 0 {
		return
	}
	var updates sync.WaitGroup
	for shard := range uint32(a.host.ShardCount()) { //nolint:gosec // a few
		term, use := a.host.QuotaUse(shard)
		if term == 0 {
			delete(a.shards, shard)
			continue
		}
		s := a.shards[shard]
		if s == nil || s.term != term {
			s = &shardQuotas{term: term, states: map[string]*namespaceState{}}
			a.shards[shard] = s
		}
		s.limited = max(s.limited, a.limited)
		updates.Go(func() { a.updateShard(ctx, shard, s, use) })
	}
	updates.Wait()
	if spaces == 0 {
		clear(a.shards)
	}
}

// updateShard applies the recorded quotas of one shard, and changes those that should change.
func (a *Allocator) updateShard(ctx context.Context, shard uint32, s *shardQuotas, use map[string]node.NamespaceUse) {
	changes := a.applyQuotas(shard, s, use)
	if len(changes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	err := a.records.ChangeShardQuotas(ctx, ShardChanges{Shard: shard, Term: s.term, Changes: changes})
	if err != nil {
		a.logger.Debug("changing what a shard may use of namespaces' quotas", "shard", shard, "error", err)
		return
	}
	a.applyQuotas(shard, s, nil)
}

// applyQuotas gives the node the recorded quotas of a shard, less what is being given back. It
// returns the changes that the use calls for, none if use is nil. The node does without a part of
// its quota before any other node learns that the part is given back.
func (a *Allocator) applyQuotas(
	shard uint32, s *shardQuotas, use map[string]node.NamespaceUse,
) (changes []Change) {
	all, had := map[string]node.ShardQuota{}, map[string]node.Amounts{}
	var old bool
	a.records.ViewQuotas(func(limited uint64, records []*Record) {
		if old = limited < s.limited; old {
			return
		}
		s.limited = limited
		for _, r := range records {
			quota, change := s.quotaFor(r, shard, a.host.ShardCount(), use)
			all[r.Name] = quota
			if change != nil && use != nil {
				changes, had[r.Name] = append(changes, *change), r.grantedToShard(shard)
			}
		}
	})
	if old {
		return nil
	}
	used := a.host.SetShardQuotas(shard, s.term, all)
	if used == nil { // it does not lead any more, and must not propose for the new leader
		return nil
	}
	for i := range changes { // quota that was used since use was read is not given back
		for _, l := range [...]node.Limit{node.JobsLimit, node.BytesLimit, node.LeasesLimit} {
			c := &changes[i]
			c.Granted[l] = max(c.Granted[l], min(used[c.Name][l], had[c.Name][l]))
		}
	}
	return changes
}

// quotaFor returns what applyQuotas needs of one namespace: the shard's quota and its change, nil
// for no change.
func (s *shardQuotas) quotaFor(
	r *Record, shard uint32, shards int, use map[string]node.NamespaceUse,
) (node.ShardQuota, *Change) {
	i := slices.IndexFunc(r.ShardQuotas, func(e ShardQuota) bool { return e.Shard == shard })
	if i < 0 || r.ShardQuotas[i].Term < s.term {
		return node.ShardQuota{Quota: r.Quota, Waiting: true}, &Change{Name: r.Name, Created: r.Created}
	}
	e := r.ShardQuotas[i]
	if e.Term > s.term { // another node leads by now
		return node.ShardQuota{Quota: r.Quota, Waiting: true}, nil
	}
	st := s.states[r.Name]
	if st == nil {
		st = &namespaceState{}
		s.states[r.Name] = st
	}
	if e.Version < st.from {
		return node.ShardQuota{Quota: r.Quota, Granted: st.most}, nil
	}
	if e.Version > st.from {
		st.from, st.most = e.Version, e.Granted
	}
	if u, ok := use[r.Name]; ok {
		st.use = u
	}
	want := wantedQuota(r, &e, st.use, shards)
	var change *Change
	changed := want.Granted != e.Granted || want.Wanted != e.Wanted || want.Tight != e.Tight
	if use != nil && (changed || e.Seen < r.Changed) {
		change = &Change{
			Name: r.Name, Created: r.Created, Version: e.Version,
			Granted: want.Granted, Seen: r.Changed, Wanted: want.Wanted, Tight: want.Tight,
		}
		for l := range st.most {
			st.most[l] = min(st.most[l], want.Granted[l])
		}
	}
	return node.ShardQuota{Quota: r.Quota, Granted: st.most, More: r.mayGrow(&e)}, change
}
