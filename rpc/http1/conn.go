package http1

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// slowAfter is how long a request may take to arrive. After that net/http waits for the rest, with
	// its own deadlines.
	slowAfter = time.Second
	// watchAfter is the duration of a call from which the server looks for the client to leave. Most
	// calls are over before.
	watchAfter = 100 * time.Millisecond
	// deadlineParts is the part of a deadline by which it may be too early or too late: deadlines are
	// renewed only when they are off by more.
	deadlineParts = 32
)

// Conn is a connection, and the request on it that is carried out. Handlers use its methods during
// their call only.
type Conn struct {
	// Local is the handler's own.
	Local any

	server   *Server
	listener *listener
	conn     net.Conn
	raw      syscall.RawConn // nil if conn must be read with its Read
	try      func(fd uintptr) bool
	ctx      context.Context //nolint:containedctx // of the connection: it ends with it
	cancel   context.CancelFunc

	// in has the bytes that have arrived, of which those before pos are done. It is nil while there are
	// none. readErr is the error after them.
	in      *[]byte
	pos     int
	readErr error
	head    head
	// consumed is set once the request has left in. parked is set once the handler cannot return it.
	consumed, parked bool
	// held counts the bytes of in that are reported to Config.Hold.
	held int64
	// out has answers that are not written yet; nil if there are none.
	out *[]byte
	// served is set once a request was answered; closing once its answer said that it is the last.
	served, closing bool
	// readUntil and writeUntil are the deadlines that are set; arriving is that of a request of which
	// a part has arrived.
	readUntil, writeUntil, arriving time.Time
	// moved is set if the read deadline is not readUntil any more.
	moved bool
	timer *time.Timer // starts watch

	mu sync.Mutex
	// calling: a request is carried out. stopping: the server stops. awaited: Stop waits for this
	// connection to leave or to begin a call.
	calling, stopping, awaited bool
	// watching is closed when watch ends; nil if it did not begin.
	watching chan struct{}
	// pipelined: there are unread bytes, so the client cannot be watched.
	pipelined bool

	// ahead is a byte that was read during a call, if isAhead.
	ahead   [1]byte
	isAhead bool
}

// Context ends when the client leaves or the server is closed.
func (c *Conn) Context() context.Context { return c.ctx }

// NetConn returns the connection that Accept returned.
func (c *Conn) NetConn() net.Conn { return c.conn }

// Path returns the index of the request's path in Config.Paths.
func (c *Conn) Path() int { return c.head.path }

// Host returns the Host of the request. It is valid until Park, or until the handler returns.
func (c *Conn) Host() []byte { return c.head.host }

// Value returns the value of a header by its index in Config.Headers, nil if it is absent. It is
// valid as long as Host.
func (c *Conn) Value(i int) []byte { return c.head.values[i] }

// BodyBytes returns the length of the body, of which perhaps not all has arrived.
func (c *Conn) BodyBytes() int { return c.head.length }

// Body returns the body of the request. It is valid as long as Host.
func (c *Conn) Body() []byte {
	start := c.pos + c.head.size
	return (*c.in)[start : start+c.head.length]
}

// Out returns the buffer to which the handler appends its answer.
func (c *Conn) Out() *[]byte {
	if c.out == nil {
		c.out = c.server.answers.get()
	}
	return c.out
}

// Closes reports whether the answer must say that the connection is closed after it: the server
// stops.
func (c *Conn) Closes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = c.stopping
	return c.closing
}

// Park prepares for a long wait: it writes the answers before this one, and frees the memory of the
// request. After it the handler must return true.
func (c *Conn) Park() {
	c.parked = true
	c.consume()
	if c.flush() != nil {
		c.cancel()
	}
}

// consume removes the request from the bytes that have arrived.
func (c *Conn) consume() {
	if c.consumed {
		return
	}
	c.consumed = true
	c.pos += c.head.size + c.head.length
	c.head = head{}
	if c.pos == len(*c.in) {
		*c.in = (*c.in)[:0]
		c.dropEmptyBuffer()
	}
}

