package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pieceBytes is the most that is read at once, and piecesMax how many pieces are on their way in
	// one direction of a connection: 1 MiB. After that the sender waits, as it does when a network's
	// buffers are full.
	pieceBytes = 16 << 10
	piecesMax  = 64
	// throttleParts is into how many parts a second's bytes are cut if their number is bounded.
	throttleParts = 10
)

// conn carries a connection from its opener to a node.
type conn struct {
	network     *Network
	from, to    *member // from is nil for Outside
	up, down    *net.TCPConn
	twin        *net.TCPConn // a second connection to the node on which nothing is sent; nil if there is none
	there, back *link
	// half is set when the side that opened it was told that it ended, and the other was not.
	half atomic.Bool
}

// carry carries the connection until it ends or ctx does, and closes it.
func (c *conn) carry(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopUp := context.AfterFunc(ctx, func() { abort(c.up) })
	defer stopUp()
	if err := c.open(ctx); err != nil {
		return err
	}
	stopDown := context.AfterFunc(ctx, func() { abort(c.down) })
	defer stopDown()
	forth, back := c.flow(c.up, c.down, c.there), c.flow(c.down, c.up, c.back)
	var readers, writers, watcher sync.WaitGroup
	var failed [2]error
	for i, f := range []*flow{forth, back} {
		readers.Go(f.read)
		writers.Go(func() {
			defer close(f.done)
			failed[i] = f.write(ctx)
			if errors.Is(failed[i], errBroken) {
				cancel() // the other direction has nothing to wait for
			}
		})
	}
	watcher.Go(func() { c.watch(ctx, cancel) })
	writers.Wait()
	if err := errors.Join(failed[:]...); err == nil {
		stopUp()
		stopDown()
		_ = c.up.Close() // both sides have said that they ended
		_ = c.down.Close()
	}
	cancel()
	watcher.Wait()
	for _, end := range []*net.TCPConn{c.up, c.down, c.twin} {
		if end != nil {
			abort(end) // of no effect where it was closed
		}
	}
	readers.Wait()
	return errors.Join(failed[:]...)
}

// open connects to the node, once the rules let it.
func (c *conn) open(ctx context.Context) error {
	waited := false
	for {
		rule, changed := c.there.now()
		behind, changedBack := c.back.now()
		silent := c.network.silent(c.there.way, rule) || c.network.silent(c.back.way, behind)
		switch {
		case rule.Reset:
			abort(c.up)
			return errBroken
		case rule.Mute, silent:
			select {
			case <-changed:
			case <-changedBack:
			case <-ctx.Done():
				return ctx.Err()
			}
			if rule.Mute {
				abort(c.up) // its opener has no answer, and gets none now
				return errBroken
			}
			continue
		}
		if !waited {
			waited = true
			c.there.until(ctx, time.Now().Add(c.network.dice.latency(rule)+c.network.dice.stall(rule)), changed)
			c.reorder(ctx, rule)
			continue
		}
		return c.dial(ctx, rule)
	}
}

// reorder lets the next connection of the link come first, if the rule says so.
func (c *conn) reorder(ctx context.Context, rule Rule) {
	if c.network.dice.happens(rule.Reorder) {
		if overtaken, ok := c.there.holdBack(); ok {
			timeout := time.NewTimer(c.network.reorderWait)
			defer timeout.Stop()
			select {
			case <-overtaken:
			case <-timeout.C:
				c.there.overtake()
			case <-ctx.Done():
			}
			return
		}
	}
}

// dial connects to the node as the opener of the connection.
func (c *conn) dial(ctx context.Context, rule Rule) error {
	down, err := c.reach(ctx)
	c.there.overtake()
	if err != nil {
		abort(c.up)
		return err
	}
	c.down = down
	if c.network.dice.happens(rule.Duplicate) {
		// A node that takes no second one has met it all the same.
		if twin, err := c.reach(ctx); err == nil {
			c.twin = twin
		}
	}
	return nil
}

