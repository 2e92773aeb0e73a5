package metrics

import (
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
)

// Node has the methods that the metrics need of a node. They are called for each scrape, from
// any goroutine.
type Node interface {
	// Status returns what the node knows about itself and its groups.
	Status() node.Status
	// Stats returns the node's measurements.
	Stats() node.Stats
	// Peek answers q from what this node has applied. It does not wait for another node.
	Peek(shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error)
}

// nodeCollector collects the metrics of a node for each scrape. A page collects those of
// queues.
type nodeCollector struct {
	node Node
	// votersWanted returns how many voters each shard should have.
	votersWanted func() int
	build        prometheus.Metric

	info, quarantined, catalogLeading                                                        *prometheus.Desc
	diskFree, diskLow, inodesFree, inodesLow, diskFull, condition, peersChanged, clockOffset *prometheus.Desc
	memoryLimit, memoryMark, memoryUsed, memoryHeld, memoryFull                              *prometheus.Desc
	memoryCritical                                                                           *prometheus.Desc
	requests, refused, entries, commands, leaderChanges                                      *prometheus.Desc
	appliedIndex, commitIndex, term, queued, queuedBytes, inFlight                           *prometheus.Desc
	waiters, leading, led, ahead, voters, wanted, minVoters, redelivered                     *prometheus.Desc
	followerLag, followerHeard                                                               *prometheus.Desc
	snapshotBytes, snapshotTime, snapshotTook, snapshots                                     *prometheus.Desc
	snapshotLogged, snapshotDue                                                              *prometheus.Desc
	entryCommands, entryBytes, propose, commit, apply, logSync                               *prometheus.Desc
	serverLate, workerLate                                                                   *prometheus.Desc
	firings, firingLate, nextFiring, schedules, schedulesPaused, keys, keysBlocked           *prometheus.Desc
}

// desc describes one metric.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("belfry_"+name, help, labels, nil)
}

// NewNodeCollector describes the metrics.
func NewNodeCollector(n Node, votersWanted func() int, version string) *nodeCollector {
	c := &nodeCollector{
		node: n, votersWanted: votersWanted, build: buildInfo(version, debug.ReadBuildInfo),
		info: desc("node_info", "1; which node of which cluster this is.", "cluster_id", "node"),
		quarantined: desc("node_quarantined_replicas",
			"Replicas of this node that were set aside because their state differs from the others', or cannot be restored."),
		catalogLeading: desc("catalog_leading",
			"1 if this node leads the catalog, which holds the queues' settings and where shards are."),
		diskFree: desc("disk_free_bytes", "Free space of the data directory's disk."),
		diskLow:  desc("disk_low_water_bytes", "Free space below which puts are refused."),
		inodesFree: desc("disk_free_inodes",
			"Files that can still be made on the data directory's disk, where its file system has a fixed number of them."),
		inodesLow: desc("disk_low_water_inodes", "Free inodes below which puts are refused."),
		diskFull:  desc("disk_full", "1 while puts are refused because there is too little free space."),
		condition: desc("node_condition",
			"1 while this node has trouble of a kind that makes it hand its leaderships over.", "kind"),
		memoryLimit: desc("memory_limit_bytes", "What the process may take of memory; 0 without a limit."),
		memoryMark:  desc("memory_mark_bytes", "The used bytes at which puts are refused; 0 without a limit."),
		memoryUsed: desc("memory_used_bytes",
			"What is in use or reserved: what is held, what the held jobs may come to take until they end, and what the "+
				"next snapshot may copy."),
		memoryHeld: desc("memory_held_bytes",
			"What jobs, indexes, tombstones and remembered answers take, and all else that the collector found alive."),
		memoryFull:     desc("memory_full", "1 while puts are refused because too much memory is in use or reserved."),
		memoryCritical: desc("memory_critical", "1 while so much memory is held that a shard hands out few jobs at a time."),
		peersChanged: desc("peer_changed_total",
			"Connections of other nodes that were ended because bytes were changed on the way."),
		clockOffset: desc("clock_offset_seconds",
			"By how much the wall clock of another node was ahead of this node's when it was last asked. Leaders ask every 5 "+
				"s until a majority has answered, so that a slow peer may be missing.", "peer"),
	}
	c.describeShards()
	c.describeSchedules()
	return c
}

