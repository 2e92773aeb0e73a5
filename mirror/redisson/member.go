package redisson

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Generation is a layout of packed members. Redisson reads only its own: a member of the other
// among those that are due stops the queue for every client. A queue may hold both if its clients
// were upgraded while entries were pending.
type Generation uint8

// The generations.
const (
	Unknown Generation = iota // of a queue that holds no member to tell by
	Old                       // of Redisson up to 3.21.0
	New                       // of Redisson from 3.21.1 on
)

// String returns "old", "new" or "unknown".
func (g Generation) String() string {
	switch g {
	case Old:
		return "old"
	case New:
		return "new"
	default:
		return "unknown"
	}
}

// ParseGeneration reads what String returns for [Old] and [New].
func ParseGeneration(s string) (Generation, error) {
	for _, g := range []Generation{Old, New} {
		if s == g.String() {
			return g, nil
		}
	}
	return Unknown, fmt.Errorf(`there is no generation %q; want "old" (up to Redisson 3.21.0) or "new" (from 3.21.1 on)`,
		s)
}

// These are the layouts, without padding; numbers are little endian. Redis packs members in Lua
// with the sizes and the byte order of its machine. Only those of 64-bit little-endian machines are
// supported; all others are malformed here.
//
//	new: 0  1  the length of the random, 8        old: 0   8  the random, a float64
//	     1  8  the random                              8   8  n
//	     9  8  n, the length of the payload            16  n  the payload
//	     17 n  the payload
const (
	randomBytes = 8
	oldBytes    = randomBytes + 8     // an old member without payload
	newBytes    = 1 + randomBytes + 8 // a new member without payload
)

// A Member is an entry of a delayed queue as its timer and its list hold it. Entries of equal
// content differ by the random.
type Member struct {
	Generation Generation
	// Random makes the member unique. Redis orders members of equal score by their bytes, so eight big
	// endian bytes of a growing number keep the order in the new generation. In the old one it is a
	// little endian float64, see [OldRandom]; no program reads it.
	Random [randomBytes]byte
	// Payload is what the codec of the queue made of the element.
	Payload []byte
}

// Append packs the member at the end of b and returns the result. It packs [Unknown] as [New]; a
// caller that must not guess checks before.
func (m Member) Append(b []byte) []byte {
	if m.Generation != Old {
		b = append(b, randomBytes)
	}
	b = append(b, m.Random[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(m.Payload)))
	return append(b, m.Payload...)
}

// ParseMember unpacks a member; its payload is a part of b. [Member.Append] makes exactly b of it
// again.
//
// One kind of member is valid in both generations: 17 bytes that are a new member without payload,
// or an old one whose payload is one zero byte. It counts as the generation of the majority of its
// queue, and as new if that is [Unknown]. An error says why b fits neither generation.
func ParseMember(b []byte, majority Generation) (Member, error) {
	isOld := len(b) >= oldBytes && payloadLength(b, oldBytes) == uint64(len(b)-oldBytes)
	isNew := len(b) >= newBytes && b[0] == randomBytes && payloadLength(b, newBytes) == uint64(len(b)-newBytes)
	switch {
	case isNew && (majority != Old || !isOld):
		return Member{Generation: New, Random: [randomBytes]byte(b[1:]), Payload: b[newBytes:]}, nil
	case isOld:
		return Member{Generation: Old, Random: [randomBytes]byte(b), Payload: b[oldBytes:]}, nil
	default:
		return Member{}, errMalformed(b)
	}
}

// payloadLength returns the length that is the end of a head of the given size.
func payloadLength(b []byte, head int) uint64 { return binary.LittleEndian.Uint64(b[head-8 : head]) }

// errMalformed says why b is of neither generation.
func errMalformed(b []byte) error {
	if len(b) < oldBytes {
		return fmt.Errorf("%d bytes are no member, which has at least %d", len(b), oldBytes)
	}
	var why string
	switch {
	case b[0] != randomBytes:
		why = fmt.Sprintf("it begins with 0x%02x, not 0x08", b[0])
	case len(b) < newBytes:
		why = fmt.Sprintf("it has at least %d bytes", newBytes)
	default:
		why = fmt.Sprintf("the payload has %d bytes but %d follow", payloadLength(b, newBytes), len(b)-newBytes)
	}
	return fmt.Errorf("%d bytes are no member: for an old one the payload has %d bytes but %d follow, for a new one %s",
		len(b), payloadLength(b, oldBytes), len(b)-oldBytes, why)
}

// OldRandom returns the random of an old member: n as a float64, which keeps 53 bits of it. Numbers
// up to 2^53 stay distinct.
func OldRandom(n int64) [randomBytes]byte {
	return [randomBytes]byte(binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(n))))
}
