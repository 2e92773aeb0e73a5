package cluster

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node"
)

const (
	// quotaInterval is the time between two updates of the shards' quotas, if no request waits for
	// quota.
	quotaInterval = 200 * time.Millisecond
	// quotaIntervalMin is the least time between two updates.
	quotaIntervalMin = 10 * time.Millisecond
	// catchUpInterval is the time between two attempts, after a start, to catch up with the
	// catalog's leader.
	catchUpInterval = 100 * time.Millisecond
	// quotaChangeTimeout bounds a catalog entry that changes the quotas of a shard.
	quotaChangeTimeout = 2 * time.Second
	// A shard's quota exceeds its use by 1/quotaSlackDivisor of it. A shard that uses nothing keeps
	// 1/quotaMinDivisor of an even part of the namespace's quota.
	quotaSlackDivisor = 8
	quotaMinDivisor   = 8
)

// quotaHost is the part of a node that enforces quotas. *node.Node implements it.
type quotaHost interface {
	ShardCount() int
	QuotaUse(shard uint32) (term uint64, all map[string]node.NamespaceUse)
	SetShardQuotas(shard uint32, term uint64, all map[string]node.ShardQuota) (used map[string]node.Amounts)
	SetNamespacesLimited(spaces int)
	OnQuotaShort(f func())
}

// quotaAllocator divides the quotas of namespaces among the shards that this node leads. It takes
// a shard's quotas over when a leadership starts, lets them grow with their use, and gives back
// what other shards need. See DESIGN.md, Quotas.
type quotaAllocator struct {
	host    quotaHost
	catalog *Catalog
	// refresh is Catalog.Refresh. caughtUp says that it has succeeded once. Before that this node
	// does not know which namespaces have quotas.
	refresh  func(ctx context.Context) error
	caughtUp bool
	wake     chan struct{}
	logger   *slog.Logger
	shards   map[uint32]*shardQuotas
	// limited is the index of the newest quota change seen. A replica that is rebuilt from its files
	// shows older quotas for a moment.
	limited uint64
}

// shardQuotas is the allocator's state for one shard. At most one change of it is under way.
type shardQuotas struct {
	term   uint64
	states map[string]*shardQuotaState
	// limited is the index of the newest quota change that the shard was told of.
	limited uint64
}

// shardQuotaState is a shard's quota in one namespace, as its leader uses it.
type shardQuotaState struct {
	// from is the version that pending changes start from. most is what remains of the quota if
	// any of them is carried out; a change of unknown outcome still may be. Both count while the
	// record has that version.
	from uint64
	most node.Amounts
	use  node.NamespaceUse
}

// newQuotaAllocator returns an allocator. Until it knows which namespaces have quotas, no shard
// that this node leads accepts anything into a namespace.
func newQuotaAllocator(host quotaHost, c *Catalog, logger *slog.Logger) *quotaAllocator {
	host.SetNamespacesLimited(1)
	return &quotaAllocator{
		host: host, catalog: c, refresh: c.Refresh, wake: make(chan struct{}, 1), logger: logger,
		shards: map[uint32]*shardQuotas{},
	}
}

// markCaughtUp records that the catalog here has once had all that its leader had.
func (a *quotaAllocator) markCaughtUp() {
	a.caughtUp = true
	a.catalog.view(func(m *machine) { a.host.SetNamespacesLimited(len(m.state.Namespaces)) })
}

