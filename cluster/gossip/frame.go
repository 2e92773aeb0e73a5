package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// What travels between nodes. Every message of the library is sealed in a frame:
//
//	packet   'B' 'G' version 'p' | nonce, ciphertext, tag
//	stream   'B' 'G' version 's' length(4, big endian) | nonce, ciphertext, tag
//	refused  'B' 'G' version 'r'
//	hello    'B' 'G' version 'h'
//
// The head is authenticated with the content. "refused" answers a stream that could not be opened, so that the node with the wrong key
// hears of it itself; it is not authenticated and nothing but a report follows from it. "hello" is a stranger's question what this port is for, and is answered with the same.
const (
	frameVersion = 1

	framePacket  = 'p'
	frameStream  = 's'
	frameRefused = 'r'
	frameHello   = 'h'

	headBytes       = 4
	streamHeadBytes = headBytes + 4
	sealBytes       = 12 + 16 // nonce and tag

	// packetBytesMax is what one UDP packet of ours may have: it passes an Ethernet frame whole, also inside a tunnel.
	packetBytesMax = 1400
	// streamBytesMax bounds a message on a stream. The full state of 1,024 nodes takes less than 800 KiB.
	streamBytesMax = 1 << 20
)

var (
	errFrame   = errors.New("not a frame of gossip")
	errHello   = fmt.Errorf("%w: only a question what is here", errFrame)
	errRefused = errors.New("refused: it cannot open what this node sends")
)

func frameHead(kind byte) []byte { return []byte{'B', 'G', frameVersion, kind} }

// checkHead returns the kind of a frame.
func checkHead(head []byte) (kind byte, err error) {
	if len(head) < headBytes || head[0] != 'B' || head[1] != 'G' {
		return 0, errFrame
	}
	if head[2] != frameVersion {
		return 0, fmt.Errorf("%w: version %d, this node speaks %d", errFrame, head[2], frameVersion)
	}
	return head[3], nil
}

// sealPacket returns the frame of a message that goes as one packet.
func (r *keyring) sealPacket(plain []byte) []byte { return r.seal(frameHead(framePacket), plain) }

// openPacket is the inverse of sealPacket.
func (r *keyring) openPacket(frame []byte) ([]byte, error) {
	kind, err := checkHead(frame)
	if err != nil {
		return nil, err
	}
	if kind != framePacket || len(frame) < headBytes+sealBytes {
		return nil, fmt.Errorf("%w: kind %q, %d bytes", errFrame, kind, len(frame))
	}
	return r.unseal(frame[:headBytes:headBytes], frame[headBytes:])
}

// sealStream returns the frame of a message that goes over a stream.
func (r *keyring) sealStream(plain []byte) ([]byte, error) {
	if len(plain)+sealBytes > streamBytesMax {
		return nil, fmt.Errorf("a message of %d bytes is too long for gossip", len(plain))
	}
	head := binary.BigEndian.AppendUint32(frameHead(frameStream), uint32(len(plain)+sealBytes))
	return r.seal(head, plain), nil
}

// readStream reads one frame and opens it. It returns io.EOF if there is none.
func (r *keyring) readStream(from io.Reader) ([]byte, error) {
	head := make([]byte, streamHeadBytes)
	if _, err := io.ReadFull(from, head[:headBytes]); err != nil {
		return nil, err // io.EOF as it is: the library compares
	}
	kind, err := checkHead(head)
	if err != nil {
		return nil, err
	}
	if kind == frameRefused {
		return nil, errRefused
	}
	if kind == frameHello {
		return nil, errHello
	}
	if _, err := io.ReadFull(from, head[headBytes:]); err != nil {
		return nil, fmt.Errorf("reading a frame: %w", err)
	}
	size := binary.BigEndian.Uint32(head[headBytes:])
	if kind != frameStream || size < sealBytes || size > streamBytesMax {
		return nil, fmt.Errorf("%w: kind %q, %d bytes", errFrame, kind, size)
	}
	sealed := make([]byte, size)
	if _, err := io.ReadFull(from, sealed); err != nil {
		return nil, fmt.Errorf("reading a frame: %w", err)
	}
	return r.unseal(head, sealed)
}
