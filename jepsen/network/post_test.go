package network

import (
	"math/bits"
	"net"
	"net/netip"
	"testing"
	"time"
)

// gossips returns sockets where nodes gossip.
func (w *world) gossips(nodes ...string) []*net.UDPConn {
	w.t.Helper()
	var all []*net.UDPConn
	for _, node := range nodes {
		socket, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(w.Host(node)),
			Gossip.Port())))
		if err != nil {
			w.t.Fatal(err)
		}
		w.own(socket)
		all = append(all, socket)
	}
	return all
}

// send sends packets to a node as others see it.
func (w *world) send(from *net.UDPConn, to string, texts ...string) {
	w.t.Helper()
	for _, text := range texts {
		at := netip.AddrPortFrom(netip.MustParseAddr(w.Advertised(to)), Gossip.Port())
		if _, err := from.WriteToUDPAddrPort([]byte(text), at); err != nil {
			w.t.Fatal(err)
		}
	}
}

// receive expects packets in order.
func (w *world) receive(at *net.UDPConn, from string, texts ...string) {
	w.t.Helper()
	buf := make([]byte, 1<<16)
	for _, text := range texts {
		n, sender, err := at.ReadFromUDPAddrPort(buf)
		if err != nil || string(buf[:n]) != text {
			w.t.Fatalf("received %q, %v; want %q", buf[:n], err, text)
		}
		if sender.Addr().Unmap().String() != w.Advertised(from) || sender.Port() != Gossip.Port() {
			w.t.Errorf("a packet of %s came from %s", from, sender)
		}
	}
}

func TestPackets(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		rule  Rule
		sent  []string
		heard []string
	}{
		{"pass", Rule{}, []string{"a", "b"}, []string{"a", "b"}},
		{"are lost by chance", Rule{Loss: 1}, []string{"a", "b"}, nil},
		{"are lost where it is silent", Rule{Drop: true}, []string{"a", "b"}, nil},
		{"are lost where it resets", Rule{Reset: true}, []string{"a"}, nil},
		{"are lost where it is mute", Rule{Mute: true}, []string{"a"}, nil},
		{"come twice", Rule{Duplicate: 1}, []string{"a", "b"}, []string{"a", "a", "b", "b"}},
		{"come in another order", Rule{Reorder: 1}, []string{"a", "b", "c", "d"}, []string{"b", "a", "d", "c"}},
		{"come later", Rule{Delay: time.Millisecond}, []string{"a", "b"}, []string{"a", "b"}},
		{"come slowly", Rule{BytesPerSecond: 1000}, []string{"a", "b"}, []string{"a", "b"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, Loopback)
			at := w.gossips("n1", "n2")
			w.set("n1", "n2", Gossip, row.rule)
			w.send(at[0], "n2", row.sent...)
			w.receive(at[1], "n1", row.heard...)
			if row.heard == nil {
				// They were taken before the rule is gone: one socket hands them out in order, and this way has
				// no rule.
				w.send(w.gossips("n3")[0], "n2", "from another")
				w.receive(at[1], "n3", "from another")
			}
			w.heal()
			w.send(at[0], "n2", "after")
			w.receive(at[1], "n1", "after")
			w.send(at[1], "n1", "back")
			w.receive(at[0], "n2", "back")
		})
	}
}

func TestAPacketIsDelayedAndHasAFlippedBit(t *testing.T) {
	t.Parallel()
	const delay = 40 * time.Millisecond
	w := newWorld(t, Loopback)
	at := w.gossips("n1", "n2")
	w.set("n1", "n2", Gossip, Rule{Corrupt: 1, Delay: delay})
	began := time.Now()
	w.send(at[0], "n2", "\x00\x00\x00\x00")
	buf := make([]byte, 8)
	n, err := at[1].Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < delay {
		t.Errorf("what is delayed by %s came after %s", delay, took)
	}
	flipped := 0
	for _, b := range buf[:n] {
		flipped += bits.OnesCount8(b)
	}
	if n != 4 || flipped != 1 {
		t.Errorf("received %x, want 4 bytes with one bit flipped", buf[:n])
	}
}