// needBuffer makes sure that in has room for bytes.
func (c *Conn) needBuffer() {
	if c.in == nil {
		c.in, c.pos = c.server.requests.get(), 0
	}
}

// dropEmptyBuffer frees in if it has no bytes.
func (c *Conn) dropEmptyBuffer() {
	if c.in != nil && len(*c.in) == 0 {
		c.server.requests.put(c.in)
		c.in, c.pos = nil, 0
		c.hold(0)
	}
}

// hold reports how many bytes in holds beyond a small buffer. It returns false if the server holds
// too many.
func (c *Conn) hold(bytes int64) bool {
	if bytes == c.held {
		return true
	}
	if bytes < c.held {
		c.server.cfg.Release(c.held - bytes)
		c.held = bytes
		return true
	}
	ok := c.server.cfg.Hold(bytes - c.held)
	if ok {
		c.held = bytes
	}
	return ok
}

// serve carries out requests until the connection ends or net/http gets it.
func (c *Conn) serve() {
	defer c.leave()
	for {
		switch c.arrive() {
		case ended:
			_ = c.flush()
			_ = c.conn.Close()
			return
		case handedOver:
			c.handOver()
			return
		case arrived:
		}
		if !c.call() {
			c.handOver()
			return
		}
		if c.closing {
			_ = c.flush()
			_ = c.conn.Close()
			return
		}
		if c.out != nil && len(*c.out) >= outBytesMax && c.flush() != nil {
			_ = c.conn.Close()
			return
		}
	}
}

// outBytesMax is the size from which answers to pipelined requests are written before the next
// request is carried out.
const outBytesMax = 32 << 10

// arrival is the result of arrive.
type arrival int

const (
	arrived    arrival = iota // a request that the handler admitted
	handedOver                // net/http must decide about what has arrived
	ended                     // the connection
)

// arrive waits for a whole request.
func (c *Conn) arrive() arrival {
	c.arriving, c.consumed, c.parked = time.Time{}, false, false
	for admitted := false; ; {
		c.takeAhead()
		if c.in != nil {
			switch c.server.grammar.parse((*c.in)[c.pos:], &c.head) {
			case foreign:
				return handedOver
			case whole:
				if !admitted && !c.server.cfg.Handler.Admit(c) {
					return handedOver
				}
				admitted = true
				if len(*c.in)-c.pos >= c.head.size+c.head.length {
					return arrived
				}
			case incomplete:
			}
		}
		if result := c.read(); result != arrived {
			return result
		}
	}
}

// takeAhead adds the byte that was read during a call.
func (c *Conn) takeAhead() {
	if c.isAhead {
		c.needBuffer()
		*c.in, c.isAhead = append(*c.in, c.ahead[0]), false
	}
}

// read waits for bytes. It returns arrived if there are some.
func (c *Conn) read() arrival {
	if c.flush() != nil {
		return ended
	}
	partial := c.in != nil
	now := time.Now()
	switch {
	case !partial:
		c.server.cfg.Handler.Idle(c)
		c.waitUntil(now, c.server.cfg.IdleWait)
	case c.arriving.IsZero():
		c.arriving, c.moved = now.Add(slowAfter), true
		c.setReadDeadline(c.arriving)
	case !now.Before(c.arriving):
		return handedOver
	}
	if partial && !c.makeRoom() {
		return handedOver
	}
	if c.readErr == nil && !c.isStopping() {
		c.readBytes()
	}
	switch {
	case c.isAhead, c.in != nil && c.readErr == nil && !c.isStopping():
		return arrived
	case c.in != nil:
		return handedOver // it finds the error, or the end, again
	case c.readErr == nil || errors.Is(c.readErr, os.ErrDeadlineExceeded):
		if c.isStopping() && !c.served {
			return handedOver
		}
	}
	return ended
}

// readBytes reads once.
func (c *Conn) readBytes() {
	if c.raw != nil {
		if err := c.raw.Read(c.try); err != nil {
			c.readErr = err
		}
		return
	}
	if c.in == nil { // waits without a buffer
		n, err := c.conn.Read(c.ahead[:])
		c.isAhead, c.readErr = n == 1, err
		return
	}
	n, err := c.conn.Read((*c.in)[len(*c.in):cap(*c.in)])
	*c.in, c.readErr = (*c.in)[:len(*c.in)+n], err
}

