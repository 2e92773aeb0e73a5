// Package clocktest has a clock that tests move by hand.
package clocktest

import (
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// Hand is a clock that moves only by its methods. They may be called from any goroutine.
type Hand struct {
	mu   sync.Mutex
	wall fsm.Time
	mono time.Duration
}

// NewHand returns a clock that stands in the year 2027.
func NewHand() *Hand { return &Hand{wall: fsm.Time(1_800_000_000e9)} }

// Wall implements clock.Source.
func (c *Hand) Wall() fsm.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

// Monotonic implements clock.Source.
func (c *Hand) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mono
}

// Run lets time pass on both clocks.
func (c *Hand) Run(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += fsm.Time(d)
	c.mono += d
}

// Step moves the wall clock alone.
func (c *Hand) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += fsm.Time(d)
}

// Elapse lets virtual time pass. It starts no timer that is due at once: several of one bubble, in
// several goroutines, crash the runtime under the race detector (golang/go issue 78156).
func Elapse(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	<-timer.C
}
