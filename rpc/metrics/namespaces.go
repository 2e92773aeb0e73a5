package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
)

// namespacesMax is how many namespaces with a quota have their own series. With four limits
// and six shards that is up to 32 series each, and 28 for all others together.
const namespacesMax = 250

// namespaceCollector shows the quotas of namespaces, their use and the refusals. The leader of each
// shard shows the use in its shard, so that sums over nodes are right. Every node shows the whole
// limits.
//
// Namespaces beyond the bound are summed as node.OtherQueues, without a limit. A namespace keeps
// its series as long as it has a quota and the process runs.
type namespaceCollector struct {
	node                 Node
	namespaces           func() []backend.Namespace
	most                 int
	limit, used, refused *prometheus.Desc

	mu      sync.Mutex // held by Collect
	shown   map[string]bool
	refusal refusalCounter
}

// refusalCounter counts refusals by series. When quotas are set and removed, a namespace may change
// its series. Its earlier refusals stay in the old series: to move them would make a counter
// decrease.
type refusalCounter struct {
	seen map[uint32]map[string]node.Amounts // the last report of each shard, by namespace
	// by series; those of a namespace without a quota are kept until it has one again
	counts map[string]node.Amounts
}

// add adds the refusals of a shard. now has them since the start of the node, or of the replica if
// that is later.
func (r *refusalCounter) add(shard uint32, now map[string]node.Amounts, shown map[string]bool) {
	grown := make(map[string]node.Amounts, len(now))
	for name, a := range now {
		before := r.seen[shard][name]
		for l := range a {
			if a[l] >= before[l] {
				a[l] -= before[l]
			}
		}
		grown[name] = a
	}
	addAmounts(r.counts, grown, shown)
	r.seen[shard] = now
}

// NewNamespaceCollector returns the collector for the namespaces with a quota, which namespaces
// returns from memory, by name.
func NewNamespaceCollector(n Node, namespaces func() []backend.Namespace) *namespaceCollector {
	return &namespaceCollector{
		node: n, namespaces: namespaces, most: namespacesMax, shown: map[string]bool{},
		refusal: refusalCounter{seen: map[uint32]map[string]node.Amounts{}, counts: map[string]node.Amounts{}},
		limit: desc("namespace_limit", "What all queues of the namespace may have together, as this node knows it; "+
			"every node shows the same. A limit that is not set is missing.", "namespace", "limit"),
		used: desc("namespace_used", "What the namespace uses of a limit in a shard; only the shard's leader says.",
			"namespace", "limit", "shard"),
		refused: desc("namespace_refused_total", "Requests that this node refused, as the leader of their shard, because "+
			"the namespace had used up the limit.", "namespace", "limit"),
	}
}

// limitLabel returns the label of a limit, which is its name in the settings.
func limitLabel(l node.Limit) string {
	return [node.Limits]string{node.JobsLimit: "jobs", node.BytesLimit: "bytes", node.LeasesLimit: "in_flight",
		node.PutRate: "puts_per_second"}[l]
}

// Describe implements prometheus.Collector.
func (c *namespaceCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.limit
	ch <- c.used
	ch <- c.refused
}

// Collect implements prometheus.Collector.
func (c *namespaceCollector) Collect(ch chan<- prometheus.Metric) {
	all := c.namespaces()
	if len(all) == 0 {
		return
	}
	quotas := make(map[string]node.Amounts, len(all))
	for i := range all {
		quotas[all[i].Name] = all[i].Quota
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	shown := c.choose(all, quotas)
	stats := c.node.Stats()
	for i := range stats.Shards {
		s := &stats.Shards[i]
		c.refusal.add(s.Shard, s.QuotaRefusals, shown)
		used := map[string]node.Amounts{}
		addAmounts(used, s.Spaces, shown)
		for name, sum := range used {
			c.send(ch, c.used, prometheus.GaugeValue, sum, quotas[name], name, shardLabel(s.Shard))
		}
	}
	for name := range shown {
		c.send(ch, c.limit, prometheus.GaugeValue, quotas[name], quotas[name], name)
		c.send(ch, c.refused, prometheus.CounterValue, c.refusal.counts[name], quotas[name], name)
	}
	if rest, ok := c.refusal.counts[node.OtherQueues]; ok {
		c.send(ch, c.refused, prometheus.CounterValue, rest, node.Amounts{}, node.OtherQueues)
	}
}

// choose returns the namespaces that have their own series. mu is held.
func (c *namespaceCollector) choose(all []backend.Namespace, quotas map[string]node.Amounts) map[string]bool {
	shown := make(map[string]bool, len(c.shown))
	for name := range c.shown {
		if _, limited := quotas[name]; limited {
			shown[name] = true
		}
	}
	for i := range all {
		if len(shown) < c.most && all[i].Name != node.OtherQueues {
			shown[all[i].Name] = true
		}
	}
	c.shown = shown
	return shown
}

// addAmounts adds amounts to sums by namespace. Namespaces that are not shown share one sum.
func addAmounts(sums, amounts map[string]node.Amounts, shown map[string]bool) {
	for name, a := range amounts {
		if !shown[name] {
			name = node.OtherQueues
		}
		sum := sums[name]
		for l := range sum {
			sum[l] += a[l]
		}
		sums[name] = sum
	}
}

// send sends the amounts of the limits that are set, or counts, in the units of the settings. For
// the sum of the other namespaces it sends those of all limits.
func (c *namespaceCollector) send(ch chan<- prometheus.Metric, d *prometheus.Desc, kind prometheus.ValueType, amounts,
	quota node.Amounts, name string, more ...string) {
	for l := range node.Limits {
		if quota[l] > 0 || name == node.OtherQueues {
			value := float64(amounts[l])
			if l == node.PutRate && kind == prometheus.GaugeValue {
				value /= 1000
			}
			ch <- prometheus.MustNewConstMetric(d, kind, value, append([]string{name, limitLabel(l)}, more...)...)
		}
	}
}
