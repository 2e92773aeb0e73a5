// Package frame is the form of sessions on the wire: many calls at once over one connection, for the SDK. A session begins as an HTTP/1.1 request to Path that asks to be
// upgraded to Protocol; after the answer 101 both sides send frames, in any order of calls. The payloads are the messages of the contract in binary protobuf.
//
// It is used by the server and by the SDK, and imports neither.
package frame

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Path is where a session is asked for, and Protocol what its connection becomes.
const (
	Path     = "/belfry.v1/session"
	Protocol = "belfry-session/1"
)

// Kind says what a frame is. Numbers are never reused.
type Kind uint8

// The kinds of frames.
const (
	Call    Kind = iota + 1 // from the client: the payload is a request; Number is how long the client waits for the answer, in milliseconds, 0 for no limit
	Cancel                  // from the client: nobody waits for the answer any more
	Answer                  // from the server: the payload is the response; Number is the server's wall clock, in Unix milliseconds
	Failure                 // from the server: the payload is a google.rpc.Status; Number as in Answer
	Leave                   // from the server: it stops, refuses the calls that it reads from now on, and answers those under way
	Bye                     // from the server, its last: it answered every call that it read
	Ping                    // from either side; it is answered with Pong
	Pong
)

// PieceBytes is how many bytes of a payload are taken memory for before any has come: a header costs its sender nothing.
const PieceBytes = 256 << 10

// Piece returns how many bytes to read next of a payload of size bytes of which have came, so that memory for no more than as many again is taken ahead.
func Piece(have, size int) int { return min(size-have, max(have, PieceBytes)) }

// Method is the method of a call. Numbers are never reused.
type Method uint8

// The methods that sessions carry; all others are called by Connect.
const (
	PutBatch Method = iota + 1
	AckBatch
	Reserve
)

// Header begins a frame.
type Header struct {
	Kind   Kind
	Method Method // of a Call
	// ID is the number of the call, which the client chooses; it may be used again once the call was answered. 0 in frames that are about no call.
	ID uint32
	// Size is that of the payload that follows, in bytes.
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

// ReadHeader reads the next header. It keeps nothing of the reader's buffer. The payload follows it in r. An io.EOF is the end of the session between two frames.
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
