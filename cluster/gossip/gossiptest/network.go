package gossiptest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/belfrydb/belfry/cluster/gossip"
)

const (
	// backlog is how many packets or streams wait to be read; more packets are lost, more streams are
	// refused.
	backlog = 256
	// firstPort is the first port that Listen picks for port 0.
	firstPort = 20000
)

// Network is a gossip.Network in memory. Every host reaches every other one until Split.
type Network struct {
	mu      sync.Mutex
	sockets map[netip.AddrPort]*socket
	sides   map[netip.Addr]int // the side of a split that a host is on; 0 for those not named
	port    uint16
}

var _ gossip.Network = (*Network)(nil)

// NewNetwork returns a network without hosts.
func NewNetwork() *Network {
	return &Network{sockets: make(map[netip.AddrPort]*socket), sides: make(map[netip.Addr]int), port: firstPort}
}

// Split cuts the network into the sides given, and one more of all hosts that are not named. What
// is sent from one side to another is swallowed, as a firewall would: nothing says so.
func (n *Network) Split(sides ...[]netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.sides)
	for i, side := range sides {
		for _, host := range side {
			n.sides[host] = i + 1
		}
	}
}

// Heal undoes Split.
func (n *Network) Heal() { n.Split() }

// Listen implements gossip.Network.
func (n *Network) Listen(_ context.Context, at netip.AddrPort) (gossip.Socket, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.Port() == 0 {
		at = netip.AddrPortFrom(at.Addr(), n.port)
		n.port++
	}
	if n.sockets[at] != nil {
		return nil, fmt.Errorf("%v is in use", at)
	}
	s := &socket{
		network: n, addr: at, packets: make(chan packet, backlog), streams: make(chan net.Conn, backlog),
		done: make(chan struct{}),
	}
	n.sockets[at] = s
	return s, nil
}

// reach returns the socket at an address, nil if there is no listener, and whether the path from
// one host to the other is cut.
func (n *Network) reach(from, to netip.AddrPort) (target *socket, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sockets[to], n.sides[from.Addr()] != n.sides[to.Addr()]
}

// packet is one on its way.
type packet struct {
	from netip.AddrPort
	data []byte
}

// socket implements gossip.Socket.
type socket struct {
	network *Network
	addr    netip.AddrPort
	packets chan packet
	streams chan net.Conn
	done    chan struct{}
	closing sync.Once
}

// Addr implements gossip.Socket.
func (s *socket) Addr() netip.AddrPort { return s.addr }

// ReadPacket implements gossip.Socket.
func (s *socket) ReadPacket(buf []byte) (int, netip.AddrPort, error) {
	select {
	case p := <-s.packets:
		return copy(buf, p.data), p.from, nil
	case <-s.done:
		return 0, netip.AddrPort{}, net.ErrClosed
	}
}

// WritePacket implements gossip.Socket.
func (s *socket) WritePacket(b []byte, to netip.AddrPort) error {
	select {
	case <-s.done:
		return net.ErrClosed
	default:
	}
	target, cut := s.network.reach(s.addr, to)
	if target == nil || cut {
		return nil
	}
	select {
	case target.packets <- packet{from: s.addr, data: append([]byte(nil), b...)}:
	default: // lost
	}
	return nil
}

// Accept implements gossip.Socket.
func (s *socket) Accept() (net.Conn, error) {
	select {
	case conn := <-s.streams:
		return conn, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Dial implements gossip.Socket.
func (s *socket) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	target, cut := s.network.reach(s.addr, to)
	if cut {
		<-ctx.Done()
		return nil, fmt.Errorf("dialling %v: %w", to, ctx.Err())
	}
	if target == nil {
		return nil, fmt.Errorf("dialling %v: nobody listens", to)
	}
	near, far := net.Pipe()
	select {
	case target.streams <- stream{Conn: far, remote: s.addr}:
		return stream{Conn: near, remote: to}, nil
	default:
		return nil, fmt.Errorf("dialling %v: too many streams wait", to)
	}
}

// Close implements gossip.Socket.
func (s *socket) Close() error {
	s.closing.Do(func() {
		s.network.mu.Lock()
		defer s.network.mu.Unlock()
		if s.network.sockets[s.addr] == s {
			delete(s.network.sockets, s.addr)
		}
		close(s.done)
	})
	return nil
}

// stream is a pipe whose other end has an address.
type stream struct {
	net.Conn
	remote netip.AddrPort
}

// RemoteAddr implements net.Conn.
func (s stream) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(s.remote) }
