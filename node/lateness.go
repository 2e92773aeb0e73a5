package node

import (
	"github.com/belfrydb/belfry/fsm"
)

// granted counts the grants of a Reserve at clock. came is when the Reserve could first have been
// granted: its caller waited, and its queue withheld no jobs.
func (c *shardCounters) granted(came fsm.Time, result *fsm.Result, clock fsm.Time) {
	if result.Replayed {
		return // counted at the first reply
	}
	for i := range result.Grants {
		g := &result.Grants[i]
		if g.Attempt > 1 {
			c.redelivered.Add(1)
			continue
		}
		had := min(max(g.Due, came), clock) // timestamps need not follow the clock that gave came
		c.workerLate.Observe(had.Sub(g.Due))
		c.serverLate.Observe(clock.Sub(had))
		c.measures.late(g.Queue, clock.Sub(g.Due))
	}
}

// noteParked adds the calls that wait for a queue to the statistics of queues.
func noteParked(all map[string]QueueStats, queue string, calls int) {
	st, known := all[queue]
	if !known && len(all) >= 2*measuredQueuesMax {
		queue = OtherQueues
		st = all[queue]
	}
	st.Waiting += calls
	all[queue] = st
}