func (c *conn) reach(ctx context.Context) (*net.TCPConn, error) {
	dialer := net.Dialer{KeepAlive: -1}
	if c.from != nil {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.from.face, 0))
	}
	at := netip.AddrPortFrom(c.to.host, c.there.service.Port())
	down, err := dialer.DialContext(ctx, "tcp4", at.String())
	if err != nil {
		return nil, fmt.Errorf("reaching %s: %w", c.to.name, err)
	}
	return down.(*net.TCPConn), nil
}

// watch ends the connection when a rule says so.
func (c *conn) watch(ctx context.Context, end context.CancelFunc) {
	for {
		rule, changed := c.there.now()
		switch {
		case rule.Reset, c.half.Load() && !rule.HalfOpen:
			end()
			return
		case rule.HalfOpen && !c.half.Swap(true):
			abort(c.up)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// piece is a part of a stream on its way.
type piece struct {
	due   time.Time
	bytes []byte
	end   error // io.EOF behind the last one, another error if the stream broke
}

// flow is one direction of a connection.
type flow struct {
	conn     *conn
	src, dst *net.TCPConn
	link     *link
	pieces   chan piece
	done     chan struct{} // closed when nothing is written any more
}

func (c *conn) flow(src, dst *net.TCPConn, l *link) *flow {
	return &flow{conn: c, src: src, dst: dst, link: l, pieces: make(chan piece, piecesMax), done: make(chan struct{})}
}

// read takes what comes until the stream ends, or nothing is written any more.
func (f *flow) read() {
	buf := make([]byte, pieceBytes)
	dice := f.conn.network.dice
	for {
		count, err := f.src.Read(buf)
		rule, _ := f.link.now()
		due := time.Now().Add(dice.latency(rule) + dice.stall(rule))
		select {
		case f.pieces <- piece{due, bytes.Clone(buf[:count]), err}:
		case <-f.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// write hands on what was read. It returns nil when the stream ended and the other side knows.
func (f *flow) write(ctx context.Context) error {
	for {
		var p piece
		select {
		case p = <-f.pieces:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := f.arrive(ctx, p.due); err != nil {
			return err
		}
		if len(p.bytes) > 0 {
			if err := f.pass(ctx, p.bytes); err != nil {
				return err
			}
		}
		switch {
		case p.end == nil:
		case f.conn.half.Load():
			<-ctx.Done() // the other side is not to know
			return errBroken
		case errors.Is(p.end, io.EOF):
			_ = f.dst.CloseWrite() // fails if that side has ended, and then it knows
			return nil
		default:
			return errBroken
		}
	}
}

// arrive waits until something that is due at a time may pass.
func (f *flow) arrive(ctx context.Context, due time.Time) error {
	for {
		rule, changed := f.link.now()
		switch {
		case f.conn.network.silent(f.link.way, rule):
			select {
			case <-changed:
			case <-ctx.Done():
			}
		case time.Now().Before(due):
			// What was held back for longer than is usual now comes as if it came now.
			if latest := time.Now().Add(rule.slowest()); latest.Before(due) {
				due = latest
			}
			f.link.until(ctx, due, changed)
		default:
			return ctx.Err()
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// pass writes bytes, as fast as the rule lets it.
func (f *flow) pass(ctx context.Context, b []byte) error {
	taps := &f.conn.network.taps
	if taps.ask(f.link.way, b, false) == Break {
		return errBroken
	}
	rule, _ := f.link.now()
	f.conn.network.dice.corrupt(rule, b)
	for rest := b; len(rest) > 0; {
		if err := f.arrive(ctx, time.Time{}); err != nil {
			return err
		}
		rule, changed := f.link.now()
		part := rest
		if rule.BytesPerSecond > 0 {
			part = rest[:min(len(rest), max(1, rule.BytesPerSecond/throttleParts))]
			f.link.until(ctx, f.link.reserve(len(part)), changed)
			if again, _ := f.link.now(); again != rule {
				continue
			}
		}
		if _, err := f.dst.Write(part); err != nil {
			// That side has ended the connection. The other one hears of it from the other direction, and
			// not before its rules let it.
			return fmt.Errorf("handing on: %w", err)
		}
		rest = rest[len(part):]
	}
	taps.ask(f.link.way, b, true)
	return nil
}
