package node

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// latenessQueuesMax bounds the queues of a shard whose lateness is counted apart, at about 200 bytes each.
const latenessQueuesMax = 1000

// queueLateness is how late the jobs of each queue were handed out, of the first queues of which any was. It begins anew with each leadership: what another leader
// handed out meanwhile is not in it, and queues that are gone should not keep their place for ever.
type queueLateness struct {
	mu     sync.Mutex
	queues map[string]*histogram
}

func newQueueLateness() *queueLateness { return &queueLateness{queues: map[string]*histogram{}} }

// latenessBounds are coarse, because there are so many of these histograms: 1, 5, 10, 50, 100 and 500 ms, 1, 5, 30, 300 and 3,600 s.
func latenessBounds() []float64 {
	return []float64{.001, .005, .01, .05, .1, .5, 1, 5, 30, 300, 3600}
}

// observe counts one grant.
func (l *queueLateness) observe(queue string, late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.queues[queue]
	if h == nil && len(l.queues) >= latenessQueuesMax {
		queue = OtherQueues
		h = l.queues[queue]
	}
	if h == nil {
		h = newHistogramOf(latenessBounds())
		l.queues[queue] = h
	}
	h.observe(late)
}

// clear forgets everything.
func (l *queueLateness) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.queues)
}

// value returns what was counted, for its caller to add to.
func (l *queueLateness) value() map[string]QueueStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]QueueStats, len(l.queues))
	for name, h := range l.queues {
		all[name] = QueueStats{LatenessSeconds: h.value()}
	}
	return all
}

// granted counts what a Reserve handed out at clock. came is when the caller was there and its queue gave jobs out.
func (c *shardCounters) granted(came fsm.Time, result *fsm.Result, clock fsm.Time) {
	if result.Replayed {
		return // counted when they were handed out
	}
	for i := range result.Grants {
		g := &result.Grants[i]
		if g.Attempt > 1 {
			c.redelivered.Add(1)
			continue
		}
		had := min(max(g.Due, came), clock) // stamps need not follow the clock by which the caller came
		c.workerLate.observe(had.Sub(g.Due))
		c.serverLate.observe(clock.Sub(had))
		c.lateness.observe(g.Queue, clock.Sub(g.Due))
	}
}

// waiting adds to each queue how many calls wait for it.
func (ws *waiters) waiting(all map[string]QueueStats) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for name, q := range ws.queues {
		st, known := all[name]
		if !known && len(all) >= 2*latenessQueuesMax {
			name = OtherQueues
			st = all[name]
		}
		st.Waiting += q.size
		all[name] = st
	}
}

// followers returns how far the other voters and nonvoters of a group that this node leads have come.
func (g *group) followers() (all []FollowerStats) {
	i, members := g.instance(), g.replica.committedMembers()
	last, term := i.LastIndex(), i.CurrentTerm()
	for _, server := range slices.Concat(members.Voters, members.Nonvoters) {
		if server == g.node.id.serverID() {
			continue
		}
		f := i.transport.heardOf(server)
		st := FollowerStats{Server: server, Lag: last}
		if f.term == term {
			st.Lag, st.Heard = last-min(last, f.index), f.at
		}
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b FollowerStats) int { return strings.Compare(a.Server, b.Server) })
	return all
}
