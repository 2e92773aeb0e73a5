package gossiptest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/cluster/gossip/gossiptest"
)

func listen(t *testing.T, n *gossiptest.Network, at string) gossip.Socket {
	t.Helper()
	s, err := n.Listen(t.Context(), netip.MustParseAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestNetworkCarriesPacketsAndStreams(t *testing.T) {
	n := gossiptest.NewNetwork()
	a, b := listen(t, n, "10.0.0.1:0"), listen(t, n, "10.0.0.2:7402")
	if a.Addr().Port() == 0 {
		t.Error("no port was picked")
	}
	if err := a.WritePacket([]byte("packet"), b.Addr()); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 3)
	got, from, err := b.ReadPacket(buf)
	if err != nil || string(buf[:got]) != "pac" || from != a.Addr() {
		t.Errorf("packet %q from %v, %v", buf[:got], from, err)
	}
	near, err := a.Dial(t.Context(), b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	far, err := b.Accept()
	if err != nil || far.RemoteAddr().String() != a.Addr().String() {
		t.Fatalf("a stream from %v, %v", far.RemoteAddr(), err)
	}
	go func() {
		_, _ = io.WriteString(near, "stream")
		near.Close()
	}()
	if said, err := io.ReadAll(far); err != nil || string(said) != "stream" {
		t.Errorf("stream: %q, %v", said, err)
	}
}

func TestNetworkRefusesAndEnds(t *testing.T) {
	n := gossiptest.NewNetwork()
	a := listen(t, n, "10.0.0.1:7402")
	if _, err := n.Listen(t.Context(), a.Addr()); err == nil {
		t.Error("an address was taken twice")
	}
	if _, err := a.Dial(t.Context(), netip.MustParseAddrPort("10.0.0.9:1")); err == nil {
		t.Error("dialled nobody")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, err := a.ReadPacket(nil)
	_, err2 := a.Accept()
	for _, err := range []error{err, err2, a.WritePacket(nil, a.Addr())} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	listen(t, n, "10.0.0.1:7402") // the address is free again
}

func TestSplitSwallows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := gossiptest.NewNetwork()
		a, b := listen(t, n, "10.0.0.1:7402"), listen(t, n, "10.0.0.2:7402")
		n.Split([]netip.Addr{a.Addr().Addr()})
		if err := a.WritePacket([]byte("lost"), b.Addr()); err != nil {
			t.Errorf("a split was noticed: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if _, err := a.Dial(ctx, b.Addr()); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("dialled over a split: %v after %v", err, time.Since(begin))
		}
		n.Heal()
		if err := a.WritePacket([]byte("kept"), b.Addr()); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 9)
		if got, _, err := b.ReadPacket(buf); err != nil || string(buf[:got]) != "kept" {
			t.Errorf("the first packet that arrived is %q, %v", buf[:got], err)
		}
		gossiptest.Pass(time.Minute)
	})
}
