package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/node"
)

// namespaceRecord is a namespace with a quota, and how that is divided.
type namespaceRecord struct {
	Name string `json:"name"`
	// Born is the index of the entry that made the record: one that is made again is another.
	Born  uint64       `json:"born"`
	Quota node.Amounts `json:"quota"`
	// Changed is the index of the entry that last changed Quota.
	Changed uint64 `json:"changed,omitempty"`
	// Shares are those of the shards whose leaders have heard of the record, by shard.
	Shares []shareRecord `json:"shares,omitempty"`
}

// shareRecord is what one shard may use. Only the shard's leader changes it.
type shareRecord struct {
	Shard uint32 `json:"shard"`
	// Term is that of the leader that last took it over, Version the index of the entry that last changed it.
	Term    uint64       `json:"term"`
	Version uint64       `json:"version"`
	Granted node.Amounts `json:"granted"`
	// Seen is the newest Changed of which the leader lets nothing in any more that does not fit.
	Seen uint64 `json:"seen,omitempty"`
	// Wanted says that the shard lacks something, Tight that it has nothing to give.
	Wanted [node.Limits]bool `json:"wanted"`
	Tight  [node.Limits]bool `json:"tight"`
}

// limitation sets those limits of a namespace's quota that Set names, or removes the quota.
type limitation struct {
	Name   string            `json:"name"`
	Set    [node.Limits]bool `json:"set"`
	Quota  node.Amounts      `json:"quota"`
	Remove bool              `json:"remove,omitempty"`
}

// shareChanges are what the leader of a shard in a term makes of its shares.
type shareChanges struct {
	Shard   uint32        `json:"shard"`
	Term    uint64        `json:"term"`
	Changes []shareChange `json:"changes"`
}

// shareChange changes one share, from the version that it was made from. Version 0 takes over what the leaders of earlier terms had.
type shareChange struct {
	Name    string            `json:"name"`
	Born    uint64            `json:"born"`
	Version uint64            `json:"version,omitempty"`
	Granted node.Amounts      `json:"granted"`
	Seen    uint64            `json:"seen,omitempty"`
	Wanted  [node.Limits]bool `json:"wanted"`
	Tight   [node.Limits]bool `json:"tight"`
}

// findNamespace returns where a namespace's record is or would be.
func (m *machine) findNamespace(name string) (int, bool) {
	return slices.BinarySearchFunc(m.state.Namespaces, name, func(r *namespaceRecord, name string) int { return strings.Compare(r.Name, name) })
}

func (m *machine) limit(index uint64, l *limitation) outcome {
	i, found := m.findNamespace(l.Name)
	m.state.Limited = index
	if l.Remove {
		if !found {
			return outcome{verdict: overtaken}
		}
		m.state.Namespaces = slices.Delete(m.state.Namespaces, i, i+1)
		return outcome{}
	}
	if !found {
		m.state.Namespaces = slices.Insert(m.state.Namespaces, i, &namespaceRecord{Name: l.Name, Born: index})
	}
	r := m.state.Namespaces[i]
	before := r.Quota
	for at, set := range l.Set {
		if set {
			r.Quota[at] = l.Quota[at]
		}
	}
	if r.Quota != before {
		r.Changed = index
	}
	return outcome{}
}

// share carries out what can be carried out of the changes of a shard's leader. A share grows only by what no shard has.
func (m *machine) share(index uint64, c *shareChanges) outcome {
	for i := range c.Changes {
		change := &c.Changes[i]
		at, found := m.findNamespace(change.Name)
		if !found || m.state.Namespaces[at].Born != change.Born {
			continue
		}
		m.state.Namespaces[at].change(index, c.Shard, c.Term, change)
	}
	return outcome{}
}

