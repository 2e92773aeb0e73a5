package rpc

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/node"
)

// metricsNamespacesMax is how many namespaces with a quota have series of their own: with four limits and six shards 28 each, and as many for the rest.
const metricsNamespacesMax = 250

// namespaceCollector shows the quotas of namespaces, what is used of them and who was refused. Of what is used, each shard's leader shows its part, so that
// sums over nodes are right; of the limits every node shows the whole. Beyond the bound namespaces are added up as node.OtherQueues, without a limit; one that
// has series keeps them as long as it has a quota and the process runs.
type namespaceCollector struct {
	node                 Node
	cluster              Cluster
	most                 int
	limit, used, refused *prometheus.Desc

	mu      sync.Mutex // held while it collects
	shown   map[string]bool
	refusal refusalCounter
}

// refusalCounter counts refusals by series. Which series a namespace has changes when quotas are set and removed, and its refusals stay where they were counted:
// to move them would have a counter fall.
type refusalCounter struct {
	seen   map[uint32]map[string]node.Amounts // what each shard said last, by namespace
	counts map[string]node.Amounts            // by series; of a namespace without a quota they wait until it has one again
}

// add takes what a shard says since the node's start, or since the replica's if that is later.
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

func newNamespaceCollector(n Node, cluster Cluster) *namespaceCollector {
	return &namespaceCollector{
		node: n, cluster: cluster, most: metricsNamespacesMax, shown: map[string]bool{},
		refusal: refusalCounter{seen: map[uint32]map[string]node.Amounts{}, counts: map[string]node.Amounts{}},
		limit:   desc("namespace_limit", "What all queues of the namespace may have together, as this node knows it; every node shows the same. A limit that is not set is missing.", "namespace", "limit"),
		used:    desc("namespace_used", "What the namespace uses of a limit in a shard; only the shard's leader says.", "namespace", "limit", "shard"),
		refused: desc("namespace_refused_total", "Requests that this node refused, as the leader of their shard, because the namespace had used up the limit.", "namespace", "limit"),
	}
}

// limitLabel returns a limit as a label, in the words of the settings.
func limitLabel(l node.Limit) string {
	return [node.Limits]string{node.JobsLimit: "jobs", node.BytesLimit: "bytes", node.LeasesLimit: "in_flight", node.PutRate: "puts_per_second"}[l]
}

// Describe implements prometheus.Collector.
func (c *namespaceCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.limit
	ch <- c.used
	ch <- c.refused
}

// Collect implements prometheus.Collector.
func (c *namespaceCollector) Collect(ch chan<- prometheus.Metric) {
	all := c.cluster.Namespaces()
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

// choose returns the namespaces that have series of their own. mu is held.
func (c *namespaceCollector) choose(all []Namespace, quotas map[string]node.Amounts) map[string]bool {
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

// addAmounts adds amounts up by namespace, those of namespaces that are not shown together.
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

// send sends the amounts of the limits that are set, in the units of the settings, or counts; of several namespaces together, of all.
func (c *namespaceCollector) send(ch chan<- prometheus.Metric, d *prometheus.Desc, kind prometheus.ValueType, amounts, quota node.Amounts, name string, more ...string) {
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
