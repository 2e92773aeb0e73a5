package gossip

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
)

// Every message of the library is sealed in a frame. Between nodes there are:
//
//	packet     'B' 'G' version 'p' | nonce, ciphertext, tag
//	stream     'B' 'G' version 's' length(4, big endian) | nonce, ciphertext, tag
//	knock      'B' 'G' version 'k' CR LF CR LF
//	challenge  'B' 'G' version 'c' | 16 random bytes
//	refused    'B' 'G' version 'r'
//	hello      'B' 'G' version 'h'
//
// The head is authenticated with the content. A packet's content begins with the address of its
// receiver, 16 bytes and the port, so that no other node accepts it.
//
// The side that dials a stream knocks, and the other side answers with a challenge, new for each
// stream. The first side seals its frames with the challenge, the second with the challenge and the
// nonce of the question (binding). So no frame opens on another stream. A join address may lead to
// a web server by mistake: the empty lines of a knock make it answer at once. A caller that does
// not knock gets no challenge.
//
// "refused" answers a stream that could not be opened, so that the node with the wrong key learns
// why. It is not authenticated, so its only effect is a report. "hello" asks what the port is for,
// without a key, and is answered with the same.
const (
	// frameVersion is 2 since streams begin with a knock and packets name their receiver.
	frameVersion = 2

	framePacket    = 'p'
	frameStream    = 's'
	frameKnock     = 'k'
	frameChallenge = 'c'
	frameRefused   = 'r'
	frameHello     = 'h'

	headBytes       = 4
	streamHeadBytes = headBytes + 4
	nonceBytes      = 12
	sealBytes       = nonceBytes + 16 // and the tag
	challengeBytes  = 16
	knockEnd        = "\r\n\r\n"
	placeSize       = 16 + 2

	// packetBytesMax is what one UDP packet of ours may have: it passes an Ethernet frame whole, also
	// inside a tunnel.
	packetBytesMax = 1400
	// streamBytesMax bounds a message on a stream. The full state of 1,024 nodes takes less than 800
	// KiB.
	streamBytesMax = 1 << 20
)

