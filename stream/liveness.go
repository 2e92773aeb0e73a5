package stream

import (
	"net"
	"sync/atomic"
	"time"
)

// An activityConn records when the other side last sent something.
type activityConn struct {
	net.Conn
	began time.Time
	heard atomic.Int64 // nanoseconds after began
}

// Read implements net.Conn.
func (c *activityConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(int64(time.Since(c.began)))
	}
	return n, err
}

// watch pings the other side when either side has been silent; a server too ends a stream whose
// caller is silent. It closes a stream that gives no sign of life, or that is unused.
func (c *Caller) watch(ended <-chan struct{}) {
	timer := time.NewTimer(c.config.PingAfter)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ended:
			return
		}
		next, ask, err := c.look(time.Now())
		if err == nil && ask {
			err = c.out.Offer(Header{Kind: Ping})
		}
		if err != nil {
			c.close(err)
			return
		}
		timer.Reset(next)
	}
}

// look returns when to look again, and whether to ping. An error ends the stream.
func (c *Caller) look(now time.Time) (next time.Duration, ask bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	heard := c.conn.began.Add(time.Duration(c.conn.heard.Load()))
	said := c.used
	if c.asked.After(said) {
		said = c.asked
	}
	after, timeout, idle := c.config.PingAfter, c.config.PingTimeout, c.config.Idle
	silent := max(now.Sub(heard), now.Sub(said))
	switch {
	case idle > 0 && len(c.calls) == 0 && now.Sub(c.used) >= idle:
		c.err = errIdle // no call comes in between
		return 0, false, errIdle
	case silent < after:
		return after - silent, false, nil
	case c.out.Writing():
		c.asked = time.Time{} // a ping would wait behind the present write, whose time is limited
		return timeout, false, nil
	case c.asked.After(heard) && now.Sub(c.asked) >= timeout:
		return 0, false, errMute
	case c.asked.After(heard):
		return timeout - now.Sub(c.asked), false, nil
	default:
		c.asked = now
		return timeout, true, nil
	}
}