// describeShards describes the metrics of single shards.
func (c *nodeCollector) describeShards() {
	c.requests = desc("shard_requests_total", "Requests by outcome.", "shard", "outcome")
	c.refused = desc("shard_refused_total", "Requests refused before they were logged, by reason.", "shard",
		"reason")
	c.entries = desc("shard_entries_total", "Log entries proposed here and applied.", "shard")
	c.commands = desc("shard_commands_total", "Commands in those entries.", "shard")
	c.leaderChanges = desc("shard_leader_changes_total", "Times this node began or ceased to lead the shard.", "shard")
	c.appliedIndex = desc("shard_applied_index", "Index of the last entry applied.", "shard")
	c.commitIndex = desc("shard_commit_index", "Index of the last entry known to be committed.", "shard")
	c.term = desc("shard_term", "Term of the shard's replica here.", "shard")
	c.queued = desc("shard_queued_requests", "Requests that wait to be logged.", "shard")
	c.queuedBytes = desc("shard_queued_bytes", "Bytes of the requests that wait to be logged.", "shard")
	c.inFlight = desc("shard_entries_in_flight", "Entries that were proposed here and are not applied yet.", "shard")
	c.waiters = desc("shard_waiters", "Parked polls.", "shard")
	c.leading = desc("shard_leading", "1 if this node leads the shard and serves it.", "shard")
	c.led = desc("shard_has_leader", "1 if this node knows a leader of the shard.", "shard")
	c.voters = desc("shard_voters", "Voters of the shard, as its leader has them; only the leader says.", "shard")
	c.minVoters = desc("shard_min_voters",
		"Voters with which the shard takes puts: with fewer it takes only what makes room; only the leader says.", "shard")
	c.wanted = desc("shard_voters_wanted",
		"Voters that the shard should have: with fewer it is under-replicated; only the leader says.", "shard")
	c.ahead = desc("shard_clock_ahead_seconds",
		"By how much shard time is ahead of the clocks; above the clock bound, 0.5, it is an alarm.", "shard")
	c.redelivered = desc("shard_redeliveries_total", "Jobs handed out here that had been handed out before.", "shard")
	c.followerLag = desc("shard_follower_lag_entries",
		"Entries that the leader has and the follower has not confirmed; only the leader says.", "shard", "peer")
	c.followerHeard = desc("shard_follower_heard_timestamp_seconds",
		"When the follower last answered its leader; only the leader says.", "shard", "peer")
	c.snapshotBytes = desc("shard_snapshot_bytes", "Size of the newest snapshot on the disk; 0 if there is none.", "shard")
	c.snapshotTime = desc("shard_snapshot_timestamp_seconds",
		"When the newest snapshot on the disk was written; missing if there is none.", "shard")
	c.snapshotTook = desc("shard_snapshot_duration_seconds",
		"How long the last snapshot took that was taken here; missing until the first since the start.", "shard")
	c.snapshots = desc("shard_snapshots_total", "Snapshots by outcome.", "shard", "outcome")
	c.snapshotLogged = desc("shard_snapshot_logged_bytes",
		"Bytes logged since the last snapshot; they are what a start replays.", "shard")
	c.snapshotDue = desc("shard_snapshot_due_bytes",
		"Bytes logged since the last snapshot at which the next one is taken.", "shard")
	c.entryCommands = desc("shard_entry_commands", "Commands in one log entry.", "shard")
	c.entryBytes = desc("shard_entry_bytes", "Size of one log entry.", "shard")
	c.propose = desc("shard_propose_duration_seconds", "Time from queueing a request to its answer.", "shard")
	c.commit = desc("shard_commit_duration_seconds", "Time from proposing an entry to its application.", "shard")
	c.apply = desc("shard_apply_duration_seconds", "Time the machine takes for one entry.", "shard")
	c.logSync = desc("shard_log_sync_duration_seconds",
		"Time in which entries were written to this node's log and synced to its disk.", "shard")
	c.serverLate = desc("server_lateness_seconds",
		"The server's part of lateness: from the moment at which a job was due and a worker there to its first grant.",
		"shard")
	c.workerLate = desc("worker_lateness_seconds",
		"The workers' part of lateness: from a job's due time to the moment at which a worker was there and the queue "+
			"gave jobs out.", "shard")
}

