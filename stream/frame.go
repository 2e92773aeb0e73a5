package stream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Kind is the kind of a frame. Numbers are never reused.
type Kind uint8

// These are the kinds of frames.
const (
	// Call is from the caller: the payload is a request. Number is how long the caller waits for the
	// answer, in milliseconds, 0 for no limit.
	Call Kind = iota + 1
	// Cancel is from the caller: it no longer waits for the answer.
	Cancel
	// Answer is from the serving side: the payload is the response. Number is its wall clock, in
	// Unix milliseconds.
	Answer
	// Failure is from the serving side: the payload says why the call failed. Number is as in Answer.
	Failure
	// Leave is from the serving side, which stops: it refuses the calls that it reads from now on,
	// and answers those in flight.
	Leave
	// Bye is the last frame of the serving side: it answered every call that it read.
	Bye
	// Ping is from either side; Pong is the answer.
	Ping
	Pong
	// Stop is from the caller: the call should wait no longer, and be answered. Sessions have no Stop.
	Stop
)

// PieceBytes is how many bytes of a payload are allocated before any have arrived: a header costs
// its sender nearly no effort.
const PieceBytes = 256 << 10

// Piece returns how many bytes to read next, of a payload of size bytes of which have are there.
// Beyond the first PieceBytes, it never allocates more than as many bytes again ahead of their
// arrival.
func Piece(have, size int) int { return min(size-have, max(have, PieceBytes)) }

// Method is the method of a call. Each protocol has its own; numbers are never reused.
type Method uint8

// Header begins a frame.
type Header struct {
	Kind   Kind
	Method Method // of a Call
	// ID is the number of the call, which the caller chooses. It may be reused after the answer to
	// the call. It is 0 in frames that do not belong to a call.
	ID uint32
	// Size is the number of bytes in the payload that follows.
	Size   uint32
	Number int64 // see the kinds
}

// headerBytes is the size of a header: kind, method, two bytes that are 0, id, size, number,
// big-endian.
const headerBytes = 20

var errHeader = errors.New("this is no header of a frame")

// append writes the header.
func (h Header) append(dst []byte) []byte {
	dst = append(dst, byte(h.Kind), byte(h.Method), 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, h.ID)
	dst = binary.BigEndian.AppendUint32(dst, h.Size)
	return binary.BigEndian.AppendUint64(dst, uint64(h.Number)) //nolint:gosec // the same bits
}

// ReadHeader reads the next header; the payload follows in r. It keeps no part of the reader's
// buffer. An io.EOF means that the stream ended between two frames.
func ReadHeader(r *bufio.Reader) (Header, error) {
	b, err := r.Peek(headerBytes)
	if err != nil {
		if len(b) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Header{}, err
	}
	h := Header{
		Kind: Kind(b[0]), Method: Method(b[1]),
		ID: binary.BigEndian.Uint32(b[4:]), Size: binary.BigEndian.Uint32(b[8:]),
		Number: int64(binary.BigEndian.Uint64(b[12:])), //nolint:gosec // the same bits
	}
	if b[2]|b[3] != 0 {
		return Header{}, fmt.Errorf("%w: % x", errHeader, b)
	}
	_, err = r.Discard(headerBytes)
	return h, err
}
