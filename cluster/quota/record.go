package quota

import (
	"slices"

	"github.com/belfrydb/belfry/node"
)

const (
	// A shard's quota exceeds its use by 1/slackDivisor of it. A shard that uses nothing keeps
	// 1/minDivisor of an even part of the namespace's quota.
	slackDivisor = 8
	minDivisor   = 8
)

// Record is a namespace with a quota, and the division of the quota among the shards.
type Record struct {
	Name string `json:"name"`
	// Created is the index of the entry that made the record. It tells two records of the same name
	// apart.
	Created uint64       `json:"born"`
	Quota   node.Amounts `json:"quota"`
	// Changed is the index of the entry that last changed Quota.
	Changed uint64 `json:"changed,omitempty"`
	// ShardQuotas has an entry for each shard whose leader has learned of the record, by shard.
	ShardQuotas []ShardQuota `json:"shares,omitempty"`
}

// ShardQuota is the part of a namespace's quota that one shard may use. Only the shard's leader
// changes it.
type ShardQuota struct {
	Shard uint32 `json:"shard"`
	// Term is that of the leader that last took the record over. Version is the index of the entry
	// that last changed it.
	Term    uint64       `json:"term"`
	Version uint64       `json:"version"`
	Granted node.Amounts `json:"granted"`
	// Seen is the newest Changed that the leader enforces.
	Seen uint64 `json:"seen,omitempty"`
	// Wanted says that the shard lacks quota, Tight that it has none to give.
	Wanted [node.Limits]bool `json:"wanted"`
	Tight  [node.Limits]bool `json:"tight"`
}

// ShardChanges are the changes that the leader of a shard in a term proposes for the shard.
type ShardChanges struct {
	Shard   uint32   `json:"shard"`
	Term    uint64   `json:"term"`
	Changes []Change `json:"changes"`
}

// Change changes one shard quota, from the version that it was made from. Version 0
// takes over the quota of the leaders of earlier terms.
type Change struct {
	Name    string            `json:"name"`
	Created uint64            `json:"born"`
	Version uint64            `json:"version,omitempty"`
	Granted node.Amounts      `json:"granted"`
	Seen    uint64            `json:"seen,omitempty"`
	Wanted  [node.Limits]bool `json:"wanted"`
	Tight   [node.Limits]bool `json:"tight"`
}

// ChangeShardQuota changes the quota of a shard, unless a leader of a later term has taken it
// over, or it has changed since.
func (r *Record) ChangeShardQuota(index uint64, shard uint32, term uint64, c *Change) {
	i, found := slices.BinarySearchFunc(r.ShardQuotas, shard, func(s ShardQuota, shard uint32) int {
		return int(s.Shard) - int(shard)
	})
	if !found {
		r.ShardQuotas = slices.Insert(r.ShardQuotas, i, ShardQuota{Shard: shard})
	}
	s := &r.ShardQuotas[i]
	if c.Version == 0 {
		if term > s.Term { // the leader accepts no requests before it has seen this change and all earlier ones
			s.Term, s.Version, s.Seen = term, index, r.Changed
		}
		return
	}
	if term != s.Term || c.Version != s.Version {
		return
	}
	others := r.GrantedExcept(shard)
	for l := range c.Granted {
		free := r.Quota[l] - min(r.Quota[l], others[l])
		if want := c.Granted[l]; want > s.Granted[l] {
			s.Granted[l] = max(s.Granted[l], min(want, free))
		} else {
			s.Granted[l] = want
		}
	}
	s.Wanted, s.Tight, s.Version, s.Seen = c.Wanted, c.Tight, index, max(s.Seen, c.Seen)
}

// GrantedExcept returns the sum of the quotas of all shards but one.
func (r *Record) GrantedExcept(but uint32) (sum node.Amounts) {
	for i := range r.ShardQuotas {
		if s := &r.ShardQuotas[i]; s.Shard != but {
			for l := range sum {
				sum[l] += s.Granted[l]
			}
		}
	}
	return sum
}

// grantedToShard returns the quota of a shard.
func (r *Record) grantedToShard(shard uint32) node.Amounts {
	for i := range r.ShardQuotas {
		if s := &r.ShardQuotas[i]; s.Shard == shard {
			return s.Granted
		}
	}
	return node.Amounts{}
}

// mayGrow reports for each limit whether the shard may get more: a part of the quota is free, or
// another shard has not said that it has nothing to give.
func (r *Record) mayGrow(e *ShardQuota) (more [node.Limits]bool) {
	others := r.GrantedExcept(e.Shard)
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
func wantedQuota(r *Record, e *ShardQuota, use node.NamespaceUse, shards int) (want ShardQuota) {
	others := r.GrantedExcept(e.Shard)
	want = *e
	for l := range node.Limits {
		quota, have, used := r.Quota[l], e.Granted[l], use.Use[l]
		if quota == 0 {
			want.Granted[l], want.Wanted[l], want.Tight[l] = 0, false, false
			continue
		}
		least := quota / uint64(shards*minDivisor) //nolint:gosec // a few
		need := used + use.Short[l]
		short := use.Short[l] > 0 && (need > have || l == node.PutRate) // the use of a rate is a past one
		target := min(quota, need+max(least, need/slackDivisor))
		if short { // callers that ask one by one lack little at a time
			target = min(quota, max(target, 2*have))
		}
		free := quota - min(quota, others[l]+have)
		rivals := r.shardsInNeed(e.Shard, l)
		spare := have - min(have, used)
		if l == node.PutRate && spare <= have/slackDivisor { // a rate varies
			spare = 0
		}
		granted := have
		switch {
		case l == node.PutRate && others[l]+have > quota: // a rate can be cut at once: no job holds it
			granted = min(have-min(have, 1), uint64(float64(quota)*(float64(have)/float64(others[l]+have))))
		case others[l]+have > quota || rivals > 0 && !short:
			granted = have - spare
		case short && l == node.PutRate && have > quota/(rivals+1)*(slackDivisor+1)/slackDivisor:
			// A shard that always wants more would keep it for ever.
			granted = have - have/slackDivisor
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
func (r *Record) shardsInNeed(but uint32, l node.Limit) (rivals uint64) {
	for i := range r.ShardQuotas {
		if s := &r.ShardQuotas[i]; s.Shard != but && s.Wanted[l] {
			rivals++
		}
	}
	return rivals
}