var (
	errFrame = errors.New("not a frame of gossip")
	errHello = fmt.Errorf("%w: only a question what is here", errFrame)
	// errElsewhere is no reason for alarm: a node may have come to the address of another one.
	errElsewhere = errors.New("made for a node at another address")
	errRefused   = errors.New("refused: it cannot open what this node sends")
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

// sealPacket returns the frame of a message that goes as one packet to a node at an address.
func (r *keyring) sealPacket(to netip.AddrPort, plain []byte) []byte {
	place := placeBytes(to)
	return r.seal(frameHead(framePacket), nil, slices.Concat(place[:], plain))
}

// openPacket is the inverse of sealPacket, for the node at the address.
func (r *keyring) openPacket(at netip.AddrPort, frame []byte) ([]byte, error) {
	kind, err := checkHead(frame)
	if err != nil {
		return nil, err
	}
	if kind != framePacket || len(frame) < headBytes+sealBytes {
		return nil, fmt.Errorf("%w: kind %q, %d bytes", errFrame, kind, len(frame))
	}
	plain, err := r.unseal(frame[:headBytes], nil, frame[headBytes:])
	if err != nil {
		return nil, err
	}
	place := placeBytes(at)
	message, ours := bytes.CutPrefix(plain, place[:])
	if !ours {
		return nil, errElsewhere
	}
	return message, nil
}

// placeBytes is the address of a node as packets have it. The zone of an IPv6 address has another
// name on each host.
func placeBytes(at netip.AddrPort) (place [placeSize]byte) {
	ip := at.Addr().As16()
	copy(place[:], ip[:])
	binary.BigEndian.PutUint16(place[len(ip):], at.Port())
	return place
}

// nonceOf returns the nonce of what was sealed behind a head of so many bytes.
func nonceOf(frame []byte, head int) nonce { return nonce(frame[head : head+nonceBytes]) }

// nonce is what a frame was sealed with: random, and authenticated because nothing opens with
// another one.
type nonce [nonceBytes]byte

// binding is what the frames of one stream are sealed with beside their heads.
type binding struct {
	challenge [challengeBytes]byte
	// asked is the nonce of the first frame of the side that dialled. Without it a recorded answer
	// could be sent again, behind the challenge that it belongs to.
	asked nonce
}

func newBinding() (b binding) {
	_, _ = rand.Read(b.challenge[:]) // it ends the process rather than fail
	return b
}

// question returns what frames of the side that dialled are bound to, answer what those of the
// other side are. No question opens as an answer.
func (b *binding) question() []byte { return b.challenge[:] }
func (b *binding) answer() []byte   { return slices.Concat(b.challenge[:], b.asked[:]) }

// sealStream returns the frame of a message that goes over a stream, bound to it.
func (r *keyring) sealStream(bound, plain []byte) ([]byte, error) {
	if len(plain)+sealBytes > streamBytesMax {
		return nil, fmt.Errorf("a message of %d bytes is too long for gossip", len(plain))
	}
	head := binary.BigEndian.AppendUint32(frameHead(frameStream), uint32(len(plain)+sealBytes))
	return r.seal(head, bound, plain), nil
}

// readStream reads one frame and opens it. It returns io.EOF if there is none.
func (r *keyring) readStream(from io.Reader, bound []byte) (plain []byte, with nonce, err error) {
	kind, err := readKind(from)
	if err != nil {
		return nil, nonce{}, err // io.EOF as it is: the library compares
	}
	if kind == frameRefused {
		return nil, nonce{}, errRefused
	}
	if kind != frameStream {
		return nil, nonce{}, fmt.Errorf("%w: kind %q", errFrame, kind)
	}
	head := append(frameHead(kind), 0, 0, 0, 0)
	if _, err := io.ReadFull(from, head[headBytes:]); err != nil {
		return nil, nonce{}, fmt.Errorf("reading a frame: %w", err)
	}
	size := binary.BigEndian.Uint32(head[headBytes:])
	if size < sealBytes || size > streamBytesMax {
		return nil, nonce{}, fmt.Errorf("%w: kind %q, %d bytes", errFrame, kind, size)
	}
	sealed := make([]byte, size)
	if _, err := io.ReadFull(from, sealed); err != nil {
		return nil, nonce{}, fmt.Errorf("reading a frame: %w", err)
	}
	plain, err = r.unseal(head, bound, sealed)
	return plain, nonceOf(sealed, 0), err
}

// readKind reads the head of a frame.
func readKind(from io.Reader) (kind byte, err error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return 0, err
	}
	return checkHead(head[:])
}

// knock asks for a stream's challenge.
func knock(stream io.ReadWriter) (b binding, err error) {
	if _, err := stream.Write(append(frameHead(frameKnock), knockEnd...)); err != nil {
		return b, fmt.Errorf("knocking: %w", err)
	}
	kind, err := readKind(stream)
	if err == nil && kind != frameChallenge {
		err = fmt.Errorf("%w: kind %q", errFrame, kind)
	}
	if err == nil {
		_, err = io.ReadFull(stream, b.challenge[:])
	}
	if err != nil {
		return b, fmt.Errorf("waiting for a challenge: %w", err)
	}
	return b, nil
}

// open waits for a knock and answers it with a challenge. The error is errHello for another
// question.
func open(stream io.ReadWriter) (b binding, err error) {
	kind, err := readKind(stream)
	if err == nil && kind == frameHello {
		err = errHello
	}
	if err == nil && kind != frameKnock {
		err = fmt.Errorf("%w: kind %q, and no knock before it", errFrame, kind)
	}
	if err != nil {
		return b, err
	}
	var end [len(knockEnd)]byte
	if _, err := io.ReadFull(stream, end[:]); err != nil {
		return b, fmt.Errorf("reading a knock: %w", err)
	}
	if string(end[:]) != knockEnd {
		return b, fmt.Errorf("%w: a knock that ends with %q", errFrame, end)
	}
	b = newBinding()
	if _, err := stream.Write(append(frameHead(frameChallenge), b.challenge[:]...)); err != nil {
		return b, fmt.Errorf("sending a challenge: %w", err)
	}
	return b, nil
}
