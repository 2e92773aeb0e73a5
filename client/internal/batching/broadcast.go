package batching

import "sync/atomic"

// A Broadcast wakes all its waiters at once. That costs less than half of what one channel for each
// waiter costs. A waiter that wakes without an answer takes a broadcast of its own, so it wakes for
// nothing at most once.
type Broadcast struct {
	c    chan struct{} // closed by Send
	sent atomic.Bool
}

// NewBroadcast returns a broadcast that is not sent.
func NewBroadcast() *Broadcast { return &Broadcast{c: make(chan struct{})} }

// Done returns the channel that is closed once the broadcast is sent.
func (b *Broadcast) Done() <-chan struct{} { return b.c }

// Broadcasts is a set of broadcasts to send.
type Broadcasts []*Broadcast

// Add adds a broadcast. Callers that are answered together mostly share one, so only the last one
// is checked for a repetition.
func (all *Broadcasts) Add(b *Broadcast) {
	if n := len(*all); n == 0 || (*all)[n-1] != b {
		*all = append(*all, b)
	}
}

// Send wakes the waiters of each broadcast, unless it was sent before.
func (all Broadcasts) Send() {
	for _, b := range all {
		if b.sent.CompareAndSwap(false, true) {
			close(b.c)
		}
	}
}

// A Group gives one broadcast to callers that arrive one after the other.
type Group struct {
	current *Broadcast
	waiters int
}

// Join returns the current broadcast, or a new one if the current one has most waiters.
func (g *Group) Join(most int) *Broadcast {
	if g.current == nil || g.waiters >= most {
		g.current, g.waiters = NewBroadcast(), 0
	}
	g.waiters++
	return g.current
}

// Close makes the next caller start a new broadcast.
func (g *Group) Close() { g.current = nil }
