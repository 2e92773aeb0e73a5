package redisson

import "encoding/binary"

// The strings of three codecs. All count in UTF-16 units. Kryo and River write the text as CESU-8,
// which is UTF-8 of single units: a character beyond U+FFFF is two of them and takes six bytes.

// The bytes with which strings begin.
const (
	kryo5Class = 0x03 // the number of the class String

	riverProtocol = 0x04
	riverEmpty    = 0x3d
	riverSmall    = 0x3e // 1 to 256 units; the length is one byte, 0 for 256
	riverMedium   = 0x3f // to 65,536; two bytes, big endian, 0 for 65,536
	riverLarge    = 0x40 // four bytes, big endian

	fstClass  = 0xfc
	fstMedium = 0x80 // a length from 128 on is two bytes, little endian
	fstLarge  = 0x81 // a length from 32,768 on is four
	fstWide   = 0xff // a unit of two bytes follows, little endian
)

// appendKryo5 appends a string of Kryo5Codec: two to 32 characters of ASCII, whose end is bit 7 of
// the last one; or else the number of units plus one in groups of bits, the lowest first, and then
// CESU-8.
func appendKryo5(b []byte, units []uint16) []byte {
	b = append(b, kryo5Class)
	if 2 <= len(units) && len(units) <= 32 && isASCII(units) {
		b = appendCESU(b, units)
		b[len(b)-1] |= 0x80
		return b
	}
	b = appendKryo5Length(b, uint64(len(units))+1)
	return appendCESU(b, units)
}

// appendKryo5Length appends a number: six bits, then seven at a time. Bit 7 of the first byte tells
// it from ASCII, and bit 6 says that more follow; in the others that is bit 7.
func appendKryo5Length(b []byte, n uint64) []byte {
	if n < 1<<6 {
		return append(b, 0x80|byte(n))
	}
	b = append(b, 0xc0|byte(n&(1<<6-1)))
	return binary.AppendUvarint(b, n>>6)
}

// readKryo5 reads what appendKryo5 writes.
func readKryo5(b []byte) (units []uint16, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != kryo5Class {
		return nil, nil, false
	}
	return readKryo5Text(b[1:])
}

// readKryo5Text reads a string without the number of its class, as the names of classes are
// written.
func readKryo5Text(b []byte) (units []uint16, rest []byte, ok bool) {
	if len(b) > 0 && b[0]&0x80 == 0 {
		for i, c := range b {
			units = append(units, uint16(c&0x7f))
			if c&0x80 != 0 {
				return units, b[i+1:], true
			}
		}
		return nil, nil, false
	}
	n, b, ok := readKryo5Length(b)
	if !ok {
		return nil, nil, false
	}
	return readCESU(b, n-1) // 0 is null, and wraps to more than there is
}

func readKryo5Length(b []byte) (n uint64, rest []byte, ok bool) {
	switch {
	case len(b) == 0:
		return 0, nil, false
	case b[0]&0x40 == 0:
		return uint64(b[0] & 0x3f), b[1:], true
	}
	high, size := binary.Uvarint(b[1:])
	if size <= 0 {
		return 0, nil, false
	}
	return high<<6 | uint64(b[0]&0x3f), b[1+size:], true
}

// maybeReference reports whether a string of Kryo5Codec may as well be one with references, which
// puts 01 before an object that it meets for the first time. Without references that is the
// character U+0001 of a string of ASCII.
func maybeReference(payload []byte) bool {
	if len(payload) < 2 || payload[0] != kryo5Class || payload[1] != 1 {
		return false
	}
	_, rest, ok := readKryo5Text(payload[2:])
	return ok && len(rest) == 0
}

// appendRiver appends a string of MarshallingCodec: the shortest form of its length, then CESU-8,
// where U+0000 is two bytes too.
func appendRiver(b []byte, units []uint16) []byte {
	b = append(b, riverProtocol)
	switch n := len(units); {
	case n == 0:
		b = append(b, riverEmpty)
	case n <= 1<<8:
		b = append(b, riverSmall, byte(n))
	case n <= 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, riverMedium), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, riverLarge), uint32(n))
	}
	for _, u := range units {
		if u == 0 {
			b = append(b, 0xc0, 0x80)
		} else {
			b = appendUnit(b, u)
		}
	}
	return b
}

