package node

import (
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// measuredQueuesMax bounds the queues of a shard that are measured apart, at about 600 bytes each.
const measuredQueuesMax = 1000

// queueMeasures are how late the jobs of each queue were handed out and what became of them, of the first queues of which there is anything. They begin anew
// with each leadership: what another leader did meanwhile is not in them, and queues that are gone should not keep their place for ever.
type queueMeasures struct {
	mu     sync.Mutex
	queues map[string]*queueMeasure
}

// queueMeasure is that of one queue. A histogram is nil until it has something.
type queueMeasure struct{ late, took, attempts *histogram }

func newQueueMeasures() *queueMeasures {
	return &queueMeasures{queues: map[string]*queueMeasure{}}
}

// The bounds are coarse, because there are so many of these histograms.

// latenessBounds are 1, 5, 10, 50, 100 and 500 ms, 1, 5, 30, 300 and 3,600 s.
func latenessBounds() []float64 {
	return []float64{.001, .005, .01, .05, .1, .5, 1, 5, 30, 300, 3600}
}

// tookBounds are 100 ms, 1, 10 and 60 s, 10 min, 1 h, 1 day and 1 week: what takes long is the delay, most of the time.
func tookBounds() []float64 {
	return []float64{.1, 1, 10, 60, 600, 3600, 24 * 3600, 7 * 24 * 3600}
}

// attemptsBounds end where jobs die by default.
func attemptsBounds() []float64 { return []float64{1, 2, 3, 5, 16} }

// of returns the measure of a queue. m.mu is held.
func (m *queueMeasures) of(queue string) *queueMeasure {
	q := m.queues[queue]
	if q == nil && len(m.queues) >= measuredQueuesMax {
		queue = OtherQueues
		q = m.queues[queue]
	}
	if q == nil {
		q = &queueMeasure{}
		m.queues[queue] = q
	}
	return q
}

// late counts one grant.
func (m *queueMeasures) late(queue string, late time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.of(queue)
	if q.late == nil {
		q.late = newHistogramOf(latenessBounds())
	}
	q.late.observe(late)
}

// ended counts jobs that were acked or died.
func (m *queueMeasures) ended(endings []fsm.Ending) {
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
			q.attempts = newHistogramOf(attemptsBounds())
		}
		q.attempts.add(float64(e.Attempts))
		if e.State != fsm.Acked {
			continue
		}
		if q.took == nil {
			q.took = newHistogramOf(tookBounds())
		}
		q.took.observe(e.Took)
	}
}

// clear forgets everything.
func (m *queueMeasures) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.queues)
}

// value returns what was counted, for its caller to add to.
func (m *queueMeasures) value() map[string]QueueStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]QueueStats, len(m.queues))
	for name, q := range m.queues {
		all[name] = QueueStats{LatenessSeconds: valueOf(q.late), JobSeconds: valueOf(q.took), Attempts: valueOf(q.attempts)}
	}
	return all
}

// valueOf returns what a histogram collected that there may not be.
func valueOf(h *histogram) Histogram {
	if h == nil {
		return Histogram{}
	}
	return h.value()
}
