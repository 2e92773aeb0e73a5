package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/belfrydb/belfry/fsm"
)

// recordBytesMax bounds a record of a snapshot, so that a damaged length does not make Restore
// allocate without bound.
const recordBytesMax = 256 << 20

// Reader reads the records of a snapshot stream and computes the checksum. Its errors wrap
// fsm.ErrDamaged, fsm.ErrVersion, or those of the stream.
type Reader struct {
	r   *bufio.Reader
	sum uint32
	n   int64
	buf []byte

	format fsm.Format
}

// NewReader reads the start of a stream.
func NewReader(r io.Reader) (*Reader, error) {
	in := &Reader{r: bufio.NewReaderSize(r, 256<<10)}
	var err error
	if in.format, err = in.magic(); err != nil {
		return nil, err
	}
	return in, nil
}

// Format is the format of the stream.
func (in *Reader) Format() fsm.Format { return in.format }

// Bytes is how many bytes were read.
func (in *Reader) Bytes() int64 { return in.n }

// ReadByte makes the reader an io.ByteReader, for varints.
func (in *Reader) ReadByte() (byte, error) {
	c, err := in.r.ReadByte()
	if err == nil {
		in.sum = crc32.Update(in.sum, castagnoli, []byte{c})
		in.n++
	}
	return c, err
}

func (in *Reader) full(b []byte) error {
	n, err := io.ReadFull(in.r, b)
	in.sum = crc32.Update(in.sum, castagnoli, b[:n])
	in.n += int64(n)
	return cut(err)
}

// cut returns ErrDamaged for the end of the stream within a value.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: cut short", fsm.ErrDamaged)
	}
	return err
}

// magic reads the start of a snapshot and returns its format.
func (in *Reader) magic() (fsm.Format, error) {
	var b [len(Magic) + 1]byte
	if err := in.full(b[:]); err != nil {
		return 0, err
	}
	if string(b[:len(Magic)]) != Magic {
		return 0, fmt.Errorf("%w: not a snapshot: it begins with %q", fsm.ErrDamaged, b[:])
	}
	format := fsm.Format(b[len(Magic)])
	if err := format.Readable(); err != nil {
		return 0, fmt.Errorf("snapshot: %w", err)
	}
	return format, nil
}

// Next returns the next record; its bytes are valid until the next call.
func (in *Reader) Next() (Kind, []byte, error) {
	kind, err := in.ReadByte()
	if err != nil {
		return 0, nil, cut(err)
	}
	n, err := binary.ReadUvarint(in)
	if err != nil {
		return 0, nil, cut(err)
	}
	if n > recordBytesMax {
		return 0, nil, fmt.Errorf("%w: record of %d bytes", fsm.ErrDamaged, n)
	}
	for have := 0; uint64(have) < n; { // grows with what is there, not with what the length claims
		step := min(int(n)-have, max(1<<20, have))
		if cap(in.buf) < have+step {
			in.buf = append(make([]byte, 0, have+step), in.buf[:have]...)
		}
		in.buf = in.buf[:have+step]
		if err := in.full(in.buf[have:]); err != nil {
			return 0, nil, err
		}
		have += step
	}
	return Kind(kind), in.buf[:n], nil
}

// CheckEnd reads the checksum and makes sure that nothing follows.
func (in *Reader) CheckEnd() error {
	sum := in.sum
	var b [4]byte
	if err := in.full(b[:]); err != nil {
		return err
	}
	if got := binary.LittleEndian.Uint32(b[:]); got != sum {
		return fmt.Errorf("%w: checksum is %08x, should be %08x", fsm.ErrDamaged, sum, got)
	}
	if _, err := in.r.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: bytes after the end", fsm.ErrDamaged)
	}
	return nil
}
