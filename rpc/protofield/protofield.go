// Package protofield appends fields of protobuf messages, as the generated code would encode them.
// All functions append to dst and return it.
package protofield

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of google.protobuf.Duration and google.protobuf.Timestamp.
const (
	fieldSeconds protowire.Number = 1
	fieldNanos   protowire.Number = 2
)

// AppendSeconds appends a Timestamp or a Duration, also an empty one. The caller leaves out one that
// is not set.
func AppendSeconds(dst []byte, field protowire.Number, seconds int64, nanos int32) []byte {
	dst = OpenShort(dst, field) // it has at most 22 bytes
	start := len(dst)
	dst = AppendNumber(dst, fieldSeconds, uint64(seconds)) //nolint:gosec // the same bits
	dst = AppendNumber(dst, fieldNanos, uint64(nanos))     //nolint:gosec // negative ones are extended to 64 bits
	CloseShort(dst, start)
	return dst
}

// AppendText appends a string unless it is empty, as proto3 requires. It does not check that text is
// valid UTF-8.
func AppendText(dst []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return dst
	}
	dst = binary.AppendUvarint(dst, protowire.EncodeTag(field, protowire.BytesType))
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// AppendNumber appends a number unless it is 0, as proto3 requires. A negative number of any width
// is extended to 64 bits first.
func AppendNumber(dst []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return binary.AppendUvarint(binary.AppendUvarint(dst, protowire.EncodeTag(field, protowire.VarintType)), v)
}

// OpenShort begins a message of less than 128 bytes, whose length takes one byte. The caller appends
// the fields of the message, and then calls CloseShort with the length that dst had after OpenShort.
func OpenShort(dst []byte, field protowire.Number) []byte {
	return append(binary.AppendUvarint(dst, protowire.EncodeTag(field, protowire.BytesType)), 0)
}

// CloseShort ends the message whose first field is at start. The message must have less than 128
// bytes: a longer one would be damaged.
func CloseShort(dst []byte, start int) { dst[start-1] = byte(len(dst) - start) }
