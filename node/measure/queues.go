package measure

import (
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/histogram"
)

// QueueStats are the leader's measurements of a queue besides its jobs, since it leads the shard.
type QueueStats struct {
	// LatenessSeconds runs from a job's due time to the timestamp of the grant of its first
	// attempt.
	LatenessSeconds histogram.Values
	// JobSeconds runs from a job's put to its ack, in shard time.
	JobSeconds histogram.Values
	// Attempts counts the attempts at a job until it was acked or died.
	Attempts histogram.Values
	// Waiting is the number of parked calls of Reserve that name the queue.
	Waiting int
}

// OtherQueues is the name for all queues of a shard that have no QueueStats of their own, because
// there are too many. A queue of this name is counted here too.
const OtherQueues = "_other"

// QueuesMax bounds the queues of a shard that are measured separately, at about 600 bytes
// each.
const QueuesMax = 1000

// Queues have the lateness and the endings of the jobs of each queue, for the first queues
// that have any. They start empty with each leadership, because they lack what another leader did
// meanwhile, and because deleted queues must not keep their entries for ever.
type Queues struct {
	mu     sync.Mutex
	queues map[string]*queueMeasure
}

// queueMeasure holds the measurements of one queue. A histogram is nil until it has a value.
type queueMeasure struct{ late, took, attempts *histogram.Histogram }

func newQueues() *Queues {
	return &Queues{queues: map[string]*queueMeasure{}}
}

// The bounds are coarse, because there are so many of these histograms.

// latenessBounds are 1, 5, 10, 50, 100 and 500 ms, 1, 5, 30, 300 and 3,600 s.
func latenessBounds() []float64 {
	return []float64{.001, .005, .01, .05, .1, .5, 1, 5, 30, 300, 3600}
}

// tookBounds are 100 ms, 1, 10 and 60 s, 10 min, 1 h, 1 day and 1 week. Most of a long time is
// usually the delay.
func tookBounds() []float64 {
	return []float64{.1, 1, 10, 60, 600, 3600, 24 * 3600, 7 * 24 * 3600}
}

// attemptsBounds end at the attempt at which jobs die by default.
func attemptsBounds() []float64 { return []float64{1, 2, 3, 5, 16} }

// of returns the measure of a queue. m.mu is held.
func (m *Queues) of(queue string) *queueMeasure {
	q := m.queues[queue]
	if q == nil && len(m.queues) >= QueuesMax {
		queue = OtherQueues
		q = m.queues[queue]
	}
	if q == nil {
		q = &queueMeasure{}
		m.queues[queue] = q
	}
	return q
}

// late counts the lateness of one grant.
func (m *Queues) late(queue string, late time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.of(queue)
	if q.late == nil {
		q.late = histogram.New(latenessBounds())
	}
	q.late.Observe(late)
}

// Ended counts jobs that were acked or died.
func (m *Queues) Ended(endings []fsm.Ending) {
	if len(endings) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	q, name := m.of(endings[0].Queue), endings[0].Queue
	for i := range endings {
		e := &endings[i]
		if e.Queue != name { // most entries end jobs of one queue
			q, name = m.of(e.Queue), e.Queue
		}
		if q.attempts == nil {
			q.attempts = histogram.New(attemptsBounds())
		}
		q.attempts.Add(float64(e.Attempts))
		if e.State != fsm.Acked {
			continue
		}
		if q.took == nil {
			q.took = histogram.New(tookBounds())
		}
		q.took.Observe(e.Took)
	}
}

// Clear drops all measurements.
func (m *Queues) Clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.queues)
}

// Value returns the measurements. The caller may add to the map.
func (m *Queues) Value() map[string]QueueStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]QueueStats, len(m.queues))
	for name, q := range m.queues {
		all[name] = QueueStats{LatenessSeconds: valueOf(q.late), JobSeconds: valueOf(q.took), Attempts: valueOf(q.attempts)}
	}
	return all
}

// valueOf returns the values of a histogram; h may be nil.
func valueOf(h *histogram.Histogram) histogram.Values {
	if h == nil {
		return histogram.Values{}
	}
	return h.Value()
}

// AddWaiting adds parked calls that name a queue to what [Queues.Value] returned. It bounds the
// queues in it to twice QueuesMax.
func AddWaiting(all map[string]QueueStats, queue string, calls int) {
	st, known := all[queue]
	if !known && len(all) >= 2*QueuesMax {
		queue = OtherQueues
		st = all[queue]
	}
	st.Waiting += calls
	all[queue] = st
}
