package nodetest

import (
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// Clock is a node's clock that a test can set wrong.
type Clock struct {
	node.Clock
	off atomic.Int64
}

// Wall returns the wall clock, as wrong as it was set.
func (c *Clock) Wall() fsm.Time { return c.Clock.Wall() + fsm.Time(c.off.Load()) }

// Step sets the wall clock off by d.
func (c *Clock) Step(d time.Duration) { c.off.Store(int64(d)) }
