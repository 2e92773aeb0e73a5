package frame

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pendingMax is how many bytes may be pending before senders wait.
	pendingMax = 4 << 20
	// keptMax is the size up to which a buffer is reused.
	keptMax = 1 << 20
)

// Writer writes the frames of many senders to a connection. Frames that arrive during a write leave
// together in the next one. NewWriter makes a Writer.
type Writer struct {
	conn  net.Conn
	limit time.Duration
	wake  chan struct{}
	// writing is set during a write.
	writing atomic.Bool

	mu      sync.Mutex
	pending []byte
	emptied chan struct{} // closed when Run takes pending; nil if no sender waits
	err     error
}

// NewWriter returns a writer; Run does the writing. A write that takes longer than limit ends the
// writer.
func NewWriter(conn net.Conn, limit time.Duration) *Writer {
	return &Writer{conn: conn, limit: limit, wake: make(chan struct{}, 1)}
}

// Send queues a frame to be written, and does not wait for the write. While too many bytes are
// pending, it waits, until ctx ends. The payload may be reused when Send returns. After an error no
// part of the frame is written. The error is the one that ended the writer, or that of ctx.
func (w *Writer) Send(ctx context.Context, h Header, payload []byte) error {
	for {
		emptied, err := w.accept(h, payload)
		if emptied == nil {
			return err
		}
		select {
		case <-emptied:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Offer is Send for a frame without payload that is not worth a wait.
func (w *Writer) Offer(h Header) error {
	emptied, err := w.accept(h, nil)
	if emptied != nil {
		return errFull
	}
	return err
}

var errFull = errors.New("too much waits to be written")

// accept adds a frame to the pending bytes. If there are too many, it returns a channel that is
// closed when Run takes them.
func (w *Writer) accept(h Header, payload []byte) (emptied <-chan struct{}, err error) {
	h.Size = uint32(len(payload)) //nolint:gosec // messages have a few megabytes at most
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return nil, w.err
	case len(w.pending) == 0 || len(w.pending)+len(payload) <= pendingMax:
		w.pending = append(h.append(w.pending), payload...)
		w.signal()
		return nil, nil
	case w.emptied == nil:
		w.emptied = make(chan struct{})
	}
	return w.emptied, nil
}

// Writing reports whether a write is in progress. The peer decides how long that takes.
func (w *Writer) Writing() bool { return w.writing.Load() }

// Run writes until the writer is closed or a write fails. It returns the error that senders get
// from then on.
func (w *Writer) Run() error {
	var spare []byte
	for range w.wake {
		w.mu.Lock()
		batch, end := w.pending, w.err
		w.pending = spare[:0]
		w.empty()
		w.mu.Unlock()
		if len(batch) > 0 {
			err := w.conn.SetWriteDeadline(time.Now().Add(w.limit))
			if err == nil {
				w.writing.Store(true)
				_, err = w.conn.Write(batch)
				w.writing.Store(false)
			}
			if err != nil {
				w.Close(err)
				return err
			}
		}
		if end != nil {
			return end
		}
		if spare = batch; cap(spare) > keptMax {
			spare = nil
		}
	}
	return nil
}

// Close ends the writer: senders get err. Run returns when the pending bytes are written.
func (w *Writer) Close(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
		w.empty()
		w.signal()
	}
}

// signal wakes Run.
func (w *Writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it will run anyway
	}
}

// empty wakes the senders that wait. w.mu is held.
func (w *Writer) empty() {
	if w.emptied != nil {
		close(w.emptied)
		w.emptied = nil
	}
}
