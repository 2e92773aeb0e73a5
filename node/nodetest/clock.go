package nodetest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/clock"
)

// Clock is a node's clock that a test can set wrong.
type Clock struct {
	clock.Source
	off    atomic.Int64
	missed atomic.Int64
}

// Wall returns the wall clock, as wrong as it was set.
func (c *Clock) Wall() fsm.Time { return c.Source.Wall() + fsm.Time(c.off.Load()) }

// Monotonic returns the monotonic clock without the time that it missed.
func (c *Clock) Monotonic() time.Duration {
	return c.Source.Monotonic() - time.Duration(c.missed.Load())
}

// Step sets the wall clock off by d.
func (c *Clock) Step(d time.Duration) { c.off.Store(int64(d)) }

// Miss makes the last d missing in the monotonic clock, as if the machine had been suspended: the
// wall clock was not. It must have run that long.
func (c *Clock) Miss(d time.Duration) { c.missed.Add(int64(d)) }

// clocks are the other members' clocks as one member can ask them.
type clocks struct {
	cluster *Cluster
	from    string
}

// ReadClock implements clock.Peers.
func (k clocks) ReadClock(ctx context.Context, serverID string) (clock.Reading, error) {
	name, err := nameOf(serverID)
	if err != nil {
		return clock.Reading{}, err
	}
	// Timers of one bubble that are due at once, in several goroutines, have been seen to crash the
	// runtime under the race detector (golang/go issue 78156).
	if k.cluster.options.Latency > 0 {
		way := time.NewTimer(k.cluster.options.Latency)
		defer way.Stop()
		select {
		case <-way.C:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return clock.Reading{}, context.Cause(ctx)
	}
	n := k.cluster.running(name)
	if n == nil || !k.cluster.network.joins(k.from, name) {
		return clock.Reading{}, errCut
	}
	return n.ReadClock(), nil
}
