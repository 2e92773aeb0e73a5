package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/cluster/quota"
	"github.com/belfrydb/belfry/node"
)

// limitation sets the limits of a namespace's quota that Set names, or removes the quota.
type limitation struct {
	Name   string            `json:"name"`
	Set    [node.Limits]bool `json:"set"`
	Quota  node.Amounts      `json:"quota"`
	Remove bool              `json:"remove,omitempty"`
}

// findNamespace returns the position at which a namespace's record is or would be.
func (m *machine) findNamespace(name string) (int, bool) {
	return slices.BinarySearchFunc(m.state.Namespaces, name, func(r *quota.Record, name string) int {
		return strings.Compare(r.Name, name)
	})
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
		m.state.Namespaces = slices.Insert(m.state.Namespaces, i, &quota.Record{Name: l.Name, Created: index})
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

// changeShardQuotas applies the changes of a shard's leader as far as possible. A shard's quota
// grows only by what no shard has.
func (m *machine) changeShardQuotas(index uint64, c *quota.ShardChanges) outcome {
	for i := range c.Changes {
		change := &c.Changes[i]
		at, found := m.findNamespace(change.Name)
		if !found || m.state.Namespaces[at].Created != change.Created {
			continue
		}
		m.state.Namespaces[at].ChangeShardQuota(index, c.Shard, c.Term, change)
	}
	return outcome{}
}

// NamespaceConfig is the catalog's view of a namespace with a quota.
type NamespaceConfig struct {
	Name string
	// Quota is the limit for all queues of the namespace together; 0 stands for no limit. Granted
	// is what shards may use by now. It exceeds the quota only where the quota was lowered.
	Quota, Granted node.Amounts
	// Pending are the shards whose leaders have not learned of the present quota, so that it is
	// not enforced there.
	Pending []uint32
}

func (c *Catalog) namespaceOf(r *quota.Record) NamespaceConfig {
	n := NamespaceConfig{Name: r.Name, Quota: r.Quota, Granted: r.GrantedExcept(^uint32(0))}
	for shard := range uint32(c.shards.ShardCount()) { //nolint:gosec // a few
		enforces := func(s quota.ShardQuota) bool { return s.Shard == shard && s.Seen >= r.Changed }
		if !slices.ContainsFunc(r.ShardQuotas, enforces) {
			n.Pending = append(n.Pending, shard)
		}
	}
	return n
}

// ViewQuotas calls f with the records of all namespaces with a quota, by name, and the index of the
// last entry that set or removed a quota. f must not change the records, and must not keep them.
func (c *Catalog) ViewQuotas(f func(limited uint64, all []*quota.Record)) {
	c.view(func(m *machine) { f(m.state.Limited, m.state.Namespaces) })
}

// ChangeShardQuotas changes the quotas of one shard, which this node leads.
func (c *Catalog) ChangeShardQuotas(ctx context.Context, changes quota.ShardChanges) error {
	_, err := c.propose(ctx, command{ShardQuotas: &changes})
	return err
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

// namespaceWait is how long SetNamespace and RestoreNamespaces wait for the shards' leaders to
// learn of a quota.
const namespaceWait = 3 * time.Second

// namespacePoll is the time between two looks meanwhile.
const namespacePoll = 200 * time.Millisecond

// SetNamespace sets the limits of a namespace's quota that set names, and waits for a moment until
// all shards enforce it. The answer names the shards where it is still pending. It may be
// repeated.
func (c *Catalog) SetNamespace(ctx context.Context, name string, set [node.Limits]bool,
	quota node.Amounts) (NamespaceConfig, error) {
	if _, err := c.propose(ctx, command{Limit: &limitation{Name: name, Set: set, Quota: quota}}); err != nil {
		return NamespaceConfig{}, fmt.Errorf("setting the quota of namespace %q: %w", name, err)
	}
	c.awaitNamespaces(ctx, name)
	config, _ := c.Namespace(name)
	return config, nil
}

// RestoreNamespaces sets the quotas of a backup, and waits for a moment until all shards enforce
// them. It may be repeated until it succeeds.
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

// awaitNamespaces waits until all shards enforce the quotas of namespaces, for a moment at most.
func (c *Catalog) awaitNamespaces(ctx context.Context, names ...string) {
	ctx, cancel := context.WithTimeout(ctx, namespaceWait)
	defer cancel()
	tick := time.NewTicker(namespacePoll)
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

// RemoveNamespace removes the quota of a namespace, and nothing that the namespace holds. It
// reports whether there was a quota, and may be repeated.
func (c *Catalog) RemoveNamespace(ctx context.Context, name string) (found bool, err error) {
	out, err := c.propose(ctx, command{Limit: &limitation{Name: name, Remove: true}})
	if err != nil {
		return false, fmt.Errorf("removing the quota of namespace %q: %w", name, err)
	}
	return out.verdict != overtaken, nil
}
