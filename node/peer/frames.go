package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"
)

// After the greetings a connection carries frames, in each direction:
//
//	4 bytes  length of the content, 1 to frameBytesMax
//	4 bytes  CRC-32C of the length
//	4 bytes  CRC-32C of the length and the content
//	then the content
//
// Numbers are big-endian. Both sums continue from the last sum of the previous frame, from 0 in the
// first frame. So the check finds a frame that is missing, repeated or out of order, as it finds
// one that was changed. The length has a sum of its own: with a changed length, a reader would wait
// for bytes that do not come, as long as the peer is silent. A frame is not a message: one write
// may become several frames, and a reader gets a frame in pieces.
const (
	frameHead     = 12
	frameBytesMax = 64 << 10
	// frameRoomMin is the initial size of the buffer for frames: most messages are small.
	frameRoomMin = 4 << 10
)

// changedError is the error for data that was changed in transit.
type changedError struct {
	what      string
	frame     uint64 // number of the frame, counted from 1; 0 in a greeting
	got, want string
}

func (e *changedError) Error() string {
	where := ""
	if e.frame > 0 {
		where = fmt.Sprintf(" of frame %d", e.frame)
	}
	return fmt.Sprintf("bytes were changed on the way: %s%s is %s, should be %s", e.what, where, e.got, e.want)
}

// changed reports whether err is, or wraps, a changedError.
func changed(err error) bool {
	_, ok := errors.AsType[*changedError](err)
	return ok
}

// compareSums returns a *changedError if two sums differ.
func compareSums(what string, frame uint64, got, want uint32) error {
	if got == want {
		return nil
	}
	return &changedError{what: what, frame: frame, got: fmt.Sprintf("%08x", got), want: fmt.Sprintf("%08x", want)}
}

// errFrameCut is the error of every write after a frame that was sent only in part.
var errFrameCut = errors.New("an earlier frame was cut off in the middle")

// frameSum continues a CRC-32C with b.
func frameSum(sum uint32, b []byte) uint32 {
	return crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), b) // the table is made once, by the library
}

// frameWriter sends data in frames, each with one write. It may be used by several goroutines.
type frameWriter struct {
	to io.Writer

	mu   sync.Mutex
	sum  uint32
	room []byte // reused by each frame
	cut  bool
}

// Write sends p. It counts only the bytes of frames that were sent whole. After an error in the
// middle of a frame it sends no more.
func (w *frameWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var sent int
	for sent < len(p) {
		piece := p[sent:min(len(p), sent+frameBytesMax)]
		if err := w.frame(piece); err != nil {
			return sent, err
		}
		sent += len(piece)
	}
	return sent, nil
}

// frame sends one frame.
func (w *frameWriter) frame(content []byte) error {
	if w.cut {
		return errFrameCut
	}
	b := binary.BigEndian.AppendUint32(w.room[:0], uint32(len(content)))
	head := frameSum(w.sum, b)
	sum := frameSum(head, content)
	b = binary.BigEndian.AppendUint32(b, head)
	b = binary.BigEndian.AppendUint32(b, sum)
	b = append(b, content...)
	w.room = b
	n, err := w.to.Write(b)
	if err != nil {
		w.cut = n > 0
		return err
	}
	w.sum = sum
	return nil
}

// frameReader reads frames and returns the content of those that pass the check. It may be used by
// several goroutines.
type frameReader struct {
	from io.Reader

	mu     sync.Mutex
	sum    uint32
	room   []byte
	begin  int // room[begin:end] was read but not returned
	end    int
	fits   int    // number of these bytes that are the rest of a checked frame
	frames uint64 // number of frames read
	failed error  // why reading has stopped
}

// Read returns the rest of a frame, after it has read and checked the whole frame. If the stream
// ends inside a frame, it returns io.ErrUnexpectedEOF. If a frame fails the check, it returns a
// *changedError, then and on every later call. After a deadline it can continue where it was.
func (r *frameReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	if r.fits == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.room[r.begin:r.begin+r.fits])
	r.begin += n
	r.fits -= n
	return n, nil
}

// rest takes the unread part of the frame that was read last.
func (r *frameReader) unread() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := slices.Clone(r.room[r.begin : r.begin+r.fits])
	r.begin += r.fits
	r.fits = 0
	return rest
}

// await waits until a frame has begun, or the stream ends.
func (r *frameReader) await() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fill(1)
}

// next reads and checks a frame.
func (r *frameReader) next() error {
	if r.failed != nil {
		return r.failed
	}
	if err := r.fill(frameHead); err != nil {
		return err
	}
	head := r.room[r.begin : r.begin+frameHead]
	length := binary.BigEndian.Uint32(head)
	sum := frameSum(r.sum, head[:4])
	if r.failed = compareSums("the sum of the length", r.frames+1, binary.BigEndian.Uint32(head[4:]),
		sum); r.failed != nil {
		return r.failed
	}
	if length == 0 || length > frameBytesMax {
		r.failed = &changedError{what: "the length", frame: r.frames + 1, got: fmt.Sprint(length),
			want: fmt.Sprint("1 to ", frameBytesMax)}
		return r.failed
	}
	if err := r.fill(frameHead + int(length)); err != nil {
		return err
	}
	head = r.room[r.begin : r.begin+frameHead] // may have been moved
	content := r.room[r.begin+frameHead : r.begin+frameHead+int(length)]
	sum = frameSum(sum, content)
	if r.failed = compareSums("the sum", r.frames+1, binary.BigEndian.Uint32(head[8:]), sum); r.failed != nil {
		return r.failed
	}
	r.begin += frameHead
	r.fits, r.sum = int(length), sum
	r.frames++
	return nil
}

// fill reads until the buffer has n bytes.
func (r *frameReader) fill(n int) error {
	if r.begin == r.end {
		r.begin, r.end = 0, 0
	}
	if r.begin+n > len(r.room) {
		room := r.room
		if n > len(room) {
			room = make([]byte, min(max(n, frameRoomMin, 2*len(room)), frameHead+frameBytesMax))
		}
		r.end = copy(room, r.room[r.begin:r.end])
		r.begin, r.room = 0, room
	}
	for r.end-r.begin < n {
		k, err := r.from.Read(r.room[r.end:])
		r.end += k
		if err != nil && r.end-r.begin < n {
			if errors.Is(err, io.EOF) && r.end > r.begin {
				return fmt.Errorf("in the middle of a frame: %w", io.ErrUnexpectedEOF)
			}
			return err
		}
	}
	return nil
}

// framedConn is a connection after its greetings. It carries frames; one that fails the check ends
// it.
type framedConn struct {
	*trackedConn
	in  frameReader
	out frameWriter
	// ended makes sure that the first frame that fails the check is counted, and no later one.
	ended sync.Once
}

// newFramedConn returns conn for the traffic after the greetings.
func newFramedConn(conn *trackedConn) *framedConn {
	return &framedConn{trackedConn: conn, in: frameReader{from: conn}, out: frameWriter{to: conn}}
}

// Read returns what the peer wrote, and never changed data.
func (c *framedConn) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	if changed(err) {
		c.ended.Do(func() {
			c.mux.noteChanged(c.trackedConn, err)
			_ = c.Close() // later bytes cannot be told from damage
		})
		return 0, fmt.Errorf("from server %q: %w", c.peer, err)
	}
	return n, err
}

// Write sends p in frames.
func (c *framedConn) Write(p []byte) (int, error) { return c.out.Write(p) }
