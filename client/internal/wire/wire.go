// Package wire reads messages of protobuf field by field, without messages of the generated code:
// at 100,000 calls a second those would be most of a client's garbage.
package wire

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrTruncated says that a message ends in its midst, or is no message.
var ErrTruncated = errors.New("the answer is not a valid message")

// A Field is one field of a message. Bytes is the value of a string, bytes or message field, a part
// of the message; Value is that of any other.
type Field struct {
	Number protowire.Number // 0 for a form that the API does not have
	Bytes  []byte
	Value  uint64
}

// Next removes the first field from data, which is not empty. It skips groups, which no version of
// the API has. It returns [ErrTruncated] as it is.
func Next(data []byte) (f Field, rest []byte, err error) {
	if f, rest, ok := short(data); ok {
		return f, rest, nil
	}
	field, kind, n := protowire.ConsumeTag(data)
	if n < 0 {
		return f, nil, ErrTruncated
	}
	f.Number, data = field, data[n:]
	switch kind {
	case protowire.BytesType:
		f.Bytes, n = protowire.ConsumeBytes(data)
	case protowire.VarintType:
		f.Value, n = protowire.ConsumeVarint(data)
	default:
		f.Number = 0 // no field that is known here has this form
		n = protowire.ConsumeFieldValue(field, kind, data)
	}
	if n < 0 {
		return f, nil, ErrTruncated
	}
	return f, data[n:], nil
}

// short is Next for the most common form: a tag of one or two bytes, then a value or a
// length of one byte. ok is false for any other.
func short(data []byte) (f Field, rest []byte, ok bool) {
	if len(data) < 3 {
		return f, nil, false
	}
	tag, at := uint(data[0]), 1
	if tag >= 0x80 {
		tag, at = tag&0x7f|uint(data[1])<<7, 2
	}
	value := int(data[at])
	f.Number = protowire.Number(tag >> 3) //nolint:gosec // 15 bits at most
	if tag >= 1<<14 || value >= 0x80 || f.Number == 0 {
		return f, nil, false
	}
	data = data[at+1:]
	switch protowire.Type(tag & 7) { //nolint:gosec // three bits
	case protowire.VarintType:
		f.Value = uint64(value)
		return f, data, true
	case protowire.BytesType:
		if value > len(data) {
			return f, nil, false
		}
		f.Bytes = data[:value:value]
		return f, data[value:], true
	default:
		return f, nil, false
	}
}

// Each calls f for each field of a message, and returns the first error as it is.
func Each(data []byte, f func(f Field) error) error {
	for len(data) > 0 {
		field, rest, err := Next(data)
		if err != nil {
			return err
		}
		if err := f(field); err != nil {
			return err
		}
		data = rest
	}
	return nil
}

// Count returns how often a field occurs in a message.
func Count(data []byte, number protowire.Number) (n int, err error) {
	for len(data) > 0 {
		var f Field
		if f, data, err = Next(data); err != nil {
			return 0, err
		}
		if f.Number == number {
			n++
		}
	}
	return n, nil
}

// Time decodes a google.protobuf.Timestamp.
func Time(data []byte) (time.Time, error) {
	seconds, nanos, err := Seconds(data)
	return time.Unix(seconds, nanos).UTC(), err
}

// A TimeDecoder decodes times whose neighbours are often equal. It keeps a reference to what it
// decoded last.
type TimeDecoder struct {
	data []byte
	time time.Time
}

// Decode decodes a google.protobuf.Timestamp, and keeps a reference to data.
func (d *TimeDecoder) Decode(data []byte) (t time.Time, err error) {
	if len(data) > 0 && bytes.Equal(data, d.data) {
		return d.time, nil
	}
	if t, err = Time(data); err == nil {
		d.data, d.time = data, t
	}
	return t, err
}

// textsTogether is about how many bytes of text share a piece of memory. Fewer pieces cost less,
// but a text that is kept for long keeps its whole piece.
const textsTogether = 512

// Texts makes strings that share pieces of memory.
type Texts struct{ piece strings.Builder }

// Add makes a string of text. left is how many similar ones are to come, including this one.
func (t *Texts) Add(text []byte, left int) string {
	if t.piece.Cap()-t.piece.Len() < len(text) {
		t.piece.Reset()
		t.piece.Grow(max(len(text), min(left*len(text), textsTogether)))
	}
	start := t.piece.Len()
	t.piece.Write(text)
	return t.piece.String()[start:]
}

// Duration decodes a google.protobuf.Duration of at most 292 years.
func Duration(data []byte) (time.Duration, error) {
	seconds, nanos, err := Seconds(data)
	return time.Duration(seconds)*time.Second + time.Duration(nanos), err
}

// Seconds decodes the two numbers of a google.protobuf.Timestamp or Duration.
func Seconds(data []byte) (seconds, nanos int64, err error) {
	for len(data) > 0 {
		var f Field
		if f, data, err = Next(data); err != nil {
			return 0, 0, err
		}
		switch f.Number {
		case 1:
			seconds = int64(f.Value)
		case 2:
			nanos = int64(int32(f.Value))
		}
	}
	return seconds, nanos, nil
}
