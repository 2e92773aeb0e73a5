package node

import (
	"errors"
	"sync/atomic"

	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/histogram"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/storage"
)

// shardCounters are the counters that the parts of a shard share.
type shardCounters struct {
	notApplied, unknown            atomic.Uint64
	overloaded, diskFull, noLeader atomic.Uint64
	memoryFull, tooFewVoters       atomic.Uint64
	redelivered                    atomic.Uint64
	apply                          *histogram.Histogram
	serverLate, workerLate         *histogram.Histogram
	measures                       *queueMeasures
	quotas                         admit.NamespaceRefusals
}

func newShardCounters() *shardCounters {
	return &shardCounters{
		apply:      histogram.Seconds(),
		serverLate: histogram.Seconds(), workerLate: histogram.Seconds(), measures: newQueueMeasures(),
	}
}

// failed counts requests that ended with err.
func (c *shardCounters) failed(err error, requests int) {
	n := uint64(requests)
	if outcome.Of(err) == outcome.Unknown {
		c.unknown.Add(n)
		return
	}
	c.notApplied.Add(n)
	switch {
	case errors.Is(err, outcome.ErrOverloaded), errors.Is(err, outcome.ErrShareUnknown):
		// callers get the same reason for both
		c.overloaded.Add(n)
	case errors.Is(err, outcome.ErrDiskFull):
		c.diskFull.Add(n)
	case errors.Is(err, outcome.ErrMemoryFull):
		c.memoryFull.Add(n)
	case errors.Is(err, outcome.ErrTooFewVoters):
		c.tooFewVoters.Add(n)
	case errors.Is(err, outcome.ErrNoLeader), errors.Is(err, outcome.ErrNotLeader):
		c.noLeader.Add(n)
	case errors.Is(err, outcome.ErrQuota), errors.Is(err, outcome.ErrRateLimited):
		c.quotas.Note(err, n)
	}
}

// histogramOf returns the latencies of a store in seconds.
func histogramOf(l *storage.Latency) histogram.Values {
	h := histogram.Values{Counts: l.Buckets[:], Sum: l.Sum.Seconds()}
	for i := range storage.LatencyBuckets - 1 {
		h.Bounds = append(h.Bounds, storage.LatencyBound(i).Seconds())
	}
	for _, n := range h.Counts { // not l.Count, which may have been read a moment before
		h.Count += n
	}
	return h
}
