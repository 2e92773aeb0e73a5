package throng

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

// enter has somebody come from an address.
func enter(t *testing.T, c *Throng, from string) (*visitor, *Place) {
	t.Helper()
	v := &visitor{from: from}
	p, _ := c.Enter(v)
	if p == nil {
		t.Fatalf("%s finds no place", from)
	}
	return v, p
}

// TestNewcomerTakesAPlace: of the host that has most who wait the one that has waited longest is closed, and never one that does not wait.
func TestNewcomerTakesAPlace(t *testing.T) {
	c := New(4)
	honest, _ := enter(t, c, "10.0.0.1:1")
	settled, kept := enter(t, c, "10.0.0.9:1")
	if !kept.Settle() {
		t.Fatal("a place that nobody took is lost")
	}
	first, lost := enter(t, c, "10.0.0.9:2")
	second, _ := enter(t, c, "10.0.0.9:3")
	third, last := enter(t, c, "10.0.0.9:4")
	if honest.closed || settled.closed || !first.closed || second.closed || third.closed {
		t.Errorf("closed: honest %v, settled %v, first %v, second %v, third %v; want the first alone", honest.closed, settled.closed, first.closed, second.closed, third.closed)
	}
	if lost.Settle() {
		t.Error("who was closed has settled")
	}
	lost.Wait()
	lost.Leave()
	if c.Taken() != 4 {
		t.Errorf("%d places are taken, want 4", c.Taken())
	}
	kept.Wait()
	last.Settle()
	if enter(t, c, "10.0.0.2:1"); !second.closed || settled.closed || honest.closed {
		t.Error("who began to wait last was closed before others")
	}
	if enter(t, c, "10.0.0.2:2"); !honest.closed || settled.closed {
		t.Error("of hosts that have as many, not the one that has waited longest was closed")
	}
}

// TestThrongWhereNobodyWaits: there is no place, until one is given up.
func TestThrongWhereNobodyWaits(t *testing.T) {
	c := New(3)
	var places []*Place
	for i := range 3 {
		_, p := enter(t, c, fmt.Sprintf("10.0.0.%d:1", i))
		p.Settle()
		places = append(places, p)
	}
	if p, evicted := c.Enter(&visitor{from: "pipe"}); p != nil || evicted {
		t.Error("there is a fourth place")
	}
	places[0].Leave()
	places[0].Leave()
	enter(t, c, "pipe")
	if len(c.hosts) != 1 || c.Taken() != 3 {
		t.Errorf("%d hosts wait in %d places", len(c.hosts), c.Taken())
	}
}
