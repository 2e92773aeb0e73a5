package rpc

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// queueSeriesMax bounds the queues of a shard that have series of their own; the rest is added up under otherQueues.
const (
	queueSeriesMax = 200
	otherQueues    = "_other"
)

// nodeCollector turns a node's measurements into metrics when they are asked for.
type nodeCollector struct {
	node Node
	// votersWanted returns how many voters each shard should have.
	votersWanted func() int

	requests, refused, entries, commands, leaderChanges        *prometheus.Desc
	appliedIndex, queued, queuedBytes, waiters, leading, ahead *prometheus.Desc
	snapshotBytes, snapshotTime, snapshots                     *prometheus.Desc
	entryCommands, entryBytes, propose, commit, apply, latency *prometheus.Desc
	jobs, queueBytes, oldestReady, nextDue, events, dedup      *prometheus.Desc
	voters, wanted                                             *prometheus.Desc
	diskFree, peersChanged                                     *prometheus.Desc
}

// newNodeCollector describes the metrics.
func newNodeCollector(n Node, votersWanted func() int) *nodeCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("belfry_"+name, help, labels, nil)
	}
	return &nodeCollector{
		node:          n,
		votersWanted:  votersWanted,
		requests:      desc("shard_requests_total", "Requests by outcome.", "shard", "outcome"),
		refused:       desc("shard_refused_total", "Requests refused before they were logged, by reason.", "shard", "reason"),
		entries:       desc("shard_entries_total", "Log entries proposed here and applied.", "shard"),
		commands:      desc("shard_commands_total", "Commands in those entries.", "shard"),
		leaderChanges: desc("shard_leader_changes_total", "Times this node began or ceased to lead the shard.", "shard"),
		appliedIndex:  desc("shard_applied_index", "Index of the last entry applied.", "shard"),
		queued:        desc("shard_queued_requests", "Requests that wait to be logged.", "shard"),
		queuedBytes:   desc("shard_queued_bytes", "Bytes of the requests that wait to be logged.", "shard"),
		waiters:       desc("shard_waiters", "Parked polls.", "shard"),
		leading:       desc("shard_leading", "1 if this node leads the shard and serves it.", "shard"),
		voters:        desc("shard_voters", "Voters of the shard, as its leader has them; only the leader says.", "shard"),
		wanted:        desc("shard_voters_wanted", "Voters that the shard should have: with fewer it is under-replicated; only the leader says.", "shard"),
		ahead:         desc("shard_clock_ahead_seconds", "By how much shard time is ahead of the clocks; above the clock bound, 0.5, it is an alarm.", "shard"),
		snapshotBytes: desc("shard_snapshot_bytes", "Size of the last snapshot.", "shard"),
		snapshotTime:  desc("shard_snapshot_timestamp_seconds", "When the last snapshot was finished.", "shard"),
		snapshots:     desc("shard_snapshots_total", "Snapshots by outcome.", "shard", "outcome"),
		entryCommands: desc("shard_entry_commands", "Commands in one log entry.", "shard"),
		entryBytes:    desc("shard_entry_bytes", "Size of one log entry.", "shard"),
		propose:       desc("shard_propose_duration_seconds", "Time from queueing a request to its answer.", "shard"),
		commit:        desc("shard_commit_duration_seconds", "Time from proposing an entry to its application.", "shard"),
		apply:         desc("shard_apply_duration_seconds", "Time the machine takes for one entry.", "shard"),
		latency:       desc("delivery_lateness_seconds", "Time from a job's due time to its first grant.", "shard"),
		jobs:          desc("jobs", "Jobs held, by queue and state.", "shard", "queue", "state"),
		queueBytes:    desc("queue_bytes", "Bytes held, by queue.", "shard", "queue"),
		oldestReady:   desc("queue_oldest_ready_timestamp_seconds", "Due time of the oldest ready job.", "shard", "queue"),
		nextDue:       desc("queue_next_due_timestamp_seconds", "Due time of the next delayed job.", "shard", "queue"),
		dedup:         desc("queue_dedup_window_seconds", "For how long ids of ended jobs are really remembered, by queue; shorter than the setting if there were too many or the queue is younger.", "shard", "queue"),
		events:        desc("queue_events_total", "What happened to a queue's jobs since its birth.", "shard", "queue", "event"),
		diskFree:      desc("disk_free_bytes", "Free space of the data directory's disk."),
		peersChanged:  desc("peer_changed_total", "Connections of other nodes that were ended because bytes were changed on the way."),
	}
}

