package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// TestWhatOthersCauseIsBounded: nodes of the network decide how many addresses fail, how many ids
// clash and what the library complains of. None of that may take memory without end.
func TestWhatOthersCauseIsBounded(t *testing.T) {
	addr := func(n int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), 7402)
	}
	var f failures
	m := table("c")
	l := newLibraryLog(discard())
	l.enableWarnings()
	for n := range 3000 { // more than any of the bounds
		f.record(addr(n), errUnreached)
		info := node("c", fmt.Sprintf("n%d", n), "1")
		m.NotifyConflict(libraryNode(t, info, addr(n)), libraryNode(t, info, addr(n+1)))
		l.logger().Printf("[ERR] memberlist: complaint %c%c of a kind of its own", 'A'+n/60, 'A'+n%60)
	}
	if got := len(f.byAddr); got > failuresMax {
		t.Errorf("%d failures are kept", got)
	}
	if got := len(m.conflicts); got > membersMax {
		t.Errorf("%d conflicts are kept", got)
	}
	if got := len(l.said); got > complaintsMax {
		t.Errorf("%d complaints are kept", got)
	}
}

// TestPacketsFromElsewhere: a packet from a network that is not allowed is not handed on, also if
// it is in order.
func TestPacketsFromElsewhere(t *testing.T) {
	keys, err := newKeyring(nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := listening(t, keys, netip.MustParsePrefix("127.0.0.2/32"))
	for n, from := range []string{"127.0.0.1:0", "127.0.0.2:0"} {
		d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(from))}
		packet, err := d.DialContext(t.Context(), "udp", tr.socket.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer packet.Close()
		if _, err := packet.Write(tr.keys.sealPacket(tr.socket.Addr(), []byte{messagePing, byte(n)})); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-tr.packets; got.Buf[1] != 1 {
		t.Errorf("the first packet handed on comes from %v", got.From)
	}
}

// TestStreamsEndWithTheNode: a stream that this node opened is closed when its life ends, though
// the other side says nothing and no deadline is near.
func TestStreamsEndWithTheNode(t *testing.T) {
	keys, err := newKeyring(nil)
	if err != nil {
		t.Fatal(err)
	}
	tr, other := listening(t, keys), listening(t, keys)
	life, end := context.WithCancel(t.Context())
	defer end()
	tr.life = func() context.Context { return life }
	conn, err := tr.DialAddressTimeout(memberlist.Address{Addr: other.socket.Addr().String()}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	end()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the stream goes on after its node: %v", err)
	}
}

// TestStreamsAreInspected: what would end the library's process is refused also under the right
// key.
func TestStreamsAreInspected(t *testing.T) {
	tr := listening(t, ring(t, keyOf(1, 32)))
	conn := dialled(t, tr.socket.Addr().String())
	bound, err := knock(conn)
	if err != nil {
		t.Fatal(err)
	}
	frame, err := tr.keys.sealStream(bound.question(), []byte{messagePushPull, 0xff})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	select {
	case <-tr.streams:
		t.Error("a malformed state is handed on")
	case err := <-readEnd(conn):
		if isTimeout(err) {
			t.Error("the stream was left open")
		}
	}
}

// readEnd tells how a stream ended.
func readEnd(conn net.Conn) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		ended <- err
	}()
	return ended
}
