package client

import "sync/atomic"

// A bell wakes all who wait for it together, which costs less than half of what waking each of them by a channel of its own does. A caller that is woken
// looks whether its answer is there, and if it is not, takes a bell of its own: it is woken for nothing once at most.
type bell struct {
	c    chan struct{} // closed when the bell is rung
	rung atomic.Bool
}

func newBell() *bell { return &bell{c: make(chan struct{})} }

// bells are those to ring.
type bells []*bell

// add notes a bell. Callers that are answered together mostly have the same one.
func (all *bells) add(b *bell) {
	if n := len(*all); n == 0 || (*all)[n-1] != b {
		*all = append(*all, b)
	}
}

// ring wakes the callers. Each bell rings once.
func (all bells) ring() {
	for _, b := range all {
		if b.rung.CompareAndSwap(false, true) {
			close(b.c)
		}
	}
}

// A tower gives those who come one after the other the same bell, up to so many.
type tower struct {
	bell *bell
	used int
}

// next gives a bell that has fewer than so many callers.
func (t *tower) next(most int) *bell {
	if t.bell == nil || t.used >= most {
		t.bell, t.used = newBell(), 0
	}
	t.used++
	return t.bell
}

// change has those who come from now on wait for another bell than those who came before.
func (t *tower) change() { t.bell = nil }