// Describe implements prometheus.Collector.
func (c *nodeCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *nodeCollector) Collect(ch chan<- prometheus.Metric) {
	status := c.node.Status()
	ch <- prometheus.MustNewConstMetric(c.diskFree, prometheus.GaugeValue, float64(status.DiskFreeBytes))
	wanted := float64(c.votersWanted())
	for i := range status.Shards {
		g := &status.Shards[i]
		leading := 0.0
		if g.Serving {
			leading = 1
			ch <- prometheus.MustNewConstMetric(c.voters, prometheus.GaugeValue, float64(len(g.Voters)), shardLabel(g.Shard))
			ch <- prometheus.MustNewConstMetric(c.wanted, prometheus.GaugeValue, wanted, shardLabel(g.Shard))
		}
		ch <- prometheus.MustNewConstMetric(c.leading, prometheus.GaugeValue, leading, shardLabel(g.Shard))
		ch <- prometheus.MustNewConstMetric(c.ahead, prometheus.GaugeValue, g.ClockAheadBy.Seconds(), shardLabel(g.Shard))
	}
	stats := c.node.Stats()
	ch <- prometheus.MustNewConstMetric(c.peersChanged, prometheus.CounterValue, float64(stats.PeersChanged))
	for i := range stats.Shards {
		c.collectShard(ch, &stats.Shards[i])
		c.collectQueues(ch, stats.Shards[i].Shard)
	}
}

// shardLabel returns a shard's number as a label.
func shardLabel(shard uint32) string { return fmt.Sprint(shard) }

// collectShard sends what is known of a shard.
func (c *nodeCollector) collectShard(ch chan<- prometheus.Metric, s *node.ShardStats) {
	shard := shardLabel(s.Shard)
	total := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), append([]string{shard}, labels...)...)
	}
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, shard)
	}
	total(c.requests, s.Applied, "applied")
	total(c.requests, s.NotApplied, "not_applied")
	total(c.requests, s.Unknown, "unknown")
	total(c.refused, s.Overloaded, "overloaded")
	total(c.refused, s.DiskFull, "disk_full")
	total(c.refused, s.NoLeader, "no_leader")
	total(c.entries, s.Entries)
	total(c.commands, s.Commands)
	total(c.leaderChanges, s.LeaderChanges)
	total(c.snapshots, s.Snapshot.Taken, "taken")
	total(c.snapshots, s.Snapshot.Failed, "failed")
	gauge(c.appliedIndex, float64(s.AppliedIndex))
	gauge(c.queued, float64(s.QueuedRequests))
	gauge(c.queuedBytes, float64(s.QueuedBytes))
	gauge(c.waiters, float64(s.Waiters))
	gauge(c.snapshotBytes, float64(s.Snapshot.Bytes))
	if !s.Snapshot.At.IsZero() {
		gauge(c.snapshotTime, float64(s.Snapshot.At.UnixMilli())/1000)
	}
	for _, h := range []struct {
		desc   *prometheus.Desc
		values *node.Histogram
	}{
		{c.entryCommands, &s.EntryCommands}, {c.entryBytes, &s.EntryBytes}, {c.propose, &s.ProposeSeconds},
		{c.commit, &s.CommitSeconds}, {c.apply, &s.ApplySeconds}, {c.latency, &s.LatenessSeconds},
	} {
		buckets := make(map[float64]uint64, len(h.values.Bounds))
		var sum uint64
		for i, bound := range h.values.Bounds {
			sum += h.values.Counts[i]
			buckets[bound] = sum
		}
		ch <- prometheus.MustNewConstHistogram(h.desc, h.values.Count, h.values.Sum, buckets, shard)
	}
}

