package node

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
// Numbers are big-endian. Both sums go on from the last one of the frame before, from 0 in the first, so that a frame which is left out, doubled or
// out of its place fits no more than one that was changed. The length has a sum of its own because a reader would else wait, for as long as
// the peer is silent, for bytes that a changed length promises. A frame is no message: what is written at once may be several frames, and is read in pieces.
const (
	frameHead     = 12
	frameBytesMax = 64 << 10
	// frameRoomMin is the room for frames that a connection begins with: most messages are small.
	frameRoomMin = 4 << 10
)

// changedError is something that came otherwise than it was sent.
type changedError struct {
	what      string
	frame     uint64 // in which it was, counted from 1; 0 in a greeting
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

// compareSums returns the error of a sum that does not fit.
func compareSums(what string, frame uint64, got, want uint32) error {
	if got == want {
		return nil
	}
	return &changedError{what: what, frame: frame, got: fmt.Sprintf("%08x", got), want: fmt.Sprintf("%08x", want)}
}

// errFrameCut is what writing gives after a frame of which only a part was sent.
var errFrameCut = errors.New("an earlier frame was cut off in the middle")

// frameSum goes on from a sum.
func frameSum(sum uint32, b []byte) uint32 {
	return crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), b) // the table is made once, by the library
}

// frameWriter sends what is written to it in frames, each with one write. It may be used by several goroutines.
type frameWriter struct {
	to io.Writer

	mu   sync.Mutex
	sum  uint32
	room []byte // used again by each frame
	cut  bool
}

// Write sends p. The bytes that it counts are in frames that were sent as a whole. After an error that came in the middle of a frame it sends nothing more.
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

// frameReader reads frames, and hands on what is in those that fit. It may be used by several goroutines.
type frameReader struct {
	from io.Reader

	mu     sync.Mutex
	sum    uint32
	room   []byte
	begin  int // room[begin:end] was read and not handed on
	end    int
	fits   int    // so many of these bytes are the rest of a frame that fits
	frames uint64 // that were read
	failed error  // why nothing more is read
}

// Read hands on the rest of a frame, after it has read the frame to its end. When the stream ends inside a frame it returns io.ErrUnexpectedEOF, and
// of one that does not fit a *changedError, then and ever after. After a deadline it goes on where it was.
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

// rest returns what is left of the frame that was read last.
func (r *frameReader) rest() []byte {
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

// next reads a frame.
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
	if r.failed = compareSums("the sum of the length", r.frames+1, binary.BigEndian.Uint32(head[4:]), sum); r.failed != nil {
		return r.failed
	}
	if length == 0 || length > frameBytesMax {
		r.failed = &changedError{what: "the length", frame: r.frames + 1, got: fmt.Sprint(length), want: fmt.Sprint("1 to ", frameBytesMax)}
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

// fill reads on until n bytes are there.
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

// framedConn is a connection whose greetings are over. What it carries is in frames; one that does not fit ends it.
type framedConn struct {
	*trackedConn
	in  frameReader
	out frameWriter
	// ended is done when the end for a frame that did not fit was noted.
	ended sync.Once
}

// newFramedConn returns conn for what follows the greetings.
func newFramedConn(conn *trackedConn) *framedConn {
	return &framedConn{trackedConn: conn, in: frameReader{from: conn}, out: frameWriter{to: conn}}
}

// Read reads what the peer wrote, and nothing else.
func (c *framedConn) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	if changed(err) {
		c.ended.Do(func() {
			c.mux.noteChanged(c.trackedConn, err)
			_ = c.Close() // whatever follows cannot be told from damage
		})
		return 0, fmt.Errorf("from server %q: %w", c.peer, err)
	}
	return n, err
}

// Write sends p in frames.
func (c *framedConn) Write(p []byte) (int, error) { return c.out.Write(p) }