// describeSchedules describes the metrics of the schedules and keys of single shards.
func (c *nodeCollector) describeSchedules() {
	c.firings = desc("schedule_firings_total",
		"Firings of schedules that this node dealt with as leader. missed: passed over, because they were too late or "+
			"the catch-up puts only the last one; skipped: for an earlier job or the same one; backfilled: triggered too.",
		"shard", "result")
	c.firingLate = desc("schedule_lateness_seconds",
		"From the due time of a firing's job, which is the nominal time and the jitter, to its put; 0 if it is put before.",
		"shard")
	c.nextFiring = desc("schedule_next_timestamp_seconds",
		"The nominal time of the next firing, which is in the past while a firing waits; missing if there is none; only "+
			"the leader says.", "shard")
	c.schedules = desc("schedules", "Schedules, also paused and ended ones; only the leader says.", "shard")
	c.schedulesPaused = desc("schedules_paused", "Schedules that are paused; only the leader says.", "shard")
	c.keys = desc("keys", "Keys that have jobs, or are remembered for a pause or a rate; only the leader says.", "shard")
	c.keysBlocked = desc("keys_blocked",
		"Keys with ready jobs of which none may be handed out, by the first reason of pause, dead, limit, order and rate "+
			"that applies; rate: as of the last reserve from their queue; only the leader says.", "shard", "reason")
}

