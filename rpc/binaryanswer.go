package rpc

import (
	"encoding/binary"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The fields of the messages in answers to batches.
const (
	fieldResults protowire.Number = 1 // of PutBatchResponse and AckBatchResponse

	fieldPut protowire.Number = 1 // of PutBatchResult
	fieldAck protowire.Number = 1 // of AckBatchResult

	fieldAckWitness protowire.Number = 1 // of AckResponse

	fieldPutID      protowire.Number = 1 // of PutResponse
	fieldPutDueAt   protowire.Number = 2
	fieldPutCreated protowire.Number = 3
	fieldPutState   protowire.Number = 4
	fieldPutWitness protowire.Number = 5

	fieldWitnessShard protowire.Number = 1
	fieldWitnessTerm  protowire.Number = 2
	fieldWitnessIndex protowire.Number = 3
	fieldWitnessEntry protowire.Number = 4
	fieldWitnessTime  protowire.Number = 5

	fieldSeconds protowire.Number = 1 // of Duration and Timestamp
	fieldNanos   protowire.Number = 2
)

// appendPutBatch appends an answer. It reports false if there is something in it that the generated code has to write, or to
// refuse.
func appendPutBatch(dst []byte, batch *belfryv1.PutBatchResponse) ([]byte, bool) {
	if batch == nil || hasUnknown(batch) {
		return nil, false
	}
	var check plainCheck
	var scratch []byte
	for _, result := range batch.Results {
		entry, ok := result.GetResult().(*belfryv1.PutBatchResult_Put)
		if ok && entry != nil && check.put(result, entry.Put) {
			scratch = appendPut(scratch[:0], entry.Put)
			dst = protowire.AppendTag(dst, fieldResults, protowire.BytesType)
			dst = protowire.AppendVarint(dst, uint64(protowire.SizeTag(fieldPut)+protowire.SizeBytes(len(scratch))))
			dst = protowire.AppendTag(dst, fieldPut, protowire.BytesType)
			dst = protowire.AppendBytes(dst, scratch)
			continue
		}
		if dst, ok = appendResult(dst, result); !ok {
			return nil, false
		}
	}
	return dst, true
}

// appendAckBatch is appendPutBatch for acks.
func appendAckBatch(dst []byte, batch *belfryv1.AckBatchResponse) ([]byte, bool) {
	if batch == nil || hasUnknown(batch) {
		return nil, false
	}
	var check plainCheck
	for _, result := range batch.Results {
		entry, ok := result.GetResult().(*belfryv1.AckBatchResult_Ack)
		if ok && entry != nil && check.ack(result, entry.Ack) {
			dst = openShort(dst, fieldResults)
			outer := len(dst)
			dst = openShort(dst, fieldAck)
			inner := len(dst)
			dst = appendWitness(dst, fieldAckWitness, entry.Ack.Witness)
			closeShort(dst, inner)
			closeShort(dst, outer)
			continue
		}
		if dst, ok = appendResult(dst, result); !ok {
			return nil, false
		}
	}
	return dst, true
}

// appendResult appends an entry by the generated code.
func appendResult(dst []byte, result proto.Message) ([]byte, bool) {
	data, err := proto.Marshal(result)
	if err != nil {
		return nil, false
	}
	return protowire.AppendBytes(protowire.AppendTag(dst, fieldResults, protowire.BytesType), data), true
}

// plainCheck finds entries that may be written by hand: there is nothing in them that this program does not know, and ids
// are text.
type plainCheck struct {
	// due and time are the last that were found plain: neighbours share theirs.
	due, time *timestamppb.Timestamp
	shared    *belfryv1.Witness
}

// put reports whether a put is plain.
func (c *plainCheck) put(result *belfryv1.PutBatchResult, put *belfryv1.PutResponse) bool {
	if put == nil || hasUnknown(result) || hasUnknown(put) || !utf8.ValidString(put.Id) {
		return false
	}
	if due := put.DueAt; due != nil && due != c.due {
		if hasUnknown(due) {
			return false
		}
		c.due = due
	}
	return c.witness(put.Witness)
}

// ack reports whether an ack is plain.
func (c *plainCheck) ack(result *belfryv1.AckBatchResult, ack *belfryv1.AckResponse) bool {
	return ack != nil && !hasUnknown(result) && !hasUnknown(ack) && c.witness(ack.Witness)
}

// witness reports whether a witness is plain, or not there.
func (c *plainCheck) witness(w *belfryv1.Witness) bool {
	if w == nil || w == c.shared {
		return true
	}
	if hasUnknown(w) || w.Time != nil && w.Time != c.time && hasUnknown(w.Time) {
		return false
	}
	c.time, c.shared = w.Time, w
	return true
}

// hasUnknown reports whether a message that was read has fields that this program does not know.
func hasUnknown(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }

// appendPut appends a PutResponse.
func appendPut(dst []byte, put *belfryv1.PutResponse) []byte {
	dst = appendText(dst, fieldPutID, put.Id)
	dst = appendTimestamp(dst, fieldPutDueAt, put.DueAt)
	dst = appendNumber(dst, fieldPutCreated, protowire.EncodeBool(put.Created))
	dst = appendNumber(dst, fieldPutState, uint64(put.State))
	return appendWitness(dst, fieldPutWitness, put.Witness)
}

// appendWitness appends a Witness unless it is nil.
func appendWitness(dst []byte, field protowire.Number, w *belfryv1.Witness) []byte {
	if w == nil {
		return dst
	}
	dst = openShort(dst, field)
	start := len(dst)
	dst = appendNumber(dst, fieldWitnessShard, uint64(w.Shard))
	dst = appendNumber(dst, fieldWitnessTerm, w.Term)
	dst = appendNumber(dst, fieldWitnessIndex, w.Index)
	dst = appendNumber(dst, fieldWitnessEntry, uint64(w.Entry))
	dst = appendTimestamp(dst, fieldWitnessTime, w.Time)
	closeShort(dst, start)
	return dst
}

// appendTimestamp appends a Timestamp unless it is nil.
func appendTimestamp(dst []byte, field protowire.Number, t *timestamppb.Timestamp) []byte {
	if t == nil {
		return dst
	}
	return appendSeconds(dst, field, t.Seconds, t.Nanos)
}

// appendSeconds appends a Timestamp or a Duration.
func appendSeconds(dst []byte, field protowire.Number, seconds int64, nanos int32) []byte {
	dst = openShort(dst, field)
	start := len(dst)
	dst = appendNumber(dst, fieldSeconds, uint64(seconds))
	dst = appendNumber(dst, fieldNanos, uint64(nanos))
	closeShort(dst, start)
	return dst
}

// appendText appends a string unless it is empty.
func appendText(dst []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return dst
	}
	return protowire.AppendString(protowire.AppendTag(dst, field, protowire.BytesType), text)
}

// appendNumber appends a number unless it is 0, as proto3 has it.
func appendNumber(dst []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return binary.AppendUvarint(binary.AppendUvarint(dst, protowire.EncodeTag(field, protowire.VarintType)), v)
}

// openShort begins a message of less than 128 bytes, of which the length is one byte. Being made of numbers alone, a Timestamp
// has at most 22 bytes and a Witness 58.
func openShort(dst []byte, field protowire.Number) []byte {
	return append(protowire.AppendTag(dst, field, protowire.BytesType), 0)
}

// closeShort ends the message that starts at start.
func closeShort(dst []byte, start int) { dst[start-1] = byte(len(dst) - start) }
