package gossip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/belfrydb/belfry/access/connlimit"
)

const (
	// streamTimeout bounds opening a stream, and each exchange over it.
	streamTimeout = 5 * time.Second
	// streamsMax bounds the streams from others whose first message is awaited; one more takes the
	// place of one. The library reads as many as come.
	streamsMax = 64
	// acceptPause is waited after a stream could not be accepted, for want of file descriptors as a
	// rule.
	acceptPause = 100 * time.Millisecond
)

// transport carries the library's messages over a socket. It seals what goes out. It passes on
// only messages that it could open and that inspectPacket and inspectStream accept, so that the
// library's parser never sees bytes from a sender without the key.
type transport struct {
	socket    Socket
	advertise netip.AddrPort
	keys      *keyring
	allowFrom []netip.Prefix
	// refused is called for frames from addr that could not be opened. The port is 0 if addr is only
	// where a stream came from: no node listens there.
	refused func(addr netip.AddrPort, cause error)
	// failures keeps why streams that this node opened failed.
	failures *failures
	logger   *slog.Logger
	// life returns a context that ends when no more streams are wanted; those that this node opened
	// are closed then.
	life func() context.Context

	packets chan *memberlist.Packet
	streams chan net.Conn
	limiter *connlimit.Limiter
	done    chan struct{}
	running sync.WaitGroup
	ending  sync.Once

	mu   sync.Mutex
	open map[net.Conn]struct{} // streams whose first frame is not read yet
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// start begins to read from the socket.
func (t *transport) start() {
	t.packets, t.streams = make(chan *memberlist.Packet), make(chan net.Conn)
	t.limiter, t.done = connlimit.New(streamsMax), make(chan struct{})
	t.open = make(map[net.Conn]struct{})
	t.running.Go(t.readPackets)
	t.running.Go(t.acceptStreams)
}

// allowed reports whether messages of an address are read at all.
func (t *transport) allowed(from netip.Addr) bool {
	return t.allowFrom == nil || slices.ContainsFunc(t.allowFrom, func(p netip.Prefix) bool {
		return p.Contains(from.Unmap())
	})
}

func (t *transport) readPackets() {
	// A packet that is longer than ours is cut, and then cannot be opened.
	buf := make([]byte, packetBytesMax+1)
	opened := newNonces(noncesMax)
	for {
		n, from, err := t.socket.ReadPacket(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			t.logger.Debug("gossip: reading a packet", "error", err)
			if !t.pause() {
				return
			}
			continue
		}
		if !t.allowed(from.Addr()) {
			continue
		}
		plain, err := t.keys.openPacket(t.advertise, buf[:n])
		if err == nil && !opened.first(nonceOf(buf[:n], headBytes)) {
			err = errReplayed
		}
		if err == nil {
			err = inspectPacket(plain)
		}
		if err != nil {
			t.refuse(from, err)
			continue
		}
		select {
		case t.packets <- &memberlist.Packet{Buf: plain, From: net.UDPAddrFromAddrPort(from), Timestamp: time.Now()}:
		case <-t.done:
			return
		}
	}
}

// pause waits a moment after an error that may repeat at once. It reports whether the transport is
// still wanted.
func (t *transport) pause() bool {
	timer := time.NewTimer(acceptPause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.done:
		return false
	}
}

func (t *transport) acceptStreams() {
	for {
		conn, err := t.socket.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			t.logger.Warn("accepting a gossip stream", "error", err)
			if !t.pause() {
				return
			}
			continue
		}
		slot, _ := t.limiter.Acquire(conn)
		if slot == nil {
			t.logger.Debug("gossip: too many streams at once", "from", conn.RemoteAddr().String())
			closeQuietly(conn)
			continue
		}
		t.running.Go(func() {
			defer slot.Release()
			t.admit(conn, slot)
		})
	}
}

// admit reads the first frame of a stream from another node, and passes the stream on if it is
// valid.
func (t *transport) admit(conn net.Conn, slot *connlimit.Slot) {
	from := addrOf(conn.RemoteAddr())
	if !t.allowed(from.Addr()) || !t.track(conn) {
		closeQuietly(conn)
		return
	}
	defer t.untrack(conn)
	stream := &sealedConn{Conn: conn, keys: t.keys}
	err := conn.SetDeadline(time.Now().Add(streamTimeout))
	if err == nil {
		stream.binding, err = open(conn)
	}
	if err == nil {
		err = stream.readFrame()
	}
	if errors.Is(err, errHello) {
		_, _ = conn.Write(frameHead(frameHello)) // the caller may be gone
		closeQuietly(conn)
		return
	}
	if err != nil {
		t.refuse(netip.AddrPortFrom(from.Addr(), 0), err)
		if errors.Is(err, errWrongKey) || errors.Is(err, errKeyless) {
			_, _ = conn.Write(frameHead(frameRefused)) // it learns why, or finds the stream closed
		}
		closeQuietly(conn)
		return
	}
	if !slot.Pin() {
		closeQuietly(conn)
		return
	}
	select {
	case t.streams <- stream:
	case <-t.done:
		closeQuietly(conn)
	}
}

// track remembers a stream so that Shutdown can close it. It reports false if it is too late.
func (t *transport) track(conn net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		return false
	}
	t.open[conn] = struct{}{}
	return true
}