// buildInfo returns a metric with the version and the revision of the program, and its version of
// Go.
func buildInfo(version string, read func() (*debug.BuildInfo, bool)) prometheus.Metric {
	revision := ""
	if from, ok := read(); ok {
		for _, s := range from.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	return prometheus.MustNewConstMetric(
		desc("build_info", "1; what the process was made from.", "version", "revision", "goversion"),
		prometheus.GaugeValue, 1, version, revision, runtime.Version())
}

// Describe implements prometheus.Collector.
func (c *nodeCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *nodeCollector) Collect(ch chan<- prometheus.Metric) {
	status, stats := c.node.Status(), c.node.Stats()
	c.collectNode(ch, &status, &stats)
	wanted := float64(c.votersWanted())
	for i := range status.Shards {
		g := &status.Shards[i]
		gauge := gauges(ch, shardLabel(g.Shard))
		gauge(c.leading, truth(g.Serving))
		gauge(c.led, truth(g.Leader != ""))
		gauge(c.ahead, g.ClockAheadBy.Seconds())
		gauge(c.commitIndex, float64(g.CommitIndex))
		gauge(c.term, float64(g.Term))
		if g.Serving {
			gauge(c.voters, float64(len(g.Voters)))
			gauge(c.wanted, wanted)
			gauge(c.minVoters, float64(status.MinVoters))
		}
	}
	for i := range stats.Shards {
		c.collectShard(ch, &stats.Shards[i])
	}
}

// collectNode sends the metrics of the node as a whole.
func (c *nodeCollector) collectNode(ch chan<- prometheus.Metric, status *node.Status, stats *node.Stats) {
	gauge := gauges(ch)
	ch <- c.build
	gauge(c.info, 1, status.ClusterID, status.Name)
	gauge(c.quarantined, float64(len(status.Quarantined)))
	gauge(c.diskFree, float64(status.DiskFreeBytes))
	gauge(c.diskLow, float64(status.DiskLowBytes))
	if status.DiskLowInodes > 0 {
		gauge(c.inodesFree, float64(status.DiskFreeInodes))
		gauge(c.inodesLow, float64(status.DiskLowInodes))
	}
	gauge(c.diskFull, truth(status.DiskFull))
	for _, kind := range node.ConditionKinds() {
		has := slices.ContainsFunc(status.Conditions, func(c node.Condition) bool { return c.Kind == kind })
		gauge(c.condition, truth(has), string(kind))
	}
	c.collectMemory(gauge, &status.Memory)
	ch <- prometheus.MustNewConstMetric(c.peersChanged, prometheus.CounterValue, float64(stats.PeersChanged))
	for i := range status.Groups {
		if status.Groups[i].Group == backend.CatalogGroup {
			gauge(c.catalogLeading, truth(status.Groups[i].Serving))
		}
	}
	servers := make([]string, len(stats.Clocks))
	for i := range stats.Clocks {
		servers[i] = stats.Clocks[i].Server
	}
	for i, peer := range peerLabels(servers) {
		gauge(c.clockOffset, stats.Clocks[i].Ahead.Seconds(), peer)
	}
}

// collectMemory sends the metrics of the node's memory.
func (c *nodeCollector) collectMemory(gauge func(*prometheus.Desc, float64, ...string), m *node.MemoryStatus) {
	gauge(c.memoryLimit, float64(m.LimitBytes))
	gauge(c.memoryMark, float64(m.MarkBytes))
	gauge(c.memoryUsed, float64(m.UsedBytes))
	gauge(c.memoryHeld, float64(m.HeldBytes))
	gauge(c.memoryFull, truth(m.Full))
	gauge(c.memoryCritical, truth(m.Critical))
}

// gauges returns a function that sends gauges whose first labels have these values.
func gauges(ch chan<- prometheus.Metric, first ...string) func(d *prometheus.Desc, v float64, labels ...string) {
	return func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append(first[:len(first):len(first)], labels...)...)
	}
}

// truth returns 1 for true, 0 for false.
func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// shardLabel returns a shard's number as a label.
func shardLabel(shard uint32) string { return strconv.FormatUint(uint64(shard), 10) }

// peerLabels returns the names of servers. Servers that share a name, as a node and its replacement
// do, are labelled by their ids.
func peerLabels(servers []string) []string {
	labels := backend.NodeNames(servers)
	times := map[string]int{}
	for _, name := range labels {
		times[name]++
	}
	for i, name := range labels {
		if times[name] > 1 {
			labels[i] = servers[i]
		}
	}
	return labels
}

// collectShard sends the metrics of a shard.
func (c *nodeCollector) collectShard(ch chan<- prometheus.Metric, s *node.ShardStats) {
	shard := shardLabel(s.Shard)
	total := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), append([]string{shard}, labels...)...)
	}
	gauge := gauges(ch, shard)
	total(c.requests, s.Applied, "applied")
	total(c.requests, s.NotApplied, "not_applied")
	total(c.requests, s.Unknown, "unknown")
	total(c.refused, s.Overloaded, "overloaded")
	total(c.refused, s.DiskFull, "disk_full")
	total(c.refused, s.MemoryFull, "memory_full")
	total(c.refused, s.TooFewVoters, "too_few_voters")
	total(c.refused, s.NoLeader, "no_leader")
	total(c.entries, s.Entries)
	total(c.commands, s.Commands)
	total(c.leaderChanges, s.LeaderChanges)
	total(c.redelivered, s.Redelivered)
	total(c.snapshots, s.Snapshot.Taken, "taken")
	total(c.snapshots, s.Snapshot.Failed, "failed")
	gauge(c.appliedIndex, float64(s.AppliedIndex))
	gauge(c.queued, float64(s.QueuedRequests))
	gauge(c.queuedBytes, float64(s.QueuedBytes))
	gauge(c.inFlight, float64(s.InFlight))
	gauge(c.waiters, float64(s.Waiters))
	gauge(c.snapshotBytes, float64(s.Snapshot.Bytes))
	gauge(c.snapshotLogged, float64(s.Snapshot.LoggedBytes))
	gauge(c.snapshotDue, float64(s.Snapshot.DueBytes))
	if !s.Snapshot.At.IsZero() {
		gauge(c.snapshotTime, float64(s.Snapshot.At.UnixMilli())/1000)
	}
	if s.Snapshot.Taken > 0 {
		gauge(c.snapshotTook, s.Snapshot.Duration.Seconds())
	}
	c.collectFollowers(ch, s)
	c.collectSchedules(ch, s)
	for _, h := range []struct {
		desc   *prometheus.Desc
		values *node.Histogram
	}{
		{c.entryCommands, &s.EntryCommands}, {c.entryBytes, &s.EntryBytes}, {c.propose, &s.ProposeSeconds},
		{c.commit, &s.CommitSeconds},
		{c.apply, &s.ApplySeconds}, {c.logSync, &s.LogSyncSeconds}, {c.serverLate, &s.ServerLateSeconds},
		{c.workerLate, &s.WorkerLateSeconds}, {c.firingLate, &s.FiredLateSeconds},
	} {
		ch <- histogram(h.desc, h.values, shard)
	}
}

