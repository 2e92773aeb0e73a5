// Package frame is the wire format of sessions, which carry many calls of the SDK at once over one
// connection. A session begins as an HTTP/1.1 request to Path that asks for an upgrade to Protocol.
// After the answer 101 both sides send frames; the frames of different calls may come in any order.
// The payloads are the messages of the contract in binary protobuf.
//
// The server and the SDK import this package, and it imports neither.
package frame

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Path is the path of the request that begins a session, and Protocol the one to which it upgrades.
const (
	Path     = "/belfry.v1/session"
	Protocol = "belfry-session/1"
)

// Kind is the kind of a frame. Numbers are never reused.
type Kind uint8

// These are the kinds of frames.
const (
	// Call is from the client: the payload is a request. Number is how long the client waits for
	// the answer, in milliseconds, 0 for no limit.
	Call Kind = iota + 1
	// Cancel is from the client: it no longer waits for the answer.
	Cancel
	// Answer is from the server: the payload is the response. Number is the server's wall clock, in
	// Unix milliseconds.
	Answer
	// Failure is from the server: the payload is a google.rpc.Status. Number is as in Answer.
	Failure
	// Leave is from the server, which stops: it refuses the calls that it reads from now on, and
	// answers those in flight.
	Leave
	// Bye is the last frame of the server: it answered every call that it read.
	Bye
	// Ping is from either side; Pong is the answer.
	Ping
	Pong
)

// PieceBytes is how many bytes of a payload are allocated before any have arrived: a header costs
// its sender nearly no effort.
const PieceBytes = 256 << 10

// Piece returns how many bytes to read next, of a payload of size bytes of which have are there.
// Beyond the first PieceBytes, it never allocates more than as many bytes again ahead of their
// arrival.
func Piece(have, size int) int { return min(size-have, max(have, PieceBytes)) }

// Method is the method of a call. Numbers are never reused.
type Method uint8

// These are the methods that sessions carry. All others are called over Connect.
const (
	PutBatch Method = iota + 1
	AckBatch
	Reserve
)

// Header begins a frame.
type Header struct {
	Kind   Kind
	Method Method // of a Call
	// ID is the number of the call, which the client chooses. It may be reused after the answer to
	// the call. It is 0 in frames that do not belong to a call.
	ID uint32
	// Size is the number of bytes in the payload that follows.
	Size   uint32
	Number int64 // see the kinds
}

// headerBytes is the size of a header: kind, method, two bytes that are 0, id, size, number, big-endian.
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
// buffer. An io.EOF means that the session ended between two frames.
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
		ID: binary.BigEndian.Uint32(b[4:]), Size: binary.BigEndian.Uint32(b[8:]), Number: int64(binary.BigEndian.Uint64(b[12:])), //nolint:gosec // the same bits
	}
	if b[2]|b[3] != 0 {
		return Header{}, fmt.Errorf("%w: % x", errHeader, b)
	}
	_, err = r.Discard(headerBytes)
	return h, err
}
