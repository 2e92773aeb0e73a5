package belfrytest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// A stoppedClock stands still until it is moved: both clocks of the node alike, as when a machine was suspended.
type stoppedClock struct {
	start  fsm.Time
	passed atomic.Int64
}

// newStoppedClock refuses a time that a server cannot have: as nanoseconds it would be another one.
func newStoppedClock(now time.Time) (*stoppedClock, error) {
	if now.UnixMilli() <= 0 || now.UnixMilli() > fsm.Time(fsm.TimeMax).CeilMillis() {
		hint := ""
		if now.IsZero() {
			hint = ", which is the zero time.Time: was it set?"
		}
		return nil, fmt.Errorf("StoppedAt is %s, must be after 1970 and before 2262%s", now.UTC().Format(time.RFC3339), hint)
	}
	return &stoppedClock{start: fsm.Time(now.Truncate(time.Millisecond).UnixNano())}, nil
}

// Wall implements clock.Source.
func (c *stoppedClock) Wall() fsm.Time { return c.start + fsm.Time(c.passed.Load()) }

// Monotonic implements clock.Source.
func (c *stoppedClock) Monotonic() time.Duration { return time.Duration(c.passed.Load()) }

// now returns the wall clock in the form of package time.
func (c *stoppedClock) now() time.Time { return time.Unix(0, int64(c.Wall())) }

// Now is the server's time: where StoppedAt and Advance have put it, else the present.
func (s *Server) Now() time.Time {
	if s.clock == nil {
		return time.Now()
	}
	return s.clock.now()
}

// Advance moves the time of a server with StoppedAt on by d, which must not be negative, in one jump. When it returns, all that fell due meanwhile has
// happened, as of the new time: jobs ring, in the order in which they leave any queue (by priority, then by due time), first to the calls that wait for them; leases that are over have lapsed,
// retries are there, jobs whose time to live is over are gone. A job is never handed out before.
//
// It is one jump: a lease of 30 seconds that a call was granted within it begins at its end. To see what happens on the way, advance in steps.
//
// It panics for a server whose clock runs by itself, and if the server cannot go on, because it was closed for example.
func (s *Server) Advance(d time.Duration) {
	if s.clock == nil || d < 0 {
		panic(fmt.Sprintf("belfrytest: a clock was to be advanced by %v: that takes StoppedAt, and goes forward only", d))
	}
	s.clock.passed.Add(int64(d))
	ctx, cancel := context.WithTimeout(context.Background(), stopMax)
	defer cancel()
	if err := s.node.Settle(ctx); err != nil {
		panic(fmt.Sprintf("belfrytest: after the clock was advanced by %v: %v", d, err))
	}
}
