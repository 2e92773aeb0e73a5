package codec

import (
	"encoding/binary"
	"fmt"
	"github.com/belfrydb/belfry/fsm"
	"time"
)

// LengthBytes is how many bytes a length takes as a uvarint.
func LengthBytes(n int) int {
	var b [binary.MaxVarintLen64]byte
	return binary.PutUvarint(b[:], uint64(n))
}

// SetLength sets the length of all that follows the room for it, which begins at start. What
// follows is moved where the room is not just as large as it must be.
func SetLength(dst []byte, start, room int) []byte {
	n := len(dst) - start - room
	w := LengthBytes(n)
	if w > room {
		dst = append(dst, make([]byte, w-room)...)
	}
	if w != room {
		copy(dst[start+w:], dst[start+room:start+room+n])
	}
	binary.PutUvarint(dst[start:], uint64(n))
	return dst[:start+w+n]
}

// Reader takes values off the front of b. After the first error every value is zero. Of a reader
// that newReader made, a text that equals the last one is the same string, since one queue is named
// in most commands of an entry, and others are parts of s, a copy of all that is made for the first
// of them: texts cost no allocation each.
type Reader struct {
	B, all []byte
	s      string
	last   string
	dry    bool // texts are passed over
	err    error
}

// NewReader returns a reader of b whose texts share one copy of it.
func NewReader(b []byte) Reader { return Reader{B: b, all: b} }

// PlainReader returns a reader whose texts are strings of their own.
func PlainReader(b []byte) Reader { return Reader{B: b} }

// Failed returns the first error.
func (r *Reader) Failed() error { return r.err }

// Left returns how many bytes are left.
func (r *Reader) Left() int { return len(r.B) }

func (r *Reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.B = nil
}

// failWith fails the reader if err is not nil.
func (r *Reader) failWith(err error) {
	if err != nil {
		r.fail(err)
	}
}

// Damaged fails the reader with an fsm.ErrDamaged that says what is wrong.
func (r *Reader) Damaged(what string) {
	r.fail(fmt.Errorf("%w: %s, %d bytes before the end", fsm.ErrDamaged, what, len(r.B)))
}

// NextBytes returns the next n bytes, which alias b.
func (r *Reader) NextBytes(n int) []byte {
	if n < 0 || n > len(r.B) {
		r.Damaged("value cut short")
		return nil
	}
	v := r.B[:n:n]
	r.B = r.B[n:]
	return v
}

func (r *Reader) peek(n int) []byte {
	if n > len(r.B) {
		r.Damaged("value cut short")
		return nil
	}
	return r.B[:n:n]
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if b := r.NextBytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *Reader) flag() bool {
	switch b := r.Byte(); b {
	case 0, 1:
		return b == 1
	default:
		r.Damaged("flag is neither 0 nor 1")
		return false
	}
}

// Uvarint reads an unsigned number.
func (r *Reader) Uvarint() uint64 {
	if len(r.B) > 0 && r.B[0] < 0x80 { // most are
		v := r.B[0]
		r.B = r.B[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.B)
	if n <= 0 {
		r.Damaged("number cut short or too long")
		return 0
	}
	r.B = r.B[n:]
	return v
}

// Varint reads a signed number.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.B)
	if n <= 0 {
		r.Damaged("number cut short or too long")
		return 0
	}
	r.B = r.B[n:]
	return v
}

// Uint32 reads an unsigned number of at most 32 bits.
func (r *Reader) Uint32() uint32 {
	v := r.Uvarint()
	if v > 1<<32-1 {
		r.Damaged("number above 32 bits")
		return 0
	}
	return uint32(v)
}

