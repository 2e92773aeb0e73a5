package bridge

import (
	"cmp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/mirror"
)

// Meters shows what the bridges and imports of this process have done, as metrics. One that
// waits because another process does the work shows no entries and no lag.
type Meters struct {
	mu     sync.Mutex
	counts map[string]mirror.BridgeCounts // by the name that Redisson gives the queue
	ends   map[string]int64               // how many bridges of it ended
	waits  map[string]string              // what a bridge waits for
	// bridged are the queues that a server bridges, set by Start.
	bridged []mirror.BridgeOptions
	// Blind is set for a bridge that leaves entries in Redis and does not read them: their number is
	// unknown.
	Blind bool

	claimed, committed, repeated, acked, aside, orphans, out, outRepeated, dead, waiting, lag, looked, lateness, takenBack,
	ended *prometheus.Desc
}

// NewMeters returns meters that show zeros for queues.
func NewMeters(queues ...string) *Meters {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("belfry_mirror_"+name, help, []string{"redis_queue"}, nil)
	}
	counts := map[string]mirror.BridgeCounts{}
	for _, queue := range queues {
		counts[queue] = mirror.BridgeCounts{}
	}
	return &Meters{
		counts:      counts,
		ends:        map[string]int64{},
		waits:       map[string]string{},
		claimed:     desc("claimed_total", "Entries claimed in Redis."),
		committed:   desc("committed_total", "Claimed entries that Belfry answered for."),
		repeated:    desc("repeated_total", "Of those, the ones that Belfry had already."),
		acked:       desc("acked_total", "Entries gone from Redis after that."),
		aside:       desc("aside_total", "Entries set aside because Belfry cannot take them."),
		orphans:     desc("orphans_total", "Members of the list without a due time."),
		out:         desc("delivered_total", "Due jobs put on Redisson's ready list."),
		outRepeated: desc("delivered_repeated_total", "Due jobs that were on the ready list already."),
		dead:        desc("dead_total", "Due jobs made dead because Redisson has no form for them."),
		waiting:     desc("redis_entries", "Entries that were left in Redis at the last look."),
		lag: desc("lag_seconds",
			"How long ago the first entry that Redis had at the last look fell due, 0 if it is not due yet or there is none."),
		looked:    desc("looked_timestamp_seconds", "When the last look was, which Redis answered; 0 if there was none yet."),
		takenBack: desc("taken_back", "1 while it waits because a rollback takes or took the jobs back to Redisson, else 0."),
		ended:     desc("ended_total", "Bridges that ended with an error, and began again."),
		lateness:  desc("delivery_lateness_seconds", "How late the last job came on the ready list."),
	}
}

// Imported takes what an import has done so far.
func (m *Meters) Imported(queue string, n mirror.ImportCounts) {
	m.Update(queue, mirror.BridgeCounts{In: n})
}

// Update takes what a bridge has done so far. One that begins again has not looked yet, but its
// predecessor has.
func (m *Meters) Update(queue string, n mirror.BridgeCounts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n.In.Looked.IsZero() {
		n.In.Looked = m.counts[queue].In.Looked
	}
	m.counts[queue] = n
	delete(m.waits, queue)
}

// serve sets the queues that a server bridges.
func (m *Meters) serve(bridged []mirror.BridgeOptions) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bridged = bridged
}

// wait notes what the bridge of a queue waits for, until it is updated.
func (m *Meters) wait(queue string, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits[queue] = why.Error()
}

// Mirrored returns what the bridges of a server have done, for its node's report.
func (m *Meters) Mirrored() (all []placement.MirroredQueue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.bridged {
		o := &m.bridged[i]
		n := m.counts[o.RedisQueue]
		all = append(all, placement.MirroredQueue{
			RedisQueue: o.RedisQueue, Queue: cmp.Or(o.Queue, o.RedisQueue), Waits: m.waits[o.RedisQueue],
			Came: uint64(n.In.Committed), Delivered: uint64(n.Out), Dead: uint64(n.Dead), SetAside: uint64(n.In.SetAside),
			Failed: uint64(m.ends[o.RedisQueue]), Left: uint64(n.In.Left), Looked: n.In.Looked, Earliest: n.In.Earliest,
			Lateness: n.Lateness,
		})
	}
	return all
}

// countEnd counts a bridge that ended with an error. Until it begins again, it waits because of that.
func (m *Meters) countEnd(queue string, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ends[queue]++
	m.waits[queue] = why.Error()
}

// Describe implements prometheus.Collector.
func (m *Meters) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, to) }

// Collect implements prometheus.Collector.
func (m *Meters) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for queue, n := range m.counts {
		counter := func(d *prometheus.Desc, v int64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), queue)
		}
		counter(m.claimed, n.In.Claimed)
		counter(m.committed, n.In.Committed)
		counter(m.repeated, n.In.Repeated)
		counter(m.acked, n.In.Acked)
		counter(m.aside, n.In.SetAside)
		counter(m.orphans, n.In.Orphans)
		counter(m.out, n.Out)
		counter(m.outRepeated, n.Repeated)
		counter(m.dead, n.Dead)
		counter(m.ended, m.ends[queue])
		to <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(n.In.Left), queue)
		lag := time.Duration(0)
		if !n.In.Earliest.IsZero() {
			lag = max(0, time.Since(n.In.Earliest))
		}
		to <- prometheus.MustNewConstMetric(m.lag, prometheus.GaugeValue, lag.Seconds(), queue)
		looked := int64(0)
		if !n.In.Looked.IsZero() {
			looked = n.In.Looked.Unix()
		}
		if !m.Blind {
			to <- prometheus.MustNewConstMetric(m.looked, prometheus.GaugeValue, float64(looked), queue)
		}
		to <- prometheus.MustNewConstMetric(m.takenBack, prometheus.GaugeValue, float64(unit(n.In.TakenBack)), queue)
		to <- prometheus.MustNewConstMetric(m.lateness, prometheus.GaugeValue, n.Lateness.Seconds(), queue)
	}
}

func unit(is bool) int {
	if is {
		return 1
	}
	return 0
}