// collectQueues sends what is known of a shard's queues. Beyond queueSeriesMax they are added up.
func (c *nodeCollector) collectQueues(ch chan<- prometheus.Metric, shard uint32) {
	var queues []queueSeries
	for query := (&fsm.QueuesQuery{Max: queueSeriesMax}); ; {
		page, _, err := c.node.Peek(shard, query)
		if err != nil {
			return // A shard that cannot be read has no series; that it is so shows in belfry_shard_leading.
		}
		for i := range page.Queues {
			queues = addSeries(queues, &page.Queues[i], page.Now)
		}
		if !page.More {
			break
		}
		query.After = page.Queues[len(page.Queues)-1].Name
	}
	for i := range queues {
		c.collectQueue(ch, shardLabel(shard), &queues[i])
	}
}

// queueSeries is what is shown of a queue, or of all queues that have no series of their own.
type queueSeries struct {
	fsm.Queue
	// dedup is for how long ended ids are remembered; of several queues the shortest.
	dedup time.Duration
}

// addSeries adds a queue as seen at now, or adds it to the rest.
func addSeries(queues []queueSeries, q *fsm.Queue, now fsm.Time) []queueSeries {
	dedup := dedupHeld(&q.Settings, q.DedupSince, now)
	if len(queues) < queueSeriesMax {
		own := fsm.Queue{Name: q.Name, Counts: q.Counts, Counters: q.Counters, OldestReady: q.OldestReady, NextDue: q.NextDue}
		return append(queues, queueSeries{own, dedup})
	}
	if len(queues) == queueSeriesMax {
		queues = append(queues, queueSeries{fsm.Queue{Name: otherQueues}, dedup})
	}
	rest := &queues[queueSeriesMax]
	rest.dedup = min(rest.dedup, dedup)
	rest.Counts.Delayed += q.Counts.Delayed
	rest.Counts.Ready += q.Counts.Ready
	rest.Counts.Reserved += q.Counts.Reserved
	rest.Counts.Dead += q.Counts.Dead
	rest.Counts.Bytes += q.Counts.Bytes
	rest.OldestReady, rest.NextDue = earlier(rest.OldestReady, q.OldestReady), earlier(rest.NextDue, q.NextDue)
	addCounters(&rest.Counters, &q.Counters)
	return queues
}

// addCounters adds counters up.
func addCounters(sum, q *fsm.Counters) {
	sum.Put += q.Put
	sum.Duplicate += q.Duplicate
	sum.Granted += q.Granted
	sum.Acked += q.Acked
	sum.Nacked += q.Nacked
	sum.Released += q.Released
	sum.Lapsed += q.Lapsed
	sum.Extended += q.Extended
	sum.Cancelled += q.Cancelled
	sum.Expired += q.Expired
	sum.Died += q.Died
	sum.Redriven += q.Redriven
	sum.Rescheduled += q.Rescheduled
	sum.Purged += q.Purged
}

// collectQueue sends what is known of a queue.
func (c *nodeCollector) collectQueue(ch chan<- prometheus.Metric, shard string, q *queueSeries) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{shard, q.Name}, labels...)...)
	}
	gauge(c.jobs, float64(q.Counts.Delayed), "delayed")
	gauge(c.jobs, float64(q.Counts.Ready), "ready")
	gauge(c.jobs, float64(q.Counts.Reserved), "reserved")
	gauge(c.jobs, float64(q.Counts.Dead), "dead")
	gauge(c.queueBytes, float64(q.Counts.Bytes))
	gauge(c.dedup, q.dedup.Seconds())
	if q.OldestReady != 0 {
		gauge(c.oldestReady, float64(q.OldestReady)/1e9)
	}
	if q.NextDue != 0 {
		gauge(c.nextDue, float64(q.NextDue)/1e9)
	}
	for _, e := range []struct {
		event string
		n     uint64
	}{
		{"put", q.Counters.Put}, {"duplicate", q.Counters.Duplicate}, {"reserved", q.Counters.Granted}, {"acked", q.Counters.Acked},
		{"nacked", q.Counters.Nacked}, {"released", q.Counters.Released}, {"lapsed", q.Counters.Lapsed},
		{"extended", q.Counters.Extended}, {"cancelled", q.Counters.Cancelled}, {"expired", q.Counters.Expired},
		{"died", q.Counters.Died}, {"redriven", q.Counters.Redriven}, {"rescheduled", q.Counters.Rescheduled}, {"purged", q.Counters.Purged},
	} {
		ch <- prometheus.MustNewConstMetric(c.events, prometheus.CounterValue, float64(e.n), shard, q.Name, e.event)
	}
}