func (t *transport) untrack(conn net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, conn)
}

// refuse reports a message that could not be opened. It logs other errors at debug level: anyone
// can send anything to an open port.
func (t *transport) refuse(from netip.AddrPort, err error) {
	if errors.Is(err, errWrongKey) || errors.Is(err, errKeyless) || errors.Is(err, errRefused) {
		t.refused(from, err)
		return
	}
	t.logger.Debug("gossip: refusing a message", "from", from.String(), "error", err)
}

// FinalAdvertiseAddr returns the address at which others reach this node. The library asks when it
// starts; it never guesses one.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.advertise.Addr().AsSlice(), int(t.advertise.Port()), nil
}

// WriteToAddress sends a message as one packet.
func (t *transport) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, to.Addr)
}

// WriteTo sends a message as one packet to an address; names are not resolved.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return time.Time{}, fmt.Errorf("sending gossip: %w", err)
	}
	to = unmapped(to)
	err = t.socket.WritePacket(t.keys.sealPacket(to, b), to)
	return time.Now(), err
}

// PacketCh returns where the library takes messages from.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh returns where the library takes streams from.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// DialAddressTimeout opens a stream.
func (t *transport) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(to.Addr, timeout)
}

// DialTimeout opens a stream to an address; names are not resolved.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("dialling gossip: %w", err)
	}
	to = unmapped(to)
	life := t.life()
	ctx, cancel := context.WithTimeout(life, timeout)
	defer cancel()
	conn, err := t.socket.Dial(ctx, to)
	if err != nil {
		t.failures.record(to, fmt.Errorf("%w: %w", errUnreached, err))
		return nil, err
	}
	t.failures.record(to, nil)
	release := context.AfterFunc(life, func() { closeQuietly(conn) })
	failed := func(err error) {
		t.failures.record(to, err)
		t.refuse(to, err)
	}
	stream := &sealedConn{Conn: conn, keys: t.keys, release: release, dialled: true, failed: failed}
	if err := stream.knock(ctx); err != nil {
		failed(err)
		closeQuietly(stream)
		return nil, err
	}
	return stream, nil
}

// Shutdown ends the transport and waits for its goroutines. It may be called again.
func (t *transport) Shutdown() error {
	var err error
	t.ending.Do(func() {
		err = t.socket.Close()
		close(t.done)
		t.mu.Lock()
		defer t.mu.Unlock()
		for conn := range t.open {
			closeQuietly(conn)
		}
		t.open = nil
	})
	t.running.Wait()
	return err
}

// sealedConn is a stream whose messages go in frames. Each Write is one message, as the library
// writes them: first the side that dialled, then the other one. It is for one goroutine, but for
// Close.
type sealedConn struct {
	net.Conn
	keys    *keyring
	binding binding
	asked   bool // the first frame of the side that dialled is known
	ready   bytes.Reader
	dialled bool // by this node
	// The rest is nil for streams that were dialled by others.
	failed  func(error) // called with the reason if a frame could not be read
	release func() bool // forgets the stream
}

// knock binds the stream to the other side's challenge, which must arrive before the deadline of
// ctx.
func (c *sealedConn) knock(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	err := c.SetDeadline(deadline)
	if err == nil {
		c.binding, err = knock(c.Conn)
	}
	if err == nil {
		err = c.SetDeadline(time.Time{}) // the library sets those of the exchange
	}
	return err
}

// bindQuestion stores the nonce of the question, to which the answers are bound.
func (c *sealedConn) bindQuestion(with nonce) {
	if !c.asked {
		c.asked, c.binding.asked = true, with
	}
}

// Close implements net.Conn.
func (c *sealedConn) Close() error {
	if c.release != nil {
		c.release()
	}
	return c.Conn.Close()
}

// readFrame reads the next frame.
func (c *sealedConn) readFrame() error {
	bound := c.binding.question()
	if c.dialled {
		bound = c.binding.answer()
	}
	plain, with, err := c.keys.readStream(c.Conn, bound)
	if err == nil {
		err = inspectStream(plain)
	}
	if err != nil {
		return err
	}
	if !c.dialled {
		c.bindQuestion(with)
	}
	c.ready.Reset(plain)
	return nil
}

// Read implements net.Conn.
func (c *sealedConn) Read(b []byte) (int, error) {
	if c.ready.Len() == 0 {
		if err := c.readFrame(); err != nil {
			if c.failed != nil && !errors.Is(err, io.EOF) {
				c.failed(err)
			}
			return 0, err
		}
	}
	return c.ready.Read(b)
}

// Write implements net.Conn.
func (c *sealedConn) Write(b []byte) (int, error) {
	bound := c.binding.answer()
	if c.dialled {
		bound = c.binding.question()
	}
	frame, err := c.keys.sealStream(bound, b)
	if err != nil {
		return 0, err
	}
	if c.dialled {
		c.bindQuestion(nonceOf(frame, streamHeadBytes))
	}
	if _, err := c.Conn.Write(frame); err != nil {
		return 0, err
	}
	return len(b), nil
}

// closeQuietly closes a stream of which nothing more is expected.
func closeQuietly(conn net.Conn) { _ = conn.Close() }
