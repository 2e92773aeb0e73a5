package metrics

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/wire"
)

// DefaultQueues is how many queues have their own series by default.
const DefaultQueues = 1000

// QueuesMax bounds how many queues may have their own series: a longer page would be too long for a
// scrape every few seconds.
const QueuesMax = 10_000

// queuesPage is how many queues are read at a time: the machine is locked during a read.
const queuesPage = 250

// queueMetrics shows the metrics of queues. Only the leader of a shard shows its queues, so that
// sums over nodes are right. A queue counts once for each shard that has a partition of it. Queues
// beyond the bound are summed by shard. The oldest queues have their own series: a new queue does
// not take the series of another.
type queueMetrics struct {
	node Node
	most int
}

// queueSeries has the metrics of a queue, or of all queues of a shard without their own series.
type queueSeries struct {
	*fsm.Queue
	shard  uint32
	paused bool
	// dedup is how long ended ids are remembered. It is not set for several queues together.
	dedup time.Duration
	node.QueueStats
	labels []byte // of all its samples, as text
}

// series returns the metrics of the queues in the shards that this node leads, by name, and the
// sums after them. Its memory does not grow with the number of queues.
func (m *queueMetrics) series() []*queueSeries {
	status, stats := m.node.Status(), m.node.Stats()
	known := map[uint32]map[string]node.QueueStats{}
	for i := range stats.Shards {
		known[stats.Shards[i].Shard] = stats.Shards[i].Queues
	}
	all := &selection{most: m.most, rest: map[uint32]*queueSeries{}}
	for i := range status.Shards {
		g := &status.Shards[i]
		if !g.Serving {
			continue
		}
		m.read(g.Shard, known[g.Shard], all.addQueue)
		for _, q := range known[g.Shard] { // the queues are gone, or were never created
			all.addToRest(&queueSeries{shard: g.Shard, QueueStats: q})
		}
	}
	slices.SortFunc(all.oldest, func(a, b *queueSeries) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.shard, b.shard))
	})
	for _, shard := range slices.Sorted(maps.Keys(all.rest)) {
		all.oldest = append(all.oldest, all.rest[shard])
	}
	return all.oldest
}

// read passes each queue of a shard to add, and deletes it from known. It stops if the shard cannot
// be read.
func (m *queueMetrics) read(shard uint32, known map[string]node.QueueStats, add func(*queueSeries)) {
	for query := (&fsm.QueuesQuery{Max: queuesPage}); ; {
		page, _, err := m.node.Peek(shard, query)
		if err != nil {
			return
		}
		for i := range page.Queues {
			q := &page.Queues[i]
			add(&queueSeries{
				Queue: q, shard: shard, paused: q.Settings.PausedAt(page.Now),
				dedup: wire.DedupHeld(&q.Settings, q.DedupSince, page.Now), QueueStats: known[q.Name],
			})
			delete(known, q.Name)
		}
		if !page.More {
			return
		}
		query.After = page.Queues[len(page.Queues)-1].Name
	}
}

// selection collects the oldest queues, up to most, and sums the others by shard. As a heap it has
// the youngest of the oldest first.
type selection struct {
	most   int
	oldest []*queueSeries
	rest   map[uint32]*queueSeries
}

// addQueue adds a queue. If the selection is full, the youngest queue goes to the sum of its shard.
// So does a queue with the name of the sums.
func (s *selection) addQueue(q *queueSeries) {
	if q.Name == node.OtherQueues || len(s.oldest) == s.most && !older(q, s.oldest[0]) {
		s.addToRest(q)
		return
	}
	own := *q.Queue // a copy: the original would keep its whole page in memory
	q.Queue = &own
	if len(s.oldest) < s.most {
		heap.Push(s, q)
		return
	}
	s.addToRest(s.oldest[0])
	s.oldest[0] = q
	heap.Fix(s, 0)
}

// addToRest adds a queue to the sum of its shard.
func (s *selection) addToRest(q *queueSeries) {
	sum := s.rest[q.shard]
	if sum == nil {
		sum = &queueSeries{Queue: &fsm.Queue{Name: node.OtherQueues}, shard: q.shard}
		s.rest[q.shard] = sum
	}
	sum.add(q)
}

// older reports whether a queue comes before another; the order is the same in every scrape.
func older(a, b *queueSeries) bool {
	return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.shard, b.shard)) < 0
}

// Len implements heap.Interface.
func (s *selection) Len() int { return len(s.oldest) }

// Less implements heap.Interface.
func (s *selection) Less(i, j int) bool { return older(s.oldest[j], s.oldest[i]) }

// Swap implements heap.Interface.
func (s *selection) Swap(i, j int) { s.oldest[i], s.oldest[j] = s.oldest[j], s.oldest[i] }

// Push implements heap.Interface.
func (s *selection) Push(q any) { s.oldest = append(s.oldest, q.(*queueSeries)) }

// Pop implements heap.Interface.
func (s *selection) Pop() any {
	last := s.oldest[len(s.oldest)-1]
	s.oldest = s.oldest[:len(s.oldest)-1]
	return last
}

// add adds the metrics of a queue to s.
func (s *queueSeries) add(q *queueSeries) {
	s.Waiting += q.Waiting
	s.LatenessSeconds = sumOf(&s.LatenessSeconds, &q.LatenessSeconds)
	s.JobSeconds = sumOf(&s.JobSeconds, &q.JobSeconds)
	s.Attempts = sumOf(&s.Attempts, &q.Attempts)
	if q.Queue == nil { // there is no such queue
		return
	}
	s.Counts.Delayed += q.Counts.Delayed
	s.Counts.Ready += q.Counts.Ready
	s.Counts.Reserved += q.Counts.Reserved
	s.Counts.Dead += q.Counts.Dead
	s.Counts.Bytes += q.Counts.Bytes
	s.OldestReady, s.NextDue = wire.Earlier(s.OldestReady, q.OldestReady), wire.Earlier(s.NextDue, q.NextDue)
	addCounters(&s.Counters, &q.Counters)
	wire.AddDueSums(&s.Due, &q.Due)
}

// sumOf adds two histograms. Each is empty or has the same bounds as the other.
func sumOf(a, b *node.Histogram) node.Histogram {
	switch {
	case b.Bounds == nil:
		return *a
	case a.Bounds == nil:
		return *b
	}
	sum := node.Histogram{Bounds: a.Bounds, Counts: slices.Clone(a.Counts), Sum: a.Sum + b.Sum, Count: a.Count + b.Count}
	for i, n := range b.Counts {
		sum.Counts[i] += n
	}
	return sum
}

// addCounters adds the counters of a queue to sum.
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
