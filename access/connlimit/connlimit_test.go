package connlimit

import (
	"fmt"
	"net"
	"testing"
)

// visitor is a connection from an address that knows whether it was closed.
type visitor struct {
	net.Conn
	from   string
	closed bool
}

type from string

func (from) Network() string  { return "test" }
func (a from) String() string { return string(a) }

func (v *visitor) RemoteAddr() net.Addr { return from(v.from) }

func (v *visitor) Close() error {
	v.closed = true
	return nil
}

// acquire opens a connection from an address.
func acquire(t *testing.T, l *Limiter, from string) (*visitor, *Slot) {
	t.Helper()
	v := &visitor{from: from}
	s, _ := l.Acquire(v)
	if s == nil {
		t.Fatalf("%s gets no slot", from)
	}
	return v, s
}

// TestAcquireEvicts the longest idle connection of the host that has most of them, and never a
// pinned one.
func TestAcquireEvicts(t *testing.T) {
	l := New(4)
	honest, _ := acquire(t, l, "10.0.0.1:1")
	pinned, kept := acquire(t, l, "10.0.0.9:1")
	if !kept.Pin() {
		t.Fatal("a slot in use cannot be pinned")
	}
	first, lost := acquire(t, l, "10.0.0.9:2")
	second, _ := acquire(t, l, "10.0.0.9:3")
	third, last := acquire(t, l, "10.0.0.9:4")
	if honest.closed || pinned.closed || !first.closed || second.closed || third.closed {
		t.Errorf("closed: honest %v, pinned %v, first %v, second %v, third %v; want the first alone", honest.closed,
			pinned.closed, first.closed, second.closed, third.closed)
	}
	if lost.Pin() {
		t.Error("the slot of a closed connection was pinned")
	}
	lost.Unpin()
	lost.Release()
	if l.InUse() != 4 {
		t.Errorf("%d slots are in use, want 4", l.InUse())
	}
	kept.Unpin()
	last.Pin()
	if acquire(t, l, "10.0.0.2:1"); !second.closed || pinned.closed || honest.closed {
		t.Error("the connection that became idle last was closed before others")
	}
	if acquire(t, l, "10.0.0.2:2"); !honest.closed || pinned.closed {
		t.Error("of hosts with as many idle connections, not the longest idle one was closed")
	}
}

// TestAllPinned: there is no slot until one is released.
func TestAllPinned(t *testing.T) {
	l := New(3)
	var slots []*Slot
	for i := range 3 {
		_, s := acquire(t, l, fmt.Sprintf("10.0.0.%d:1", i))
		s.Pin()
		slots = append(slots, s)
	}
	if s, evicted := l.Acquire(&visitor{from: "pipe"}); s != nil || evicted {
		t.Error("there is a fourth slot")
	}
	slots[0].Release()
	slots[0].Release()
	acquire(t, l, "pipe")
	if len(l.hosts) != 1 || l.InUse() != 3 {
		t.Errorf("%d hosts are idle in %d slots", len(l.hosts), l.InUse())
	}
}
