package belfrytest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// A stoppedClock stands still until it is advanced. Both clocks of the node move alike, as after a
// machine was suspended.
type stoppedClock struct {
	start  fsm.Time
	passed atomic.Int64
}

// newStoppedClock refuses a time that a server cannot have: in nanoseconds it would be a different
// time.
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

// Now returns the server's time: with StoppedAt the time that StoppedAt and Advance have set, else
// the present.
func (s *Server) Now() time.Time {
	if s.clock == nil {
		return time.Now()
	}
	return s.clock.now()
}

// Advance moves the time of a server with StoppedAt forward by d in one jump; d must not be
// negative. When Advance returns, everything that fell due meanwhile has happened, as of the new
// time. Due jobs are ready, in the usual order of a queue (by priority, then by due time); waiting
// calls have got the first of them. Leases that are over have expired, retries are due, and jobs
// whose time to live is over are gone. Schedules have fired, as after an outage of this length: see
// their CatchUp. A full queue that refused a firing gets it once the clock was advanced by a second
// more and there is room. No job is handed out before its due time.
//
// It is one jump: a lease that is granted within it begins at the end of the jump. To see what
// happens on the way, advance in steps.
//
// Advance panics if the server's clock runs by itself. It also panics if the server cannot go on,
// for example because it was closed.
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