// change changes the share of a shard, unless a leader of a later term has taken it over, or it has changed since.
func (r *namespaceRecord) change(index uint64, shard uint32, term uint64, c *shareChange) {
	i, found := slices.BinarySearchFunc(r.Shares, shard, func(s shareRecord, shard uint32) int { return int(s.Shard) - int(shard) })
	if !found {
		r.Shares = slices.Insert(r.Shares, i, shareRecord{Shard: shard})
	}
	s := &r.Shares[i]
	if c.Version == 0 {
		if term > s.Term { // until this is known to its leader nothing is let in, and then all that was changed before is
			s.Term, s.Version, s.Seen = term, index, r.Changed
		}
		return
	}
	if term != s.Term || c.Version != s.Version {
		return
	}
	others := r.granted(shard)
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

// granted returns what all shards but one may use together.
func (r *namespaceRecord) granted(but uint32) (sum node.Amounts) {
	for i := range r.Shares {
		if s := &r.Shares[i]; s.Shard != but {
			for l := range sum {
				sum[l] += s.Granted[l]
			}
		}
	}
	return sum
}

// NamespaceConfig is what the catalog has of a namespace with a quota.
type NamespaceConfig struct {
	Name string
	// Quota is what all its queues may have together; 0 stands for no limit. Granted is what shards may use by now, and never more than the quota
	// except where that was lowered.
	Quota, Granted node.Amounts
	// Pending are the shards whose leaders have not heard of the quota as it is, so that it does not hold there.
	Pending []uint32
}

func (c *Catalog) namespaceOf(r *namespaceRecord) NamespaceConfig {
	n := NamespaceConfig{Name: r.Name, Quota: r.Quota, Granted: r.granted(^uint32(0))}
	for shard := range uint32(c.shards.ShardCount()) { //nolint:gosec // a few
		if !slices.ContainsFunc(r.Shares, func(s shareRecord) bool { return s.Shard == shard && s.Seen >= r.Changed }) {
			n.Pending = append(n.Pending, shard)
		}
	}
	return n
}

// Namespaces returns the namespaces with a quota, by name, from memory.
func (c *Catalog) Namespaces() (all []NamespaceConfig) {
	c.view(func(m *machine) {
		for _, r := range m.state.Namespaces {
			all = append(all, c.namespaceOf(r))
		}
	})
	return all
}

// Namespace returns one namespace with a quota, from memory.
func (c *Catalog) Namespace(name string) (config NamespaceConfig, recorded bool) {
	c.view(func(m *machine) {
		if i, found := m.findNamespace(name); found {
			config, recorded = c.namespaceOf(m.state.Namespaces[i]), true
		}
	})
	return config, recorded
}

// namespaceWait is how long SetNamespace and RestoreNamespaces wait for the shards' leaders to hear of a quota.
const namespaceWait = 3 * time.Second

// SetNamespace sets those limits of a namespace's quota that set names, and waits for a moment until it holds in all shards. The answer says where it is still pending. It may be repeated.
func (c *Catalog) SetNamespace(ctx context.Context, name string, set [node.Limits]bool, quota node.Amounts) (NamespaceConfig, error) {
	if _, err := c.propose(ctx, command{Limit: &limitation{Name: name, Set: set, Quota: quota}}); err != nil {
		return NamespaceConfig{}, fmt.Errorf("setting the quota of namespace %q: %w", name, err)
	}
	c.awaitNamespaces(ctx, name)
	config, _ := c.Namespace(name)
	return config, nil
}

// RestoreNamespaces sets the quotas of a backup, and waits for a moment until they hold in all shards. It may be repeated until it succeeds.
func (c *Catalog) RestoreNamespaces(ctx context.Context, all []NamespaceConfig) error {
	var set [node.Limits]bool
	for l := range set {
		set[l] = true
	}
	names := make([]string, 0, len(all))
	for i := range all {
		n := &all[i]
		if _, err := c.propose(ctx, command{Limit: &limitation{Name: n.Name, Set: set, Quota: n.Quota}}); err != nil {
			return fmt.Errorf("restoring the quota of namespace %q: %w", n.Name, err)
		}
		names = append(names, n.Name)
	}
	c.awaitNamespaces(ctx, names...)
	return nil
}

// awaitNamespaces waits until the quotas of namespaces hold in all shards, for a moment at most.
func (c *Catalog) awaitNamespaces(ctx context.Context, names ...string) {
	ctx, cancel := context.WithTimeout(ctx, namespaceWait)
	defer cancel()
	tick := time.NewTicker(sharePause)
	defer tick.Stop()
	for _, name := range names {
		for {
			config, recorded := c.Namespace(name)
			if len(config.Pending) == 0 || !recorded {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

// RemoveNamespace removes the quota of a namespace; what the namespace holds stays. It reports whether there was one, and may be repeated.
func (c *Catalog) RemoveNamespace(ctx context.Context, name string) (found bool, err error) {
	out, err := c.propose(ctx, command{Limit: &limitation{Name: name, Remove: true}})
	if err != nil {
		return false, fmt.Errorf("removing the quota of namespace %q: %w", name, err)
	}
	return out.verdict != overtaken, nil
}
