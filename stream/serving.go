package stream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// linger is how long a stream that said Bye waits for the caller to close.
const linger = time.Second

// serving is the serving side of one stream.
type serving struct {
	server *Server
	config *ServerConfig
	host   Host
	conn   net.Conn
	in     *bufio.Reader
	out    *Writer
	ctx    context.Context //nolint:containedctx // of the stream, which is longer than any function
	cancel context.CancelFunc

	unwritten atomic.Int64 // bytes of answers that wait until they are pending

	mu      sync.Mutex
	calls   map[uint32]*Task // the calls without an answer
	working int              // calls whose goroutines have not ended
	leaving bool
	over    bool // it ended by a drain, and every call that was read has its answer

	work      chan func() // takes a call while a goroutine has none
	answering sync.WaitGroup
}

var errEnded = errors.New("the stream is over")

// run answers the upgrade of a connection and serves the stream.
func (x *serving) run(ctx context.Context, conn net.Conn, header http.Header) {
	x.conn, x.out, x.work = conn, NewWriter(conn, x.config.Write), make(chan func())
	x.ctx, x.cancel = context.WithCancel(ctx)
	x.server.connected(x, conn)
	defer x.cancel()
	defer x.conn.Close() //nolint:errcheck // the error does not matter
	if err := acceptUpgrade(conn, x.config, header); err != nil {
		return
	}
	var writing sync.WaitGroup
	writing.Go(func() {
		if err := x.out.Run(); !errors.Is(err, errEnded) {
			x.cancel()
			_ = x.conn.Close() // ends the reader
		}
	})
	writing.Go(func() {
		select {
		case <-x.config.Leaving:
			x.announceStop()
		case <-x.ctx.Done():
		}
	})
	// The error needs no handling: the caller left, or broke the protocol.
	_ = x.read() //nolint:contextcheck // calls have the stream's
	x.cancel()
	close(x.work) // the reader alone sends
	x.answering.Wait()
	left := x.left()
	if left {
		_ = x.out.Offer(Header{Kind: Bye}) // without it, the caller takes its open calls for unknown
	}
	x.out.Close(errEnded)
	writing.Wait()
	if left && x.conn.SetReadDeadline(time.Now().Add(linger)) == nil {
		// If this side closed first, unread calls could reset the connection before Bye arrives.
		_, _ = io.Copy(io.Discard, x.conn)
	}
}

// left reports whether the stream ended by a drain, so that every call that was read has its
// answer.
func (x *serving) left() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.over
}

// read reads frames until the connection ends, or until the caller breaks the protocol.
func (x *serving) read() error {
	var extended time.Time
	for {
		if now := time.Now(); now.Sub(extended) > time.Second {
			if err := x.extend(x.config.Silence); err != nil {
				return err
			}
			extended = now
		}
		h, err := ReadHeader(x.in)
		if err != nil {
			return err
		}
		if h.Kind == Call {
			if uint64(x.in.Buffered()) < uint64(h.Size) {
				if err := x.extend(x.config.RequestWait); err != nil {
					return err
				}
				extended = time.Time{}
			}
			err = x.readCall(h)
		} else {
			err = x.control(h)
		}
		if err != nil {
			return err
		}
	}
}

// control handles a frame that is no call.
func (x *serving) control(h Header) error {
	switch {
	case h.Kind == Cancel:
		x.cancelCall(h.ID)
	case h.Kind == Stop && x.config.Stops:
		x.stopCall(h.ID)
	case h.Kind == Ping:
		if err := x.host.Allowed(x.ctx); err != nil {
			return err // callers send a Ping every few seconds
		}
		if _, err := x.out.Send(x.ctx, Header{Kind: Pong}, nil); err != nil {
			return err
		}
	case h.Kind == Pong:
	default:
		return fmt.Errorf("a caller sent a frame of kind %d", h.Kind)
	}
	if h.Size > 0 {
		return fmt.Errorf("a caller sent a frame of kind %d with %d bytes", h.Kind, h.Size)
	}
	return nil
}

// extend sets how long the reader waits. It fails if the stream has ended: the end of a stream sets
// the deadline too, and may have done so before.
func (x *serving) extend(wait time.Duration) error {
	if err := x.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	return x.ctx.Err()
}

// announceStop tells the caller that the server stops, and ends the stream when the calls under way
// have their answers.
func (x *serving) announceStop() {
	if _, err := x.out.Send(x.ctx, Header{Kind: Leave}, nil); err != nil {
		return // it has ended
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.leaving = true
	for _, t := range x.calls {
		t.stopWaiting()
	}
	x.stopReadingIfIdle()
}

// stopReadingIfIdle ends the reader of a stream that drains once no call is under way. Answers that
// are queued are still written. x.mu is held.
func (x *serving) stopReadingIfIdle() {
	if !x.leaving || x.working > 0 || x.ctx.Err() != nil {
		return
	}
	x.over = true
	x.cancel()
	_ = x.conn.SetReadDeadline(time.Unix(1, 0)) // a connection that takes none has ended
}