// Uint64 reads 8 bytes, little-endian.
func (r *Reader) Uint64() uint64 {
	if b := r.NextBytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Time reads a time, in nanoseconds since the Unix epoch; it is not negative.
func (r *Reader) Time() fsm.Time { return fsm.Time(r.duration()) }

func (r *Reader) duration() time.Duration {
	v := r.Uvarint()
	if v > 1<<63-1 {
		r.Damaged("time out of range")
		return 0
	}
	return time.Duration(v)
}

// Length reads a count of things of at least size bytes each, so that no damaged count makes the
// reader allocate.
func (r *Reader) Length(size int) int {
	v := r.Uvarint()
	if v > uint64(len(r.B)/size) {
		r.Damaged("count beyond the end")
		return 0
	}
	return int(v)
}

// Text reads a length and a string.
func (r *Reader) Text() string {
	n := r.Length(1)
	b := r.NextBytes(n)
	if len(b) == 0 || r.dry {
		return ""
	}
	if string(b) == r.last {
		return r.last
	}
	if r.all == nil || r.last == "" {
		r.last = string(b)
		return r.last
	}
	if r.s == "" {
		r.s = string(r.all)
	}
	end := len(r.s) - len(r.B)
	r.last = r.s[end-n : end]
	return r.last
}

// ownText is text for one that is unlike the others of its input.
func (r *Reader) ownText() string {
	if b := r.Bytes(); !r.dry {
		return string(b)
	}
	return ""
}

// Bytes reads a length and that many bytes, aliasing the input.
func (r *Reader) Bytes() []byte { return r.NextBytes(r.Length(1)) }

func (r *Reader) durations() []time.Duration {
	n := r.Length(1)
	if n == 0 {
		return nil
	}
	list := make([]time.Duration, n)
	for i := range list {
		list[i] = r.duration()
	}
	return list
}

func (r *Reader) headers() []fsm.Header {
	n := r.Length(2)
	if n == 0 {
		return nil
	}
	list := make([]fsm.Header, n)
	for i := range list {
		list[i] = fsm.Header{Name: r.Text(), Value: r.Text()}
	}
	return list
}

// Array16 reads 16 bytes.
func (r *Reader) Array16() (a [16]byte) {
	copy(a[:], r.NextBytes(16))
	return a
}

// texts appends a list of texts to list.
func (r *Reader) texts(list []string) []string {
	for range r.Length(1) {
		list = append(list, r.Text())
	}
	return list
}

// Serial reads the serial of a job or tombstone, or a fence. 0 marks a free slot.
func (r *Reader) Serial() uint64 {
	n := r.Uvarint()
	if n == 0 {
		r.Damaged("record without a serial")
	}
	return n
}

// version reads the version byte of a format.
func (r *Reader) version(format string, want byte) {
	if v := r.Byte(); r.err == nil && v != want {
		r.fail(fmt.Errorf("%w: %s of version %d, this program reads %d", fsm.ErrVersion, format, v, want))
	}
}

// laterTag fails the reader because of a tagged field that a later version added.
func (r *Reader) laterTag(of string, tag uint64) {
	r.fail(fmt.Errorf("%w: %s with a field of tag %d", fsm.ErrVersion, of, tag))
}

// CheckEnd returns the first error. Bytes that are left over are one.
func (r *Reader) CheckEnd() error {
	if r.err == nil && len(r.B) > 0 {
		r.Damaged("bytes after the end")
	}
	return r.err
}

// AppendText appends a length and the bytes of s.
func AppendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// Unsigned makes a negative time or duration 0, so that no caller's mistake ends as an entry that
// no replica can read.
func Unsigned[T ~int64](v T) uint64 { return uint64(max(v, 0)) }

func appendFlag(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// AppendDurations appends how many there are and each in nanoseconds.
func AppendDurations(dst []byte, list []time.Duration) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, d := range list {
		dst = binary.AppendUvarint(dst, Unsigned(d))
	}
	return dst
}

// AppendHeaders appends how many there are, and of each name and value.
func AppendHeaders(dst []byte, list []fsm.Header) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, h := range list {
		dst = AppendText(AppendText(dst, h.Name), h.Value)
	}
	return dst
}

func appendTexts(dst []byte, list []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, s := range list {
		dst = AppendText(dst, s)
	}
	return dst
}
