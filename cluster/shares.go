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
	// sharePause is the time between two looks at the shares, if nobody waits for one.
	sharePause = 200 * time.Millisecond
	// shareRest is the least time between two looks.
	shareRest = 10 * time.Millisecond
	// shareCatchUp is the time between two attempts to hear from the catalog's leader what there is, after a start.
	shareCatchUp = 100 * time.Millisecond
	// shareTimeout bounds an entry of the catalog that changes shares.
	shareTimeout = 2 * time.Second
	// shareSlack is the part of what a shard uses that its share has beyond, and shareLittle the part of its even share that one has that uses nothing.
	shareSlack  = 8
	shareLittle = 8
)

// shareHost is what of a node divides quotas. *node.Node implements it.
type shareHost interface {
	ShardCount() int
	SharesUsed(shard uint32) (term uint64, all map[string]node.SpaceUse)
	SetShares(shard uint32, term uint64, all map[string]node.Share) (used map[string]node.Amounts)
	LimitSpaces(spaces int)
	OnShort(f func())
}

// shareKeeper keeps the shares of the shards that this node leads: it takes them over when a leadership begins, has them grow as they are used, and gives
// back what others want. See DESIGN.md, Quotas.
type shareKeeper struct {
	host    shareHost
	catalog *Catalog
	// refresh is that of the catalog, and known says that it has succeeded once: before that nobody can tell which namespaces have quotas.
	refresh func(ctx context.Context) error
	known   bool
	kick    chan struct{}
	logger  *slog.Logger
	shards  map[uint32]*shardKeeper
	// limited is the newest change of a quota that was seen: a replica that is made anew from its files shows old ones for a moment.
	limited uint64
}

// shardKeeper is what is kept of one shard. At most one change of it is under way.
type shardKeeper struct {
	term   uint64
	states map[string]*shareState
	// limited is the newest change of a quota that the shard was told of.
	limited uint64
}

// shareState is a share as its leader uses it.
type shareState struct {
	// from is the version from which changes were made, and most what is left of the share if any of them is carried out: one whose outcome is not known
	// may still be. Both count while the record has that version.
	from uint64
	most node.Amounts
	use  node.SpaceUse
}

// newShareKeeper returns a keeper of shares. From then on, until it knows which namespaces have quotas, no shard that this node leads takes anything into one.
func newShareKeeper(host shareHost, c *Catalog, logger *slog.Logger) *shareKeeper {
	host.LimitSpaces(1)
	return &shareKeeper{host: host, catalog: c, refresh: c.Refresh, kick: make(chan struct{}, 1), logger: logger, shards: map[uint32]*shardKeeper{}}
}

// caughtUp is called when the catalog here has had all that its leader had, once.
func (k *shareKeeper) caughtUp() {
	k.known = true
	k.catalog.view(func(m *machine) { k.host.LimitSpaces(len(m.state.Namespaces)) })
}

// catchUp waits until the catalog here has had all that its leader had. It reports false when ctx ends.
func (k *shareKeeper) catchUp(ctx context.Context) bool {
	for !k.known {
		if k.refresh(ctx) == nil {
			k.caughtUp()
			break
		}
		pause := time.NewTimer(shareCatchUp)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return false
		}
	}
	return true
}

// run keeps the shares until ctx ends.
func (k *shareKeeper) run(ctx context.Context) {
	k.host.OnShort(func() {
		select {
		case k.kick <- struct{}{}:
		default:
		}
	})
	if !k.catchUp(ctx) {
		return
	}
	tick := time.NewTicker(sharePause)
	defer tick.Stop()
	rest := time.NewTimer(shareRest)
	defer rest.Stop()
	for {
		k.look(ctx)
		rest.Reset(shareRest)
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-k.kick:
		}
	}
}

