package node

import (
	"errors"
	"sync/atomic"
	"time"
)

// shardCounters are the counters that the parts of a shard share.
type shardCounters struct {
	shard                          uint32
	applied, notApplied, unknown   atomic.Uint64
	overloaded, diskFull, noLeader atomic.Uint64
	memoryFull, tooFewVoters       atomic.Uint64
	entries, commands              atomic.Uint64
	redelivered                    atomic.Uint64
	entryCommands, entryBytes      *histogram
	propose, commit, apply         *histogram
	serverLate, workerLate         *histogram
	measures                       *queueMeasures
	quotas                         namespaceRefusals
}

func newShardCounters(shard uint32) *shardCounters {
	return &shardCounters{
		shard: shard, entryCommands: newHistogram(1, 15), entryBytes: newHistogram(128, 15),
		propose: newSeconds(), commit: newSeconds(), apply: newSeconds(),
		serverLate: newSeconds(), workerLate: newSeconds(), measures: newQueueMeasures(),
	}
}

// entryApplied counts an entry of this node that was applied.
func (c *shardCounters) entryApplied(f *inflightEntry, commands int, now time.Time) {
	c.entries.Add(1)
	c.commands.Add(uint64(commands))
	c.applied.Add(uint64(len(f.batch)))
	c.entryCommands.add(float64(commands))
	c.entryBytes.add(float64(len(f.entry)))
	c.commit.observe(now.Sub(f.start))
	seconds := make([]float64, len(f.batch))
	for i, pr := range f.batch {
		seconds[i] = now.Sub(pr.queued).Seconds()
	}
	c.propose.add(seconds...)
}

// failed counts requests that ended with err.
func (c *shardCounters) failed(err error, requests int) {
	n := uint64(requests)
	if OutcomeOf(err) == Unknown {
		c.unknown.Add(n)
		return
	}
	c.notApplied.Add(n)
	switch {
	case errors.Is(err, ErrOverloaded), errors.Is(err, ErrShareUnknown): // callers get the same reason for both
		c.overloaded.Add(n)
	case errors.Is(err, ErrDiskFull):
		c.diskFull.Add(n)
	case errors.Is(err, ErrMemoryFull):
		c.memoryFull.Add(n)
	case errors.Is(err, ErrTooFewVoters):
		c.tooFewVoters.Add(n)
	case errors.Is(err, ErrNoLeader), errors.Is(err, ErrNotLeader):
		c.noLeader.Add(n)
	case errors.Is(err, ErrQuota), errors.Is(err, ErrRateLimited):
		c.quotas.note(err, n)
	}
}
