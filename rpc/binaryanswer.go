package rpc

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// These are the fields of the messages in answers to batches.
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

// These are the tags of results and of their contents.
const (
	tagOfResults = byte(fieldResults<<3) | byte(protowire.BytesType)
	tagOfPut     = byte(fieldPut<<3) | byte(protowire.BytesType)
)

// appendPuts appends the answer to a batch of puts. The generated code encodes failed entries.
func appendPuts(dst []byte, b *putBatch) ([]byte, error) {
	var w putWriter
	for i := range b.answers {
		if f := b.answers[i].fault; f != nil {
			var err error
			if dst, err = appendResult(dst, &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Error{Error: f.entry()}}); err != nil {
				return nil, err
			}
			continue
		}
		put := w.put(b.puts[i], &b.answers[i])
		dst = append(dst, tagOfResults)
		dst = binary.AppendUvarint(dst, uint64(1+protowire.SizeBytes(len(put))))
		dst = append(dst, tagOfPut)
		dst = append(binary.AppendUvarint(dst, uint64(len(put))), put...)
	}
	return dst, nil
}

// appendAcks is appendPuts for acks.
func appendAcks(dst []byte, answers []answer) ([]byte, error) {
	var w witnessWriter
	for i := range answers {
		if f := answers[i].fault; f != nil {
			var err error
			if dst, err = appendResult(dst, &belfryv1.AckBatchResult{Result: &belfryv1.AckBatchResult_Error{Error: f.entry()}}); err != nil {
				return nil, err
			}
			continue
		}
		dst = openShort(dst, fieldResults)
		outer := len(dst)
		dst = openShort(dst, fieldAck)
		inner := len(dst)
		dst = w.append(dst, fieldAckWitness, &answers[i])
		closeShort(dst, inner)
		closeShort(dst, outer)
	}
	return dst, nil
}

// appendResult appends an entry with the generated code.
func appendResult(dst []byte, result proto.Message) ([]byte, error) {
	data, err := proto.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("writing an entry of an answer: %w", err)
	}
	return protowire.AppendBytes(protowire.AppendTag(dst, fieldResults, protowire.BytesType), data), nil
}

// putWriter writes the answers to puts one after the other.
type putWriter struct {
	scratch []byte
	due     timeWriter
	witness witnessWriter
}

// put returns a PutResponse, which is valid until the next call. It encodes the same response as
// wirePut.
func (w *putWriter) put(put *fsm.Put, a *answer) []byte {
	dst := appendText(w.scratch[:0], fieldPutID, put.ID)
	if put.ID == "" {
		dst = openShort(dst, fieldPutID)
		start := len(dst)
		dst = appendGeneratedID(dst, a.result.Partition, a.result.Serial)
		closeShort(dst, start)
	}
	dst = w.due.append(dst, fieldPutDueAt, a.result.Due, setCeilTime)
	dst = appendNumber(dst, fieldPutCreated, protowire.EncodeBool(a.result.Created))
	dst = appendNumber(dst, fieldPutState, uint64(wireState(a.result.State))) //nolint:gosec // states are above 0
	w.scratch = w.witness.append(dst, fieldPutWitness, a)
	return w.scratch
}

// witnessWriter writes the witnesses of the commands of one request, which differ only in their
// entry.
type witnessWriter struct {
	of   *node.Witness
	head []byte // shard, term and index
	tail []byte // time
}

// append appends the witness of a command, unless no entry was logged.
func (w *witnessWriter) append(dst []byte, field protowire.Number, a *answer) []byte {
	if a.request == nil {
		return dst
	}
	if a.request != w.of {
		w.of = a.request
		w.head = appendNumber(w.head[:0], fieldWitnessShard, uint64(w.of.Shard))
		w.head = appendNumber(w.head, fieldWitnessTerm, w.of.Term)
		w.head = appendNumber(w.head, fieldWitnessIndex, w.of.Index)
		w.tail = appendTimestamp(w.tail[:0], fieldWitnessTime, exactTime(w.of.Time))
	}
	dst = openShort(dst, field)
	start := len(dst)
	dst = append(dst, w.head...)
	dst = appendNumber(dst, fieldWitnessEntry, uint64(w.of.Entry+a.entry))
	dst = append(dst, w.tail...)
	closeShort(dst, start)
	return dst
}

// timeWriter writes times. Neighbouring times are often the same.
type timeWriter struct {
	of   fsm.Time
	text []byte
}

// append appends a time as convert returns it, unless it is 0. field and convert must always be the
// same.
func (w *timeWriter) append(dst []byte, field protowire.Number, t fsm.Time, convert func(*timestamppb.Timestamp, fsm.Time)) []byte {
	if t != w.of {
		w.of, w.text = t, w.text[:0]
		if t != 0 {
			var at timestamppb.Timestamp
			convert(&at, t)
			w.text = appendTimestamp(w.text, field, &at)
		}
	}
	return append(dst, w.text...)
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
	dst = binary.AppendUvarint(dst, protowire.EncodeTag(field, protowire.BytesType))
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// appendNumber appends a number unless it is 0, as proto3 requires.
func appendNumber(dst []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return binary.AppendUvarint(binary.AppendUvarint(dst, protowire.EncodeTag(field, protowire.VarintType)), v)
}

// openShort begins a message of less than 128 bytes, whose length takes one byte. A Timestamp has
// at most 22 bytes and a Witness 58, because they hold only numbers.
func openShort(dst []byte, field protowire.Number) []byte {
	return append(binary.AppendUvarint(dst, protowire.EncodeTag(field, protowire.BytesType)), 0)
}

// closeShort ends the message that starts at start.
func closeShort(dst []byte, start int) { dst[start-1] = byte(len(dst) - start) }
