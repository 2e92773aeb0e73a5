package client

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The answers to PutBatch, AckBatch and Reserve are decoded here, directly into what callers get.
// The generated code would decode them into messages of which most are thrown away: at 100,000
// calls a second those are most of a client's garbage.

// A wireDecoder is an answer that decodes itself. It does not keep data.
type wireDecoder interface{ decodeWire(data []byte) error }

// codec is the binary protobuf encoding, for messages and for answers that decode themselves.
type codec struct{}

// Name implements connect.Codec.
func (codec) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (c codec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend lets Connect reuse its buffers.
func (codec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	if raw, ok := message.(*rawRequest); ok {
		return append(dst, *raw...), nil
	}
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", message)
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m)
}

// Unmarshal implements connect.Codec.
func (codec) Unmarshal(data []byte, message any) error {
	switch m := message.(type) {
	case wireDecoder:
		return m.decodeWire(data)
	case proto.Message:
		return proto.Unmarshal(data, m)
	default:
		return fmt.Errorf("%T is no message", message)
	}
}

var errTruncated = errors.New("the answer is not a valid message")

// A wireField is one field of a message. bytes holds the value of a string, bytes or message field;
// number holds that of any other.
type wireField struct {
	field  protowire.Number
	bytes  []byte
	number uint64
}

// nextField removes the first field from data. It skips groups, which no version of the API has.
func nextField(data []byte) (f wireField, rest []byte, err error) {
	if f, rest, ok := shortField(data); ok {
		return f, rest, nil
	}
	field, kind, n := protowire.ConsumeTag(data)
	if n < 0 {
		return f, nil, errTruncated
	}
	f.field, data = field, data[n:]
	switch kind {
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(data)
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(data)
	default:
		f.field = 0 // no field that is known here has this form
		n = protowire.ConsumeFieldValue(field, kind, data)
	}
	if n < 0 {
		return f, nil, errTruncated
	}
	return f, data[n:], nil
}

// shortField is nextField for the most common form: a tag of one or two bytes, then a value or a
// length of one byte. ok is false for any other.
func shortField(data []byte) (f wireField, rest []byte, ok bool) {
	if len(data) < 3 {
		return f, nil, false
	}
	tag, at := uint(data[0]), 1
	if tag >= 0x80 {
		tag, at = tag&0x7f|uint(data[1])<<7, 2
	}
	value := int(data[at])
	f.field = protowire.Number(tag >> 3) //nolint:gosec // 15 bits at most
	if tag >= 1<<14 || value >= 0x80 || f.field == 0 {
		return f, nil, false
	}
	data = data[at+1:]
	switch protowire.Type(tag & 7) { //nolint:gosec // three bits
	case protowire.VarintType:
		f.number = uint64(value)
		return f, data, true
	case protowire.BytesType:
		if value > len(data) {
			return f, nil, false
		}
		f.bytes = data[:value:value]
		return f, data[value:], true
	default:
		return f, nil, false
	}
}

