package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/mirror"
)

// mirrorMeters shows what the bridges and imports of this process have done, as metrics. One that
// waits because another process does the work shows no entries and no lag.
type mirrorMeters struct {
	mu     sync.Mutex
	counts map[string]mirror.BridgeCounts // by the name that Redisson gives the queue
	ends   map[string]int64               // how many bridges of it ended
	blind  bool                           // whether no bridge reads the entries in Redis, because it leaves them there

	claimed, committed, repeated, acked, aside, orphans, out, outRepeated, dead, waiting, lag, looked, lateness, takenBack,
	ended *prometheus.Desc
}

// newMirrorMeters returns meters that show zeros for queues.
func newMirrorMeters(queues ...string) *mirrorMeters {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("belfry_mirror_"+name, help, []string{"redis_queue"}, nil)
	}
	counts := map[string]mirror.BridgeCounts{}
	for _, queue := range queues {
		counts[queue] = mirror.BridgeCounts{}
	}
	return &mirrorMeters{
		counts:      counts,
		ends:        map[string]int64{},
		claimed:     desc("claimed_total", "Entries claimed in Redis."),
		committed:   desc("committed_total", "Claimed entries that Belfry answered for."),
		repeated:    desc("repeated_total", "Of those, the ones that Belfry had already."),
		acked:       desc("acked_total", "Entries gone from Redis after that."),
		aside:       desc("aside_total", "Entries set aside because Belfry cannot take them."),
		orphans:     desc("orphans_total", "Members of the list without a due time."),
		out:         desc("rung_total", "Due jobs put on Redisson's ready list."),
		outRepeated: desc("rung_repeated_total", "Due jobs that were on the ready list already."),
		dead:        desc("dead_total", "Due jobs made dead because Redisson has no form for them."),
		waiting:     desc("redis_entries", "Entries that were left in Redis at the last look."),
		lag: desc("lag_seconds",
			"How long ago the first entry that Redis had at the last look fell due, 0 if it is not due yet or there is none."),
		looked:    desc("looked_timestamp_seconds", "When the last look was, which Redis answered; 0 if there was none yet."),
		takenBack: desc("taken_back", "1 while it waits because a rollback takes or took the jobs back to Redisson, else 0."),
		ended:     desc("ended_total", "Bridges that ended with an error, and began again."),
		lateness:  desc("rung_lateness_seconds", "How late the last job came on the ready list."),
	}
}

// imported takes what an import has done so far.
func (m *mirrorMeters) imported(queue string, n mirror.ImportCounts) {
	m.update(queue, mirror.BridgeCounts{In: n})
}

// update takes what a bridge has done so far. One that begins again has not looked yet, but its
// predecessor has.
func (m *mirrorMeters) update(queue string, n mirror.BridgeCounts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n.In.Looked.IsZero() {
		n.In.Looked = m.counts[queue].In.Looked
	}
	m.counts[queue] = n
}

// end counts a bridge that ended with an error.
func (m *mirrorMeters) end(queue string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ends[queue]++
}

// Describe implements prometheus.Collector.
func (m *mirrorMeters) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, to) }

// Collect implements prometheus.Collector.
func (m *mirrorMeters) Collect(to chan<- prometheus.Metric) {
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
		if !m.blind {
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

// serveMetrics serves metrics at an address until stop is called; nowhere if the address is empty.
// It says where on standard error.
func (a mirrorVerbs) serveMetrics(ctx context.Context, address string,
	c prometheus.Collector) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, cli.Usagef("--metrics-listen: %s", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: metricsWait, WriteTimeout: metricsWait}
	var group sync.WaitGroup
	group.Go(func() { _ = s.Serve(listener) }) // that it was closed
	whom := ""
	if !cli.OnLoopback(listener.Addr().String()) {
		whom = ", for whoever reaches it"
	}
	fmt.Fprintf(a.Err, "belfry: metrics at http://%s/metrics%s\n", listener.Addr(), whom)
	return func() {
		_ = s.Close() // nothing is lost by it
		group.Wait()
	}, nil
}

// metricsWait is how long a reader of metrics may take.
const metricsWait = 10 * time.Second
