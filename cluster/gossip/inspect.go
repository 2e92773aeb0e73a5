package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The types of the library's messages, its first byte. Those that are missing here are refused:
// Belfry sends no user messages, and compression and encryption inside a frame have no use but to
// hide something from this inspection.
const (
	messagePing         = 0
	messageIndirectPing = 1
	messageAck          = 2
	messageSuspect      = 3
	messageAlive        = 4
	messageDead         = 5
	messagePushPull     = 6
	messageCompound     = 7
	messageNack         = 11
	messageCRC          = 12
	messageError        = 13
)

const (
	crcBytes = 4
	// versionBytes is the length of the list of protocol versions that each node sends; the library
	// indexes it unchecked.
	versionBytes = 6
	// nestingMax bounds how deep values of fields that are unknown here may be nested.
	nestingMax = 8
)

var errMessage = errors.New("not a message that nodes of Belfry send")

// inspectPacket refuses a packet's message that the library should not see.
func inspectPacket(b []byte) error { return inspectMessage(b, 0) }

// inspectMessage looks at one message. depth is the number of compounds that it is in: a node sends
// none within another.
func inspectMessage(b []byte, depth int) error {
	if len(b) == 0 {
		return fmt.Errorf("%w: empty", errMessage)
	}
	kind, rest := b[0], b[1:]
	switch kind {
	case messagePing, messageIndirectPing, messageAck, messageSuspect, messageAlive, messageDead, messageNack:
		return nil
	case messageCRC:
		if depth > 0 || len(rest) <= crcBytes || rest[crcBytes] == messageCRC {
			return fmt.Errorf("%w: a misplaced checksum", errMessage)
		}
		return inspectMessage(rest[crcBytes:], depth)
	case messageCompound:
		if depth > 0 {
			return fmt.Errorf("%w: a compound within another", errMessage)
		}
		return inspectCompound(rest)
	default:
		return fmt.Errorf("%w: type %d", errMessage, kind)
	}
}

// inspectCompound looks at every message of a compound: a count, that many lengths of two bytes,
// the messages.
func inspectCompound(b []byte) error {
	if len(b) == 0 || len(b) < 1+2*int(b[0]) {
		return fmt.Errorf("%w: a compound cut short", errMessage)
	}
	lengths, rest := b[1:1+2*int(b[0])], b[1+2*int(b[0]):]
	for ; len(lengths) > 0; lengths = lengths[2:] {
		n := int(binary.BigEndian.Uint16(lengths))
		if n > len(rest) {
			return fmt.Errorf("%w: a compound cut short", errMessage)
		}
		if err := inspectMessage(rest[:n], 1); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// inspectStream refuses a stream's message that the library should not see. Version 0.6.0 of the
// library ends the process at a state whose nodes have no or too few protocol versions.
func inspectStream(b []byte) error {
	if len(b) == 0 {
		return fmt.Errorf("%w: empty", errMessage)
	}
	switch b[0] {
	case messagePing, messageAck, messageError:
		return nil
	case messagePushPull:
		s := &msgpack{rest: b[1:]}
		if s.state(); s.broken || len(s.rest) != 0 {
			return fmt.Errorf("%w: a malformed state", errMessage)
		}
		return nil
	default:
		return fmt.Errorf("%w: type %d on a stream", errMessage, b[0])
	}
}

// msgpack walks over values of that encoding. After the first broken one nothing counts.
type msgpack struct {
	rest   []byte
	broken bool
}

// state walks over a header and as many nodes as it announces. The library makes room for all of
// them before it reads one, so a header that announces more than there are is refused here.
func (s *msgpack) state() {
	var nodes, user uint64
	for range s.fields() {
		switch string(s.text()) {
		case "Nodes":
			nodes = s.number()
		case "UserStateLen":
			user = s.number()
		default:
			s.skip(0)
		}
	}
	s.require(user == 0)
	for range nodes {
		if s.broken {
			return
		}
		s.node()
	}
}

// node walks over the state of one node. A field that comes twice counts each time.
func (s *msgpack) node() {
	versions := false
	for range s.fields() {
		switch string(s.text()) {
		case "Vsn":
			versions = true
			s.require(len(s.text()) == versionBytes)
		case "Addr":
			n := len(s.text())
			s.require(n == 4 || n == 16)
		case "Meta":
			s.require(len(s.text()) <= infoBytesMax)
		default:
			s.skip(0)
		}
	}
	s.require(versions)
}

// require sets broken unless ok.
func (s *msgpack) require(ok bool) { s.broken = s.broken || !ok }

// readBytes returns the next n bytes, or sets broken.
func (s *msgpack) readBytes(n uint64) []byte {
	if s.broken || n > uint64(len(s.rest)) {
		s.broken = true
		return nil
	}
	b := s.rest[:n]
	s.rest = s.rest[n:]
	return b
}

// bigEndian returns an unsigned number of size bytes.
func (s *msgpack) bigEndian(size uint64) uint64 {
	var v uint64
	for _, b := range s.readBytes(size) {
		v = v<<8 | uint64(b)
	}
	return v
}

func (s *msgpack) tag() byte {
	b := s.readBytes(1)
	if s.broken {
		return 0xc1 // the one tag that msgpack never uses
	}
	return b[0]
}

// fields returns the number of fields of the map that follows.
func (s *msgpack) fields() uint64 {
	tag := s.tag()
	if tag&0xf0 != 0x80 { // the library's structs have few fields
		s.broken = true
		return 0
	}
	return uint64(tag & 0x0f)
}

// text returns a string or a sequence of bytes.
func (s *msgpack) text() []byte {
	switch tag := s.tag(); {
	case tag&0xe0 == 0xa0:
		return s.readBytes(uint64(tag & 0x1f))
	case tag == 0xd9 || tag == 0xc4:
		return s.readBytes(s.bigEndian(1))
	case tag == 0xda || tag == 0xc5:
		return s.readBytes(s.bigEndian(2))
	default:
		s.broken = true
		return nil
	}
}

// number returns a number that is not negative, in any of its forms.
func (s *msgpack) number() uint64 {
	switch tag := s.tag(); {
	case tag < 0x80:
		return uint64(tag)
	case tag >= 0xcc && tag <= 0xcf:
		return s.bigEndian(1 << (tag - 0xcc))
	case tag >= 0xd0 && tag <= 0xd3:
		size := uint64(1) << (tag - 0xd0)
		v := s.bigEndian(size)
		s.require(v>>(8*size-1) == 0)
		return v
	default:
		s.broken = true
		return 0
	}
}

// skip walks over any value that the library's structs may hold: numbers, booleans, texts, and
// lists of those.
func (s *msgpack) skip(depth int) {
	if s.broken || len(s.rest) == 0 || depth > nestingMax {
		s.broken = true
		return
	}
	switch tag := s.rest[0]; {
	case tag < 0x80 || tag >= 0xe0 || tag == 0xc0 || tag == 0xc2 || tag == 0xc3:
		s.readBytes(1)
	case tag == 0xca || tag == 0xcb:
		s.readBytes(1 + 4<<(tag-0xca))
	case tag >= 0xcc && tag <= 0xd3:
		s.readBytes(1 + 1<<((tag-0xcc)%4))
	case tag&0xf0 == 0x90:
		s.readBytes(1)
		for range tag & 0x0f {
			s.skip(depth + 1)
		}
	default:
		s.text()
	}
}