// eachField calls f for each field of a message.
func eachField(data []byte, f func(f wireField) error) error {
	for len(data) > 0 {
		field, rest, err := nextField(data)
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

// countFields returns how often a field occurs.
func countFields(data []byte, number protowire.Number) (n int, err error) {
	for len(data) > 0 {
		var f wireField
		if f, data, err = nextField(data); err != nil {
			return 0, err
		}
		if f.field == number {
			n++
		}
	}
	return n, nil
}

// wireTime decodes a google.protobuf.Timestamp.
func wireTime(data []byte) (time.Time, error) {
	seconds, nanos, err := wireSeconds(data)
	return time.Unix(seconds, nanos).UTC(), err
}

// A timeDecoder decodes times whose neighbours are often equal. It keeps a reference to what it
// decoded last.
type timeDecoder struct {
	data []byte
	time time.Time
}

// decode decodes a google.protobuf.Timestamp.
func (d *timeDecoder) decode(data []byte) (t time.Time, err error) {
	if len(data) > 0 && bytes.Equal(data, d.data) {
		return d.time, nil
	}
	if t, err = wireTime(data); err == nil {
		d.data, d.time = data, t
	}
	return t, err
}

// textsTogether is about how many bytes of text share a piece of memory. Fewer pieces cost less,
// but a text that is kept for long keeps its whole piece.
const textsTogether = 512

// texts makes strings that share pieces of memory.
type texts struct{ piece strings.Builder }

// add makes a string of text. left is how many similar ones are to come, including this one.
func (t *texts) add(text []byte, left int) string {
	if t.piece.Cap()-t.piece.Len() < len(text) {
		t.piece.Reset()
		t.piece.Grow(max(len(text), min(left*len(text), textsTogether)))
	}
	start := t.piece.Len()
	t.piece.Write(text)
	return t.piece.String()[start:]
}

// wireDuration decodes a google.protobuf.Duration of at most 292 years.
func wireDuration(data []byte) (time.Duration, error) {
	seconds, nanos, err := wireSeconds(data)
	return time.Duration(seconds)*time.Second + time.Duration(nanos), err
}

func wireSeconds(data []byte) (seconds, nanos int64, err error) {
	for len(data) > 0 {
		var f wireField
		if f, data, err = nextField(data); err != nil {
			return 0, 0, err
		}
		switch f.field {
		case 1:
			seconds = int64(f.number)
		case 2:
			nanos = int64(int32(f.number))
		}
	}
	return seconds, nanos, nil
}

// A putBatchAnswer is the answer to PutBatch.
type putBatchAnswer struct{ replies []reply[PutResult] }

func (a *putBatchAnswer) decodeWire(data []byte) (err error) {
	var d putDecoder
	a.replies, err = decodeReplies(data, d.decode)
	return err
}

// decodeReplies decodes the answer to a batch. set decodes the result of an entry that succeeded.
func decodeReplies[R any](data []byte, set func(r *R, data []byte, left int) error) ([]reply[R], error) {
	n, err := countFields(data, 1)
	if err != nil {
		return nil, err
	}
	replies := make([]reply[R], 0, n)
	for len(data) > 0 {
		var f wireField
		if f, data, err = nextField(data); err != nil {
			return replies, err
		}
		if f.field != 1 {
			continue
		}
		replies = append(replies, reply[R]{})
		last := len(replies) - 1
		if err := decodeReply(&replies[last], f.bytes, set, n-last); err != nil {
			return replies, err
		}
	}
	return replies, nil
}

// decodeReply decodes an entry of such an answer. If it has several results, the last counts, as in
// the generated code.
func decodeReply[R any](r *reply[R], data []byte, set func(r *R, data []byte, left int) error, left int) (err error) {
	known := false
	for len(data) > 0 {
		var f wireField
		if f, data, err = nextField(data); err != nil {
			return err
		}
		switch f.field {
		case 1:
			*r, known = reply[R]{}, true
			err = set(&r.res, f.bytes, left)
		case 2:
			known = true
			r.err, err = wireEntryError(f.bytes)
		}
		if err != nil {
			return err
		}
	}
	if !known {
		r.err = missingResult()
	}
	return nil
}

// A putDecoder decodes the results of one answer.
type putDecoder struct {
	ids texts
	due timeDecoder
}

// decode decodes a PutResponse. left is how many are still to be decoded, including this one.
func (d *putDecoder) decode(r *PutResult, data []byte, left int) (err error) {
	for len(data) > 0 {
		var f wireField
		if f, data, err = nextField(data); err != nil {
			return err
		}
		switch f.field {
		case 1:
			r.ID = d.ids.add(f.bytes, left)
		case 2:
			r.DueAt, err = d.due.decode(f.bytes)
		case 3:
			r.Created = f.number != 0
		case 4:
			r.State = stateOf(belfryv1.JobState(f.number))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// An ackBatchAnswer is the answer to AckBatch.
type ackBatchAnswer struct{ replies []reply[struct{}] }

func (a *ackBatchAnswer) decodeWire(data []byte) (err error) {
	a.replies, err = decodeReplies(data, func(*struct{}, []byte, int) error { return nil })
	return err
}

// wireEntryError decodes an EntryError. Errors are rare, so the generated code does it.
func wireEntryError(data []byte) (*Error, error) {
	var m belfryv1.EntryError
	if err := proto.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("decoding the error of an entry: %w", err)
	}
	return entryError(&m), nil
}
