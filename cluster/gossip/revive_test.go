package gossip_test

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/cluster/gossip/gossiptest"
)

// tap is a network that records all packets.
type tap struct {
	gossip.Network
	mu   sync.Mutex
	kept [][]byte
}

// Listen implements gossip.Network.
func (n *tap) Listen(ctx context.Context, at netip.AddrPort) (gossip.Socket, error) {
	s, err := n.Network.Listen(ctx, at)
	return tapped{s, n}, err
}

// tapped is a socket on such a network.
type tapped struct {
	gossip.Socket
	network *tap
}

// WritePacket implements gossip.Socket.
func (s tapped) WritePacket(b []byte, to netip.AddrPort) error {
	n := s.network
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = append(n.kept, slices.Clone(b))
	return s.Socket.WritePacket(b, to)
}

// TestReplayedPacketsReviveNoNode: packets of two nodes say that a third one is alive. After that
// node has gone for good, and the library has forgotten it, an attacker sends all recorded packets
// again, also those that went to others.
func TestReplayedPacketsReviveNoNode(t *testing.T) {
	inWorld(t, func(w *world) {
		tap := &tap{Network: w.net}
		var nodes []*gossip.Gossip
		for n := 1; n <= 3; n++ {
			cfg := w.config(n, 2)
			cfg.KeyFile, cfg.Insecure, cfg.Network = keyFile(t, "", 1), false, tap
			nodes = append(nodes, w.run(cfg))
			w.await("all see all", 10*time.Second, sees(nodes...))
		}
		if err := nodes[2].Close(); err != nil {
			t.Fatal(err)
		}
		gossiptest.Pass(5 * time.Minute) // in which the library forgets it
		attacker, err := w.net.Listen(t.Context(), netip.MustParseAddrPort(at(4)))
		if err != nil {
			t.Fatal(err)
		}
		defer attacker.Close()
		tap.mu.Lock()
		kept := slices.Clone(tap.kept)
		tap.mu.Unlock()
		for _, packet := range kept {
			if err := attacker.WritePacket(packet, netip.MustParseAddrPort(at(1))); err != nil {
				t.Fatal(err)
			}
			gossiptest.Pass(time.Millisecond)
			if got := member(nodes[0], "n3.a"); got.Alive {
				t.Fatalf("of %d packets that were recorded, one revives %+v", len(kept), got)
			}
		}
		if !sees(nodes[:2]...)() || len(nodes[0].Problems()) != 0 {
			t.Errorf("they see %v and %v, and complain of %v", alive(nodes[0]), alive(nodes[1]), nodes[0].Problems())
		}
	})
}