// readRiver reads what appendRiver writes.
func readRiver(b []byte) (units []uint16, rest []byte, ok bool) {
	if len(b) < 2 || b[0] != riverProtocol {
		return nil, nil, false
	}
	var n uint64
	form, b := b[1], b[2:]
	switch {
	case form == riverEmpty:
	case form == riverSmall && len(b) >= 1:
		n, b = uint64(b[0]-1)+1, b[1:] // 0 wraps to 256
	case form == riverMedium && len(b) >= 2:
		n, b = uint64(binary.BigEndian.Uint16(b)-1)+1, b[2:] // 0 wraps to 65,536
	case form == riverLarge && len(b) >= 4:
		n, b = uint64(binary.BigEndian.Uint32(b)), b[4:]
	default:
		return nil, nil, false
	}
	return readCESU(b, n)
}

// appendFST appends a string of FstCodec: its length, then a byte for each unit below 255 and three
// for each other.
func appendFST(b []byte, units []uint16) []byte {
	b = append(b, fstClass)
	switch n := len(units); {
	case n < 1<<7:
		b = append(b, byte(n))
	case n < 1<<15:
		b = binary.LittleEndian.AppendUint16(append(b, fstMedium), uint16(n))
	default:
		b = binary.LittleEndian.AppendUint32(append(b, fstLarge), uint32(n))
	}
	for _, u := range units {
		if u < fstWide {
			b = append(b, byte(u))
		} else {
			b = binary.LittleEndian.AppendUint16(append(b, fstWide), u)
		}
	}
	return b
}

// readFST reads what appendFST writes.
func readFST(b []byte) (units []uint16, rest []byte, ok bool) {
	if len(b) < 2 || b[0] != fstClass {
		return nil, nil, false
	}
	n, b := uint64(b[1]), b[2:]
	switch {
	case n == fstMedium && len(b) >= 2:
		n, b = uint64(binary.LittleEndian.Uint16(b)), b[2:]
	case n == fstLarge && len(b) >= 4:
		n, b = uint64(binary.LittleEndian.Uint32(b)), b[4:]
	}
	if n > uint64(len(b)) {
		return nil, nil, false
	}
	units = make([]uint16, 0, n)
	for range n {
		switch {
		case len(b) >= 1 && b[0] != fstWide:
			units, b = append(units, uint16(b[0])), b[1:]
		case len(b) >= 3:
			units, b = append(units, binary.LittleEndian.Uint16(b[1:])), b[3:]
		default:
			return nil, nil, false
		}
	}
	return units, b, true
}

func isASCII(units []uint16) bool {
	for _, u := range units {
		if u > 0x7f {
			return false
		}
	}
	return true
}

// appendCESU appends units as CESU-8.
func appendCESU(b []byte, units []uint16) []byte {
	for _, u := range units {
		b = appendUnit(b, u)
	}
	return b
}

func appendUnit(b []byte, u uint16) []byte {
	switch {
	case u < 1<<7:
		return append(b, byte(u))
	case u < 1<<11:
		return append(b, 0xc0|byte(u>>6), 0x80|byte(u&0x3f))
	default:
		return append(b, 0xe0|byte(u>>12), 0x80|byte(u>>6&0x3f), 0x80|byte(u&0x3f))
	}
}

// readCESU reads n units. Bits that only say how many bytes a unit has are not all looked at.
func readCESU(b []byte, n uint64) (units []uint16, rest []byte, ok bool) {
	if n > uint64(len(b)) { // a unit has at least one byte, so that a length that is made up asks for no memory
		return nil, nil, false
	}
	units = make([]uint16, 0, n)
	for range n {
		switch {
		case len(b) >= 1 && b[0] < 0x80:
			units, b = append(units, uint16(b[0])), b[1:]
		case len(b) >= 2 && b[0] < 0xe0:
			units, b = append(units, uint16(b[0]&0x1f)<<6|uint16(b[1]&0x3f)), b[2:]
		case len(b) >= 3:
			units, b = append(units, uint16(b[0]&0x0f)<<12|uint16(b[1]&0x3f)<<6|uint16(b[2]&0x3f)), b[3:]
		default:
			return nil, nil, false
		}
	}
	return units, b, true
}