// collectSchedules sends the metrics of the schedules and keys of a shard.
func (c *nodeCollector) collectSchedules(ch chan<- prometheus.Metric, s *node.ShardStats) {
	shard := shardLabel(s.Shard)
	count := func(n uint64, result string) {
		ch <- prometheus.MustNewConstMetric(c.firings, prometheus.CounterValue, float64(n), shard, result)
	}
	count(s.Fired, "fired")
	count(s.Missed, "missed")
	count(s.Skipped, "skipped")
	count(s.Backfilled, "backfilled")
	if !s.Leading { // all replicas know the rest, so that sums over nodes would be wrong
		return
	}
	gauge := gauges(ch, shard)
	if s.NextFiring != 0 {
		gauge(c.nextFiring, float64(s.NextFiring)/1e9)
	}
	gauge(c.schedules, float64(s.Machine.Schedules))
	gauge(c.schedulesPaused, float64(s.Machine.SchedulesPaused))
	gauge(c.keys, float64(s.Machine.Keys))
	for reason, name := range blockNames() {
		if name != "" {
			gauge(c.keysBlocked, float64(s.Machine.KeysBlocked[reason]), name)
		}
	}
}

// blockNames returns the labels of what blocks keys; none for what is not blocked.
func blockNames() [fsm.KeyBlocks]string {
	return [fsm.KeyBlocks]string{
		fsm.BlockedByPause: "pause", fsm.BlockedByDead: "dead", fsm.BlockedByLimit: "limit", fsm.BlockedByOrder: "order",
		fsm.BlockedByRate: "rate",
	}
}

// collectFollowers sends the progress of the followers of a shard that this node leads.
func (c *nodeCollector) collectFollowers(ch chan<- prometheus.Metric, s *node.ShardStats) {
	servers := make([]string, len(s.Followers))
	for i := range s.Followers {
		servers[i] = s.Followers[i].Server
	}
	gauge := gauges(ch, shardLabel(s.Shard))
	for i, peer := range peerLabels(servers) {
		f := &s.Followers[i]
		gauge(c.followerLag, float64(f.Lag), peer)
		if !f.Heard.IsZero() {
			gauge(c.followerHeard, float64(f.Heard.UnixMilli())/1000, peer)
		}
	}
}

// histogram converts a histogram to a metric.
func histogram(d *prometheus.Desc, h *node.Histogram, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(h.Bounds))
	var sum uint64
	for i, bound := range h.Bounds {
		sum += h.Counts[i]
		buckets[bound] = sum
	}
	return prometheus.MustNewConstHistogram(d, h.Count, h.Sum, buckets, labels...)
}
