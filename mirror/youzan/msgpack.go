package youzan

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The first bytes of msgpack's forms, as far as jobs need them (its specification is at
// https://github.com/msgpack/msgpack/blob/master/spec.md). What follows a first byte is big endian.
const (
	fixmap   = 0x80 // and the number of entries, to 0x8f
	fixstr   = 0xa0 // and the length, to 0xbf
	uint8Of  = 0xcc // uint16, uint32 and uint64 are the next three
	int8Of   = 0xd0 // int16, int32 and int64 are the next three
	str8     = 0xd9
	str16    = 0xda
	str32    = 0xdb
	map16    = 0xde
	negative = 0xe0 // to 0xff: the byte itself is a number, -32 to -1, as 0 to 0x7f are numbers
)

func appendText(b []byte, text string) []byte {
	switch n := len(text); {
	case n < 32:
		b = append(b, fixstr|byte(n))
	case n <= math.MaxUint8:
		b = append(b, str8, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, str16), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, str32), uint32(n))
	}
	return append(b, text...)
}

func appendNumber(b []byte, n int64) []byte {
	first, magnitude := byte(uint8Of), uint64(n)
	if n < 0 {
		first, magnitude = int8Of, uint64(^n)<<1 // the bits that n needs with its sign
	}
	switch {
	case -32 <= n && n <= math.MaxInt8:
		return append(b, byte(n))
	case magnitude <= math.MaxUint8:
		return append(b, first, byte(n))
	case magnitude <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, first+1), uint16(n))
	case magnitude <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, first+2), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, first+3), uint64(n))
}

// A reader takes a value apart from the front. After the first error, which it keeps, all that it
// reads is zero.
type reader struct {
	value []byte
	at    int
	err   error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// take returns the next n bytes, or nil if there are not so many.
func (r *reader) take(n uint64) []byte {
	if left := len(r.value) - r.at; n > uint64(left) {
		r.fail("%d bytes are to follow the first %d, %d are left", n, r.at, left)
	}
	if r.err != nil {
		return nil
	}
	b := r.value[r.at:][:n]
	r.at += int(n)
	return b
}

// width reads an unsigned number of 1, 2, 4 or 8 bytes.
func (r *reader) width(n uint64) uint64 {
	var u uint64
	for _, b := range r.take(n) {
		u = u<<8 | uint64(b)
	}
	return u
}

// first reads a byte that begins something.
func (r *reader) first() byte { return byte(r.width(1)) }

// entries reads the head of a map and returns their number.
func (r *reader) entries() int {
	switch b := r.first(); {
	case b&0xf0 == fixmap:
		return int(b &^ fixmap)
	case b == map16:
		return int(r.width(2))
	default:
		r.fail("byte %d, %#02x, begins no map", r.at-1, b)
		return 0
	}
}

func (r *reader) text() string {
	var n uint64
	switch b := r.first(); {
	case b&0xe0 == fixstr:
		n = uint64(b &^ fixstr)
	case b >= str8 && b <= str32:
		n = r.width(1 << (b - str8))
	default:
		r.fail("byte %d, %#02x, begins no text", r.at-1, b)
	}
	return string(r.take(n))
}

func (r *reader) number() int64 {
	switch b := r.first(); {
	case b <= math.MaxInt8 || b >= negative:
		return int64(int8(b))
	case b >= uint8Of && b < uint8Of+4:
		u := r.width(1 << (b - uint8Of))
		if u > math.MaxInt64 {
			r.fail("%d has more than 63 bits", u)
		}
		return int64(u)
	case b >= int8Of && b < int8Of+4:
		n := uint64(1) << (b - int8Of)
		empty := 64 - 8*n
		return int64(r.width(n)<<empty) >> empty
	default:
		r.fail("byte %d, %#02x, begins no whole number", r.at-1, b)
		return 0
	}
}