// makeRoom makes room in a buffer that holds a part of a request. It never holds more than twice of
// what has arrived, besides a small buffer.
func (c *Conn) makeRoom() bool {
	in := *c.in
	if c.pos > 0 {
		in = in[:copy(in, in[c.pos:])]
		c.pos = 0
	}
	if len(in) == cap(in) {
		size := 2 * cap(in)
		if !c.hold(int64(size)) {
			return false
		}
		in = append(make([]byte, 0, size), in...)
	}
	*c.in = in
	return true
}

// waitUntil sets the deadline of a wait for a request.
func (c *Conn) waitUntil(now time.Time, wait time.Duration) {
	if !c.served {
		if c.readUntil.IsZero() {
			c.readUntil = now.Add(c.server.cfg.HeadWait)
			c.setReadDeadline(c.readUntil)
		}
		return
	}
	if c.moved || c.readUntil.Sub(now) < wait-wait/deadlineParts {
		c.readUntil, c.moved = now.Add(wait), false
		c.setReadDeadline(c.readUntil)
	}
}

// setReadDeadline sets a deadline unless the server stops: then the deadline has passed already.
func (c *Conn) setReadDeadline(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopping {
		_ = c.conn.SetReadDeadline(at) // a connection without deadlines, as in a test, is bounded by its owner
	}
}

// isStopping reports whether the server stops.
func (c *Conn) isStopping() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopping
}

// flush writes the answers that are not written yet.
func (c *Conn) flush() error {
	if c.out == nil {
		return nil
	}
	if now, wait := time.Now(), c.server.cfg.ResponseWait; c.writeUntil.Sub(now) < wait {
		c.writeUntil = now.Add(wait + wait/deadlineParts)
		_ = c.conn.SetWriteDeadline(c.writeUntil) // as for reads
	}
	_, err := c.conn.Write(*c.out)
	c.server.answers.put(c.out)
	c.out = nil
	return err
}

// call carries out the request. It returns false if the handler leaves it to net/http.
func (c *Conn) call() bool {
	c.beginCall()
	defer c.endCall()
	if !c.server.cfg.Handler.Serve(c) && !c.parked {
		return false
	}
	c.consume()
	c.served = true
	return true
}

// beginCall notes that a call begins, and watches the client after some time.
func (c *Conn) beginCall() {
	c.mu.Lock()
	c.calling = true
	c.pipelined = len(*c.in) > c.pos+c.head.size+c.head.length
	c.decided()
	c.mu.Unlock()
	if c.timer == nil {
		c.timer = time.AfterFunc(watchAfter, c.watch)
	} else {
		c.timer.Reset(watchAfter)
	}
}

// endCall notes that a call has ended. It ends watch.
func (c *Conn) endCall() {
	c.timer.Stop()
	c.mu.Lock()
	c.calling = false
	watching := c.watching
	c.watching = nil
	if watching != nil {
		_ = c.conn.SetReadDeadline(time.Unix(1, 0))
	}
	c.mu.Unlock()
	if watching != nil {
		<-watching
		c.moved = true
	}
}

// watch ends the context of a call if the client leaves. The first byte of another request ends it.
func (c *Conn) watch() {
	c.mu.Lock()
	if !c.calling || c.pipelined || c.watching != nil || c.readErr != nil {
		c.mu.Unlock()
		return
	}
	watching := make(chan struct{})
	c.watching = watching
	_ = c.conn.SetReadDeadline(time.Time{}) // polls may wait for longer than an idle connection
	c.mu.Unlock()
	defer close(watching)
	n, err := c.conn.Read(c.ahead[:])
	if c.isAhead = n == 1; !c.isAhead && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.readErr = err
		c.cancel()
	}
}

// decided lets Stop go on if it waits for this connection. c.mu is held.
func (c *Conn) decided() {
	if c.awaited {
		c.awaited = false
		c.server.undecided.Done()
	}
}
