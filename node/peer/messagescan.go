package peer

import (
	"encoding/binary"
	"fmt"
)

const (
	// EntryBytesMax is the size of the largest entry that peers take, which has one request.
	EntryBytesMax = 16 << 20
	// MessageEntriesMax is the number of entries that Raft may put into one message.
	MessageEntriesMax = 64
	// messageBytesMax bounds an AppendEntries. It has room for the largest entry.
	// The sender puts several entries into one message only up to appendBytesMax.
	messageBytesMax = EntryBytesMax + 1<<20
	appendBytesMax  = 4 << 20
	// otherBytesMax bounds every other message; a member takes well below 1 KiB in a configuration.
	otherBytesMax = 1 << 20
	// replyBytesMax bounds the answer to a message.
	replyBytesMax = 64 << 10
	// valuesMax bounds each array and map in a message, keys included. It is above MessageEntriesMax.
	valuesMax = 1024
	// nestingMax bounds the depth of arrays and maps. Raft's messages need three levels.
	nestingMax = 8
)

// The messages of Raft's network transport by their first byte, as far as they differ for the scan.
const (
	kindAppendEntries   = 0
	kindInstallSnapshot = 2
	kindLast            = 4
)

// messageScan follows the bytes of one message to Raft: a byte for its kind and one value in
// msgpack. It knows where the message ends, and finds what is too large before the decoder sees it:
// msgpack has no frames, and the library's decoder trusts every length. The zero value is a message
// that has not begun.
type messageScan struct {
	begun, ended bool
	kind         byte
	size         int64 // bytes so far, payloads in full as soon as they are announced

	open   [nestingMax]uint64 // values that are still to come at each level
	depth  int
	skip   uint64  // bytes of the payload that are still to come
	tag    byte    // of the value whose head is being read
	head   [5]byte // what follows the tag: a length, a kind of extension
	have   int
	need   int
	inHead bool
}

// feed follows p and returns how many of its bytes belong to the message.
func (s *messageScan) feed(p []byte) (used int, err error) {
	for used < len(p) && !s.ended {
		if s.skip > 0 {
			n := min(s.skip, uint64(len(p)-used))
			s.skip -= n
			used += int(n)
			if s.skip == 0 {
				s.valueEnded()
			}
			continue
		}
		b := p[used]
		used++
		if err := s.grow(1); err != nil {
			return used, err
		}
		if err := s.step(b); err != nil {
			return used, err
		}
	}
	return used, nil
}

// step takes a byte that is not part of a payload.
func (s *messageScan) step(b byte) error {
	switch {
	case !s.begun:
		s.begun, s.kind = true, b
		if b > kindLast {
			return fmt.Errorf("a message of unknown kind %d", b)
		}
		return nil
	case s.inHead:
		s.head[s.have] = b
		if s.have++; s.have < s.need {
			return nil
		}
		s.inHead = false
		return s.headEnded()
	default:
		return s.tagged(b)
	}
}

// tagged takes the first byte of a value. See the msgpack specification for the tags.
func (s *messageScan) tagged(tag byte) error {
	switch {
	case tag <= 0x7f || tag >= 0xe0 || tag == 0xc0 || tag == 0xc2 || tag == 0xc3: // small numbers, nil, false, true
		s.valueEnded()
		return nil
	case tag <= 0x8f:
		return s.container(2 * uint64(tag&0x0f))
	case tag <= 0x9f:
		return s.container(uint64(tag & 0x0f))
	case tag <= 0xbf:
		return s.payload(uint64(tag & 0x1f))
	case tag >= 0xca && tag <= 0xd3: // floats and integers
		return s.payload([...]uint64{4, 8, 1, 2, 4, 8, 1, 2, 4, 8}[tag-0xca])
	case tag >= 0xd4 && tag <= 0xd8: // extensions of fixed size, after a byte for their kind
		return s.payload(1 + uint64(1)<<(tag-0xd4))
	}
	s.tag, s.have, s.inHead = tag, 0, true
	switch tag {
	case 0xc4, 0xd9:
		s.need = 1
	case 0xc5, 0xda, 0xdc, 0xde:
		s.need = 2
	case 0xc7:
		s.need = 2 // the length and the kind
	case 0xc6, 0xdb, 0xdd, 0xdf:
		s.need = 4
	case 0xc8:
		s.need = 3
	case 0xc9:
		s.need = 5
	default:
		return fmt.Errorf("a value with the unknown tag %#02x", tag)
	}
	return nil
}

// headEnded takes the length in the head of a value.
func (s *messageScan) headEnded() error {
	var length uint64
	switch s.tag {
	case 0xc4, 0xc7, 0xd9:
		length = uint64(s.head[0])
	case 0xc5, 0xc8, 0xda, 0xdc, 0xde:
		length = uint64(binary.BigEndian.Uint16(s.head[:]))
	default:
		length = uint64(binary.BigEndian.Uint32(s.head[:]))
	}
	switch s.tag {
	case 0xdc, 0xdd:
		return s.container(length)
	case 0xde, 0xdf:
		return s.container(2 * length)
	default:
		return s.payload(length)
	}
}

// payload begins n bytes that the scan skips.
func (s *messageScan) payload(n uint64) error {
	if err := s.grow(n); err != nil {
		return err
	}
	if s.skip = n; n == 0 {
		s.valueEnded()
	}
	return nil
}

// container begins an array or map of n values, keys included.
func (s *messageScan) container(n uint64) error {
	switch {
	case n > valuesMax:
		return fmt.Errorf("an array or map of %d values, %d are the most", n, valuesMax)
	case n == 0:
		s.valueEnded()
		return nil
	case s.depth == nestingMax:
		return fmt.Errorf("arrays and maps more than %d levels deep", nestingMax)
	}
	s.open[s.depth] = n
	s.depth++
	return nil
}

// valueEnded counts the end of a value, and of the containers that end with it.
func (s *messageScan) valueEnded() {
	for s.depth > 0 {
		if s.open[s.depth-1]--; s.open[s.depth-1] > 0 {
			return
		}
		s.depth--
	}
	s.ended = true
}

// grow counts n more bytes of the message.
func (s *messageScan) grow(n uint64) error {
	most := int64(otherBytesMax)
	if s.kind == kindAppendEntries {
		most = messageBytesMax
	}
	s.size += int64(n) // a length has 32 bits
	if s.size > most {
		return fmt.Errorf("a message of kind %d with at least %d bytes, %d are the most", s.kind, s.size, most)
	}
	return nil
}