// awaitCatalog waits until the catalog here has had all that its leader had. It reports false when
// ctx ends.
func (a *quotaAllocator) awaitCatalog(ctx context.Context) bool {
	for !a.caughtUp {
		if a.refresh(ctx) == nil {
			a.markCaughtUp()
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

// run updates the quotas until ctx ends.
func (a *quotaAllocator) run(ctx context.Context) {
	a.host.OnQuotaShort(func() {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	})
	if !a.awaitCatalog(ctx) {
		return
	}
	tick := time.NewTicker(quotaInterval)
	defer tick.Stop()
	pause := time.NewTimer(quotaIntervalMin)
	defer pause.Stop()
	for {
		a.update(ctx)
		pause.Reset(quotaIntervalMin)
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
func (a *quotaAllocator) update(ctx context.Context) {
	var spaces int
	var old bool
	a.catalog.view(func(m *machine) {
		spaces, old = len(m.state.Namespaces), m.state.Limited < a.limited
		a.limited = max(a.limited, m.state.Limited)
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
			s = &shardQuotas{term: term, states: map[string]*shardQuotaState{}}
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
func (a *quotaAllocator) updateShard(ctx context.Context, shard uint32, s *shardQuotas, use map[string]node.NamespaceUse) {
	changes := a.applyQuotas(shard, s, use)
	if len(changes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, quotaChangeTimeout)
	defer cancel()
	cmd := command{ShardQuotas: &shardQuotaChanges{Shard: shard, Term: s.term, Changes: changes}}
	_, err := a.catalog.propose(ctx, cmd)
	if err != nil {
		a.logger.Debug("changing what a shard may use of namespaces' quotas", "shard", shard, "error", err)
		return
	}
	a.applyQuotas(shard, s, nil)
}

// applyQuotas gives the node the recorded quotas of a shard, less what is being given back. It
// returns the changes that the use calls for, none if use is nil. The node does without a part of
// its quota before any other node learns that the part is given back.
func (a *quotaAllocator) applyQuotas(
	shard uint32, s *shardQuotas, use map[string]node.NamespaceUse,
) (changes []shardQuotaChange) {
	all, had := map[string]node.ShardQuota{}, map[string]node.Amounts{}
	var old bool
	a.catalog.view(func(m *machine) {
		if old = m.state.Limited < s.limited; old {
			return
		}
		s.limited = m.state.Limited
		for _, r := range m.state.Namespaces {
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
	r *namespaceRecord, shard uint32, shards int, use map[string]node.NamespaceUse,
) (node.ShardQuota, *shardQuotaChange) {
	i := slices.IndexFunc(r.ShardQuotas, func(e shardQuota) bool { return e.Shard == shard })
	if i < 0 || r.ShardQuotas[i].Term < s.term {
		return node.ShardQuota{Quota: r.Quota, Waiting: true}, &shardQuotaChange{Name: r.Name, Created: r.Created}
	}
	e := r.ShardQuotas[i]
	if e.Term > s.term { // another node leads by now
		return node.ShardQuota{Quota: r.Quota, Waiting: true}, nil
	}
	st := s.states[r.Name]
	if st == nil {
		st = &shardQuotaState{}
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
	var change *shardQuotaChange
	changed := want.Granted != e.Granted || want.Wanted != e.Wanted || want.Tight != e.Tight
	if use != nil && (changed || e.Seen < r.Changed) {
		change = &shardQuotaChange{
			Name: r.Name, Created: r.Created, Version: e.Version,
			Granted: want.Granted, Seen: r.Changed, Wanted: want.Wanted, Tight: want.Tight,
		}
		for l := range st.most {
			st.most[l] = min(st.most[l], want.Granted[l])
		}
	}
	return node.ShardQuota{Quota: r.Quota, Granted: st.most, More: r.mayGrow(&e)}, change
}

// grantedToShard returns the quota of a shard.
func (r *namespaceRecord) grantedToShard(shard uint32) node.Amounts {
	for i := range r.ShardQuotas {
		if s := &r.ShardQuotas[i]; s.Shard == shard {
			return s.Granted
		}
	}
	return node.Amounts{}
}

// mayGrow reports for each limit whether the shard may get more: a part of the quota is free, or
// another shard has not said that it has nothing to give.
func (r *namespaceRecord) mayGrow(e *shardQuota) (more [node.Limits]bool) {
	others := r.grantedExcept(e.Shard)
	for l := range more {
		more[l] = others[l]+e.Granted[l] < r.Quota[l]
		for i := range r.ShardQuotas {
			s := &r.ShardQuotas[i]
			more[l] = more[l] || s.Shard != e.Shard && s.Granted[l] > 0 && !s.Tight[l]
		}
	}
	return more
}

// wantedQuota returns what a shard's quota should be, by its use and by what other shards need.
func wantedQuota(r *namespaceRecord, e *shardQuota, use node.NamespaceUse, shards int) (want shardQuota) {
	others := r.grantedExcept(e.Shard)
	want = *e
	for l := range node.Limits {
		quota, have, used := r.Quota[l], e.Granted[l], use.Use[l]
		if quota == 0 {
			want.Granted[l], want.Wanted[l], want.Tight[l] = 0, false, false
			continue
		}
		least := quota / uint64(shards*quotaMinDivisor) //nolint:gosec // a few
		need := used + use.Short[l]
		short := use.Short[l] > 0 && (need > have || l == node.PutRate) // the use of a rate is a past one
		target := min(quota, need+max(least, need/quotaSlackDivisor))
		if short { // callers that ask one by one lack little at a time
			target = min(quota, max(target, 2*have))
		}
		free := quota - min(quota, others[l]+have)
		rivals := r.shardsInNeed(e.Shard, l)
		spare := have - min(have, used)
		if l == node.PutRate && spare <= have/quotaSlackDivisor { // a rate varies
			spare = 0
		}
		granted := have
		switch {
		case l == node.PutRate && others[l]+have > quota: // a rate can be cut at once: no job holds it
			granted = min(have-min(have, 1), uint64(float64(quota)*(float64(have)/float64(others[l]+have))))
		case others[l]+have > quota || rivals > 0 && !short:
			granted = have - spare
		case short && l == node.PutRate && have > quota/(rivals+1)*(quotaSlackDivisor+1)/quotaSlackDivisor:
			// A shard that always wants more would keep it for ever.
			granted = have - have/quotaSlackDivisor
		case short: // several shards want more: each leaves the others their part
			granted = max(have, min(target, have+(free+rivals)/(rivals+1)))
		case used+least/2 >= have: // no request waits: half of what is free; the rest is for shards in need
			granted = max(have, min(target, have+free/2))
		case have > 2*target+least:
			granted = target
		}
		want.Granted[l] = granted
		want.Wanted[l] = short && granted < need
		want.Tight[l] = rivals > 0 && granted <= have && (spare == 0 || granted < have)
	}
	return want
}

// shardsInNeed returns how many other shards say that they lack quota.
func (r *namespaceRecord) shardsInNeed(but uint32, l node.Limit) (rivals uint64) {
	for i := range r.ShardQuotas {
		if s := &r.ShardQuotas[i]; s.Shard != but && s.Wanted[l] {
			rivals++
		}
	}
	return rivals
}
