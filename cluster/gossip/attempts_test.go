package gossip_test

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/cluster/gossip/gossiptest"
)

// outcomes returns what came of calling each join address, by address.
func outcomes(g *gossip.Gossip) map[string]gossip.JoinOutcome {
	all := map[string]gossip.JoinOutcome{}
	for _, a := range g.JoinAttempts() {
		all[a.Addr] = a.Outcome
	}
	return all
}

// serveForeign accepts streams at a host and answers each in a way that is not gossip.
func (w *world) serveForeign(n int, answer func(net.Conn)) {
	w.t.Helper()
	socket, err := w.net.Listen(w.t.Context(), netip.MustParseAddrPort(at(n)))
	if err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			answer(conn)
			_ = conn.Close()
		}
	}()
	w.t.Cleanup(func() {
		_ = socket.Close()
		<-ended
	})
}

// TestJoinAttempts reports what is at each join address, as far as gossip can know, and reports it
// again when that changes.
func TestJoinAttempts(t *testing.T) {
	inWorld(t, func(w *world) {
		w.run(w.config(1))
		keyed := w.config(4)
		keyed.KeyFile = keyFile(t, "", 1)
		w.run(keyed)
		w.serveForeign(5, func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 1<<16))
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
		})
		w.serveForeign(6, func(net.Conn) {}) // it closes at once
		caller := w.config(2, 1, 2, 3, 4, 5, 6)
		g := w.run(caller)
		want := map[string]gossip.JoinOutcome{
			at(1): gossip.JoinReached, at(2): gossip.JoinReached, at(3): gossip.JoinNoConnection, at(4): gossip.JoinWrongKey,
			at(5): gossip.JoinNotGossip, at(6): gossip.JoinNotGossip,
		}
		w.await("every call to end", time.Minute, func() bool { return cmp.Equal(outcomes(g), want) })
		for _, a := range g.JoinAttempts() {
			if (a.Err != nil) != (a.Outcome != gossip.JoinReached) {
				t.Errorf("%s, outcome %d: %v", a.Addr, a.Outcome, a.Err)
			}
		}
		late := w.run(w.config(3, 1))
		want[at(3)] = gossip.JoinReached
		w.await("the new node to be seen", time.Minute, func() bool { return cmp.Equal(outcomes(g), want) })
		if err := late.Close(); err != nil {
			t.Fatal(err)
		}
		gossiptest.Pass(5 * time.Minute)
		want[at(3)] = gossip.JoinNoConnection
		if diff := cmp.Diff(want, outcomes(g)); diff != "" {
			t.Error(diff)
		}
	})
}