// look looks once at all shards that this node leads.
func (k *shareKeeper) look(ctx context.Context) {
	var spaces int
	var old bool
	k.catalog.view(func(m *machine) {
		spaces, old = len(m.state.Namespaces), m.state.Limited < k.limited
		k.limited = max(k.limited, m.state.Limited)
	})
	if old {
		return
	}
	k.host.LimitSpaces(spaces)
	if spaces == 0 && len(k.shards) == 0 {
		return
	}
	var looking sync.WaitGroup
	for shard := range uint32(k.host.ShardCount()) { //nolint:gosec // a few
		term, use := k.host.SharesUsed(shard)
		if term == 0 {
			delete(k.shards, shard)
			continue
		}
		s := k.shards[shard]
		if s == nil || s.term != term {
			s = &shardKeeper{term: term, states: map[string]*shareState{}}
			k.shards[shard] = s
		}
		s.limited = max(s.limited, k.limited)
		looking.Go(func() { k.lookAt(ctx, shard, s, use) })
	}
	looking.Wait()
	if spaces == 0 {
		clear(k.shards)
	}
}

// lookAt takes over the shares of one shard as they are recorded, and changes those that should change.
func (k *shareKeeper) lookAt(ctx context.Context, shard uint32, s *shardKeeper, use map[string]node.SpaceUse) {
	changes := k.hand(shard, s, use)
	if len(changes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	_, err := k.catalog.propose(ctx, command{Shares: &shareChanges{Shard: shard, Term: s.term, Changes: changes}})
	if err != nil {
		k.logger.Debug("changing what a shard may use of namespaces' quotas", "shard", shard, "error", err)
		return
	}
	k.hand(shard, s, nil)
}

// hand gives the node the shares of a shard as they are recorded, less what is being given back, and returns the changes that what is used calls for;
// none if use is nil. What is given back is so before anybody else hears of it.
func (k *shareKeeper) hand(shard uint32, s *shardKeeper, use map[string]node.SpaceUse) (changes []shareChange) {
	all, had := map[string]node.Share{}, map[string]node.Amounts{}
	var old bool
	k.catalog.view(func(m *machine) {
		if old = m.state.Limited < s.limited; old {
			return
		}
		s.limited = m.state.Limited
		for _, r := range m.state.Namespaces {
			share, change := s.hand(r, shard, k.host.ShardCount(), use)
			all[r.Name] = share
			if change != nil && use != nil {
				changes, had[r.Name] = append(changes, *change), r.grantedTo(shard)
			}
		}
	})
	if old {
		return nil
	}
	used := k.host.SetShares(shard, s.term, all)
	if used == nil { // it leads no more, and says nothing in the name of who does
		return nil
	}
	for i := range changes { // what was let in since use was read is not given away
		for _, l := range [...]node.Limit{node.JobsLimit, node.BytesLimit, node.LeasesLimit} {
			c := &changes[i]
			c.Granted[l] = max(c.Granted[l], min(used[c.Name][l], had[c.Name][l]))
		}
	}
	return changes
}

// hand is shareKeeper.hand for one namespace.
func (s *shardKeeper) hand(r *namespaceRecord, shard uint32, shards int, use map[string]node.SpaceUse) (node.Share, *shareChange) {
	i := slices.IndexFunc(r.Shares, func(e shareRecord) bool { return e.Shard == shard })
	if i < 0 || r.Shares[i].Term < s.term {
		return node.Share{Quota: r.Quota, Waiting: true}, &shareChange{Name: r.Name, Born: r.Born}
	}
	e := r.Shares[i]
	if e.Term > s.term { // another leads by now
		return node.Share{Quota: r.Quota, Waiting: true}, nil
	}
	st := s.states[r.Name]
	if st == nil {
		st = &shareState{}
		s.states[r.Name] = st
	}
	if e.Version < st.from {
		return node.Share{Quota: r.Quota, Granted: st.most}, nil
	}
	if e.Version > st.from {
		st.from, st.most = e.Version, e.Granted
	}
	if u, ok := use[r.Name]; ok {
		st.use = u
	}
	want := wanted(r, &e, st.use, shards)
	var change *shareChange
	if use != nil && (want.Granted != e.Granted || want.Wanted != e.Wanted || want.Tight != e.Tight || e.Seen < r.Changed) {
		change = &shareChange{
			Name: r.Name, Born: r.Born, Version: e.Version, Granted: want.Granted, Seen: r.Changed, Wanted: want.Wanted, Tight: want.Tight,
		}
		for l := range st.most {
			st.most[l] = min(st.most[l], want.Granted[l])
		}
	}
	return node.Share{Quota: r.Quota, Granted: st.most, More: r.more(&e)}, change
}

// grantedTo returns the share of a shard.
func (r *namespaceRecord) grantedTo(shard uint32) node.Amounts {
	for i := range r.Shares {
		if s := &r.Shares[i]; s.Shard == shard {
			return s.Granted
		}
	}
	return node.Amounts{}
}

// more says of which limits there may be something to be had: nobody has it, or a shard has not said that it has nothing to give.
func (r *namespaceRecord) more(e *shareRecord) (more [node.Limits]bool) {
	others := r.granted(e.Shard)
	for l := range more {
		more[l] = others[l]+e.Granted[l] < r.Quota[l]
		for i := range r.Shares {
			s := &r.Shares[i]
			more[l] = more[l] || s.Shard != e.Shard && s.Granted[l] > 0 && !s.Tight[l]
		}
	}
	return more
}

// wanted returns what a shard's share should be, by what is used of it and by what others want.
func wanted(r *namespaceRecord, e *shareRecord, use node.SpaceUse, shards int) (want shareRecord) {
	others := r.granted(e.Shard)
	want = *e
	for l := range node.Limits {
		quota, have, used := r.Quota[l], e.Granted[l], use.Use[l]
		if quota == 0 {
			want.Granted[l], want.Wanted[l], want.Tight[l] = 0, false, false
			continue
		}
		little := quota / uint64(shards*shareLittle) //nolint:gosec // a few
		need := used + use.Short[l]
		short := use.Short[l] > 0 && (need > have || l == node.PutRate) // what is used of a rate is what it was
		target := min(quota, need+max(little, need/shareSlack))
		if short { // who asks one by one lacks little at a time
			target = min(quota, max(target, 2*have))
		}
		free := quota - min(quota, others[l]+have)
		rivals := r.wanting(e.Shard, l)
		spare := have - min(have, used)
		if l == node.PutRate && spare <= have/shareSlack { // it varies
			spare = 0
		}
		granted := have
		switch {
		case l == node.PutRate && others[l]+have > quota: // nothing is held that would have to end first
			granted = min(have-min(have, 1), uint64(float64(quota)*(float64(have)/float64(others[l]+have))))
		case others[l]+have > quota || rivals > 0 && !short:
			granted = have - spare
		case short && l == node.PutRate && have > quota/(rivals+1)*(shareSlack+1)/shareSlack: // it is used up for ever by who wants more for ever
			granted = have - have/shareSlack
		case short: // of what several want each leaves the others their part
			granted = max(have, min(target, have+(free+rivals)/(rivals+1)))
		case used+little/2 >= have: // nobody waits for it: half of what is free, so that there is some for who needs it
			granted = max(have, min(target, have+free/2))
		case have > 2*target+little:
			granted = target
		}
		want.Granted[l] = granted
		want.Wanted[l] = short && granted < need
		want.Tight[l] = rivals > 0 && granted <= have && (spare == 0 || granted < have)
	}
	return want
}

// wanting returns how many other shards say that they lack something.
func (r *namespaceRecord) wanting(but uint32, l node.Limit) (rivals uint64) {
	for i := range r.Shares {
		if s := &r.Shares[i]; s.Shard != but && s.Wanted[l] {
			rivals++
		}
	}
	return rivals
}
