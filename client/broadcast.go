package client

import "sync/atomic"

// A broadcast wakes all its waiters at once. That costs less than half of what one channel for each
// waiter costs. A waiter that wakes without an answer takes a broadcast of its own, so it wakes for
// nothing at most once.
type broadcast struct {
	c    chan struct{} // closed by send
	sent atomic.Bool
}

func newBroadcast() *broadcast { return &broadcast{c: make(chan struct{})} }

// broadcasts is a set of broadcasts to send.
type broadcasts []*broadcast

// add adds a broadcast. Callers that are answered together mostly share one, so only the last one is
// checked for a repetition.
func (all *broadcasts) add(b *broadcast) {
	if n := len(*all); n == 0 || (*all)[n-1] != b {
		*all = append(*all, b)
	}
}

// send wakes the waiters of each broadcast, unless it was sent before.
func (all broadcasts) send() {
	for _, b := range all {
		if b.sent.CompareAndSwap(false, true) {
			close(b.c)
		}
	}
}

// A broadcastGroup gives one broadcast to callers that arrive one after the other.
type broadcastGroup struct {
	current *broadcast
	waiters int
}

// join returns the current broadcast, or a new one if the current one has most waiters.
func (g *broadcastGroup) join(most int) *broadcast {
	if g.current == nil || g.waiters >= most {
		g.current, g.waiters = newBroadcast(), 0
	}
	g.waiters++
	return g.current
}

// close makes the next caller start a new broadcast.
func (g *broadcastGroup) close() { g.current = nil }
