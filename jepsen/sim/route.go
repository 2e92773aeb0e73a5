package sim

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// queue is a queue as the catalog and the clients know it.
type queue struct {
	name string
	// partitions is the number of partitions that its creator wants, believed the one that the catalog
	// tells.
	partitions, believed uint32
	ranked               []int // shards in the order of rendezvous hashing: partition p lives in that of rank p
	settings             fsm.Settings
	version              uint64
	opened               []*op // by partition, while it is being created
	late                 bool  // not created yet, or by a put
	idsMost              int   // how many ids clients choose

	ids  []string            // of jobs that clients know, chosen or generated
	puts map[string]*fsm.Put // the last put of each chosen id

	// keyed says that the reference ledger judges the queue: its jobs have keys, and it has schedules.
	keyed     bool
	schedules map[string]*fsm.PutSchedule // the last put of each
}

// newQueues makes the queues of a world. Their settings are drawn here and stay, but for pauses and
// limits: the books need not guess by which settings something was settled.
func newQueues(w *world) []*queue {
	short := fsm.Settings{
		TTR: pick(w.r, 0, 2*time.Second), MaxAttempts: uint32(w.r.IntN(4)), MaxAttemptsSet: w.chance(60),
		ExpireToDead: w.chance(50),
		DedupWindow:  pick(w.r, time.Second, 20*time.Second, time.Minute), DedupWindowSet: w.chance(70),
		DedupForever: w.chance(10),
	}
	if w.chance(60) {
		short.RetryDelays = []time.Duration{0, time.Second, 10 * time.Second}[:1+w.r.IntN(3)]
	}
	if w.chance(15) {
		short.Overdue, short.OverdueAfter = pick(w.r, fsm.SpreadOverdue, fsm.DropOverdue), time.Second
		short.OverduePeriod = pick(w.r, 0, time.Second, time.Minute)
	}
	split := uint32(len(w.shards))
	list := []*queue{
		{name: "plain", partitions: 1, believed: 1},
		{name: "ns/short", partitions: 1, believed: 1, settings: short},
		{name: "split", partitions: split, believed: 1, late: true},
		{name: "late", partitions: 1 + uint32(w.r.IntN(len(w.shards))), believed: 1, late: true},
	}
	for _, q := range list {
		q.place(w)
	}
	return list
}

// place ranks the shards for a queue that nobody has put into.
func (q *queue) place(w *world) {
	q.puts, q.schedules = map[string]*fsm.Put{}, map[string]*fsm.PutSchedule{}
	q.idsMost = cmp.Or(q.idsMost, 24)
	q.ranked = make([]int, len(w.shards))
	for i := range q.ranked {
		q.ranked[i] = i
	}
	slices.SortFunc(q.ranked, func(a, b int) int { return cmp.Compare(hash(q.name, a), hash(q.name, b)) })
}

// routedBy returns what decides the partition of a put: its key, else its id.
func routedBy(p *fsm.Put) string { return cmp.Or(p.Key, p.ID) }

// hash is FNV-1a of a text and a number.
func hash(text string, n int) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, b := range strconv.AppendInt([]byte(text+"/"), int64(n), 10) {
		h = (h ^ uint64(b)) * 0x100000001b3
	}
	return h ^ h>>32
}

// shardOf returns the shard of a partition.
func (w *world) shardOf(q *queue, partition uint32) *shard { return w.shards[q.ranked[partition]] }

// partitionOf returns the partition of an id among so many; a generated id carries it.
func (q *queue) partitionOf(id string, partitions uint32) uint32 {
	if p, _, ok := fsm.ParseID(id); ok {
		return min(p, uint32(len(q.ranked)-1))
	}
	return uint32(hash(id, 1) % uint64(partitions))
}

// furnish creates and configures what is there from the start.
func (w *world) furnish() {
	for _, q := range slices.Concat(w.queues[2:3], w.keyed) {
		for q.late && w.violation == nil {
			w.create(q)
			w.run()
		}
	}
	for w.ledger.book(w.shardOf(w.queues[1], 0), w.queues[1].name) == nil && w.violation == nil {
		w.configure(w.queues[1])
		w.run()
	}
	for _, q := range w.keyed {
		w.configure(q)
	}
}

// run finishes what is on its way everywhere.
func (w *world) run() {
	for _, s := range w.shards {
		s.run()
	}
}

// configure logs a queue's settings in all of its partitions.
func (w *world) configure(q *queue) {
	q.version++
	for p := range q.believed {
		w.crowd.ask(w.shardOf(q, p), "catalog", &fsm.Configure{
			Queue: q.name, Partition: p, Partitions: q.believed, Version: q.version, Settings: q.settings,
		})
	}
}

// create goes on with the creation of a queue: Open in its home shard, which refuses if clients
// were there first, then in the others, then the catalog tells everyone.
func (w *world) create(q *queue) {
	if q.opened == nil {
		q.opened = make([]*op, q.partitions)
	}
	for p := range q.partitions {
		o := q.opened[p]
		switch {
		case o != nil && o.state == answered && o.results[0].Code == fsm.OK:
			continue
		case o != nil && o.state == answered && o.results[0].Code == fsm.QueueExists:
			q.late = false // a put made it a queue of one partition
			return
		case o == nil || o.state != asked:
			q.opened[p] = w.crowd.ask(w.shardOf(q, p), "catalog",
				&fsm.Open{Queue: q.name, Partition: p, Partitions: q.partitions})
		}
		if p == 0 {
			return
		}
	}
	for _, o := range q.opened {
		if o.state != answered || o.results[0].Code != fsm.OK {
			return
		}
	}
	q.believed, q.late = q.partitions, false
	w.mark("created", uint64(q.partitions))
}
