package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Network is what gossip runs on: the machine's sockets, or a network in memory (package
// gossiptest).
type Network interface {
	// Listen opens a socket. Port 0 picks a free port.
	Listen(ctx context.Context, at netip.AddrPort) (Socket, error)
}

// Socket carries packets and streams on one port. Its methods may be called from any goroutine;
// after Close they return net.ErrClosed.
type Socket interface {
	// Addr returns the address that the socket listens at, with its port.
	Addr() netip.AddrPort
	// ReadPacket waits for a packet and copies it to buf. What does not fit is lost.
	ReadPacket(buf []byte) (n int, from netip.AddrPort, err error)
	// WritePacket sends a packet, which may be lost.
	WritePacket(b []byte, to netip.AddrPort) error
	// Accept waits for a stream from another node.
	Accept() (net.Conn, error)
	// Dial opens a stream to another node.
	Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// Close ends all calls that wait.
	Close() error
}

const (
	// portAttempts is how often Listen looks for a port that is free for packets and streams alike.
	portAttempts = 16
	// receiveBufferBytes is what the kernel is asked to keep of packets that arrive in a burst.
	receiveBufferBytes = 1 << 20
)

// sockets is the Network of the machine.
type sockets struct{}

// Listen implements Network.
func (sockets) Listen(ctx context.Context, at netip.AddrPort) (Socket, error) {
	var failed error
	for range portAttempts {
		s, err := listen(ctx, at)
		if err == nil {
			return s, nil
		}
		failed = errors.Join(failed, err)
		if at.Port() != 0 || ctx.Err() != nil {
			break
		}
	}
	return nil, failed
}

func listen(ctx context.Context, at netip.AddrPort) (*socket, error) {
	var lc net.ListenConfig
	streams, err := lc.Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("listening for gossip: %w", err)
	}
	bound := netip.AddrPortFrom(at.Addr(), streams.Addr().(*net.TCPAddr).AddrPort().Port())
	packets, err := lc.ListenPacket(ctx, "udp", bound.String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listening for gossip: %w", err), streams.Close())
	}
	udp := packets.(*net.UDPConn)
	// The kernel may grant less; fewer packets then survive a burst, and gossip sends again.
	if err := udp.SetReadBuffer(receiveBufferBytes); err != nil {
		return nil, errors.Join(fmt.Errorf("listening for gossip: %w", err), streams.Close(), udp.Close())
	}
	return &socket{Listener: streams, packets: udp, addr: bound}, nil
}

// socket is a Socket of the machine.
type socket struct {
	net.Listener
	packets *net.UDPConn
	addr    netip.AddrPort
}

// Addr implements Socket.
func (s *socket) Addr() netip.AddrPort { return s.addr }

// ReadPacket implements Socket.
func (s *socket) ReadPacket(buf []byte) (int, netip.AddrPort, error) {
	n, from, err := s.packets.ReadFromUDPAddrPort(buf)
	return n, unmapped(from), err
}

// WritePacket implements Socket.
func (s *socket) WritePacket(b []byte, to netip.AddrPort) error {
	_, err := s.packets.WriteToUDPAddrPort(b, to)
	return err
}

// Dial implements Socket.
func (s *socket) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", to.String())
}

// Close implements Socket.
func (s *socket) Close() error { return errors.Join(s.Listener.Close(), s.packets.Close()) }

// unmapped returns an IPv4 address in its own form, also if it came through an IPv6 socket.
func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// addrOf returns the address of a connection's other end; the zero value if it has none of that
// kind.
func addrOf(a net.Addr) netip.AddrPort {
	addr, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.AddrPort{}
	}
	return unmapped(addr)
}
