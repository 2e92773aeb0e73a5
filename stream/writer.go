package stream

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pendingMax is how many bytes may be pending before senders wait.
	pendingMax = 4 << 20
	// controlMax is how many more bytes may be pending in frames without a payload. A Cancel that finds
	// no room is lost, and such frames are small and about calls that are under way.
	controlMax = 1 << 20
	// keptMax is the size up to which a buffer is reused.
	keptMax = 1 << 20
)

// Limit bounds the time of a write: each Bytes of it may take Wait. If Bytes is 0, Wait is for the
// whole write.
type Limit struct {
	Bytes int
	Wait  time.Duration
}

// Writer writes the frames of many senders to a connection. Frames that arrive during a write leave
// together in the next one. NewWriter makes a Writer.
type Writer struct {
	conn  net.Conn
	limit Limit
	wake  chan struct{}
	// writing is set during a write.
	writing atomic.Bool

	mu        sync.Mutex
	pending   []byte
	taken     uint64        // bytes that Run took before pending
	control   int           // bytes in pending beyond pendingMax, of frames without a payload
	withdrawn []FrameID     // frames in pending that are not to be written
	emptied   chan struct{} // closed when Run takes pending; nil if no sender waits
	err       error
}

// FrameID names a frame that a Writer accepted.
type FrameID struct {
	at   uint64 // the position of its first byte among all accepted bytes
	size int
}

// NewWriter returns a writer; Run does the writing. A write that exceeds limit ends the writer.
func NewWriter(conn net.Conn, limit Limit) *Writer {
	return &Writer{conn: conn, limit: limit, wake: make(chan struct{}, 1)}
}

// Send queues a frame to be written, and does not wait for the write. While too many bytes are
// pending, it waits, until ctx ends. The payload may be reused when Send returns. After an error no
// part of the frame is written. The error is the one that ended the writer, or that of ctx.
func (w *Writer) Send(ctx context.Context, h Header, payload []byte) (FrameID, error) {
	for {
		frame, emptied, err := w.accept(h, payload)
		if emptied == nil {
			return frame, err
		}
		select {
		case <-emptied:
		case <-ctx.Done():
			return FrameID{}, context.Cause(ctx)
		}
	}
}

// Withdraw takes a frame back, unless its write has begun. It reports whether no part of the frame
// is or will be written.
func (w *Writer) Withdraw(t FrameID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.at < w.taken {
		return false
	}
	w.withdrawn = append(w.withdrawn, t)
	return true
}

// Offer is Send for a frame without payload that is not worth a wait.
func (w *Writer) Offer(h Header) error {
	_, emptied, err := w.accept(h, nil)
	if emptied != nil {
		return errFull
	}
	return err
}

var errFull = errors.New("too much waits to be written")

// accept adds a frame to the pending bytes. If there are too many for it, it returns a channel that
// is closed when Run takes them.
func (w *Writer) accept(h Header, payload []byte) (t FrameID, emptied <-chan struct{}, err error) {
	h.Size = uint32(len(payload)) //nolint:gosec // messages have a few megabytes at most
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return t, nil, w.err
	case len(w.pending) == 0 || len(w.pending)+len(payload) <= pendingMax:
	case len(payload) == 0 && w.control < controlMax:
		w.control += headerBytes
	default:
		if w.emptied == nil {
			w.emptied = make(chan struct{})
		}
		return t, w.emptied, nil
	}
	t = FrameID{w.taken + uint64(len(w.pending)), headerBytes + len(payload)}
	w.pending = append(h.append(w.pending), payload...)
	w.signal()
	return t, nil, nil
}

// Writing reports whether a write is in progress. The peer decides how long that takes.
func (w *Writer) Writing() bool { return w.writing.Load() }

// Run writes until the writer is closed or a write fails. It returns the error that senders get
// from then on.
func (w *Writer) Run() error {
	var spare []byte
	for range w.wake {
		batch, end := w.take(spare[:0])
		if err := w.write(batch); err != nil {
			w.Close(err)
			return err
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

// take returns the pending bytes, without the frames that were withdrawn, and the error that ended
// the writer. next becomes the memory of the pending bytes.
func (w *Writer) take(next []byte) (batch []byte, end error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.taken
	w.taken += uint64(len(w.pending))
	batch, w.pending, w.control = w.pending, next, 0
	if len(w.withdrawn) > 0 {
		batch, w.withdrawn = without(batch, first, w.withdrawn), nil
	}
	w.empty()
	return batch, w.err
}

// without removes frames from a batch that begins at the position first.
func without(batch []byte, first uint64, frames []FrameID) []byte {
	slices.SortFunc(frames, func(a, b FrameID) int { return cmp.Compare(a.at, b.at) })
	kept, from := batch[:0], 0
	for _, t := range frames {
		at := int(t.at - first) //nolint:gosec // within the batch
		kept, from = append(kept, batch[from:at]...), at+t.size
	}
	return append(kept, batch[from:]...)
}

// write writes a batch within the limit.
func (w *Writer) write(batch []byte) error {
	w.writing.Store(true)
	defer w.writing.Store(false)
	for len(batch) > 0 {
		piece := batch
		if w.limit.Bytes > 0 {
			piece = batch[:min(len(batch), w.limit.Bytes)]
		}
		if err := w.conn.SetWriteDeadline(time.Now().Add(w.limit.Wait)); err != nil {
			return err
		}
		if _, err := w.conn.Write(piece); err != nil {
			return err
		}
		batch = batch[len(piece):]
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
