package wire

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/protofield"
)

// These are the fields of the messages in answers to batches.
const (
	fieldResults protowire.Number = 1 // of PutBatchResponse and AckBatchResponse

	fieldPut protowire.Number = 1 // of PutBatchResult
	fieldAck protowire.Number = 1 // of AckBatchResult

	fieldAckWitness protowire.Number = 1 // of AckResponse

	fieldPutID       protowire.Number = 1 // of PutResponse
	fieldPutDueAt    protowire.Number = 2
	fieldPutCreated  protowire.Number = 3
	fieldPutState    protowire.Number = 4
	fieldPutWitness  protowire.Number = 5
	fieldPutReplaced protowire.Number = 6
	fieldPutVersion  protowire.Number = 7

	fieldWitnessShard protowire.Number = 1
	fieldWitnessTerm  protowire.Number = 2
	fieldWitnessIndex protowire.Number = 3
	fieldWitnessEntry protowire.Number = 4
	fieldWitnessTime  protowire.Number = 5
)

// These are the tags of results and of their contents.
const (
	tagOfResults = byte(fieldResults<<3) | byte(protowire.BytesType)
	tagOfPut     = byte(fieldPut<<3) | byte(protowire.BytesType)
)

// AppendResult appends an entry with the generated code.
func AppendResult(dst []byte, result proto.Message) ([]byte, error) {
	data, err := proto.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("writing an entry of an answer: %w", err)
	}
	return protowire.AppendBytes(protowire.AppendTag(dst, fieldResults, protowire.BytesType), data), nil
}

// A PutWriter writes the entries of PutBatchResponse that are no errors, one after the other. The
// zero value is ready for use, by one goroutine.
type PutWriter struct {
	scratch []byte
	due     timeWriter
	witness witnessWriter
}

// Append appends the answer to a put as an entry of PutBatchResponse. id is the id that the caller
// gave; if it is empty, the answer has the id of the result. request and entry are as for
// AckWriter.Append.
func (w *PutWriter) Append(dst []byte, id string, result *fsm.Result, request *node.Witness, entry uint32) []byte {
	put := w.put(id, result, request, entry)
	dst = append(dst, tagOfResults)
	dst = binary.AppendUvarint(dst, uint64(1+protowire.SizeBytes(len(put))))
	dst = append(dst, tagOfPut)
	return append(binary.AppendUvarint(dst, uint64(len(put))), put...)
}

// put returns a PutResponse, which is valid until the next call.
func (w *PutWriter) put(id string, result *fsm.Result, request *node.Witness, entry uint32) []byte {
	dst := protofield.AppendText(w.scratch[:0], fieldPutID, id)
	if id == "" {
		dst = protofield.OpenShort(dst, fieldPutID)
		start := len(dst)
		dst = appendGeneratedID(dst, result.Partition, result.Serial)
		protofield.CloseShort(dst, start)
	}
	dst = w.due.append(dst, fieldPutDueAt, result.Due, setCeilTime)
	dst = protofield.AppendNumber(dst, fieldPutCreated, protowire.EncodeBool(result.Created))
	dst = protofield.AppendNumber(dst, fieldPutState, uint64(State(result.State))) //nolint:gosec // states are above 0
	dst = w.witness.append(dst, fieldPutWitness, request, entry)
	dst = protofield.AppendNumber(dst, fieldPutReplaced, protowire.EncodeBool(result.Replaced))
	w.scratch = protofield.AppendNumber(dst, fieldPutVersion, PutVersion(result))
	return w.scratch
}

// An AckWriter writes the entries of AckBatchResponse that are no errors, one after the other. The
// zero value is ready for use, by one goroutine.
type AckWriter struct{ witness witnessWriter }

// Append appends the answer to an ack as an entry of AckBatchResponse. request is the witness of
// the request that carried the ack, nil if no entry was logged, and entry is the index of the ack
// in that request. The answers to one request are written faster if they share one pointer.
func (w *AckWriter) Append(dst []byte, request *node.Witness, entry uint32) []byte {
	dst = protofield.OpenShort(dst, fieldResults)
	outer := len(dst)
	dst = protofield.OpenShort(dst, fieldAck)
	inner := len(dst)
	dst = w.witness.append(dst, fieldAckWitness, request, entry)
	protofield.CloseShort(dst, inner)
	protofield.CloseShort(dst, outer)
	return dst
}

// appendGeneratedID appends what fsm.FormatID returns, without making a string of it.
func appendGeneratedID(dst []byte, partition uint32, serial uint64) []byte {
	dst = strconv.AppendUint(dst, uint64(partition), 10)
	return strconv.AppendUint(append(dst, '-'), serial, 10)
}

// witnessWriter writes the witnesses of the commands of one request, which differ only in their
// entry.
type witnessWriter struct {
	of   *node.Witness
	head []byte // shard, term and index
	tail []byte // time
}

// append appends the witness of a command, unless no entry was logged.
func (w *witnessWriter) append(dst []byte, field protowire.Number, request *node.Witness, entry uint32) []byte {
	if request == nil {
		return dst
	}
	if request != w.of {
		w.of = request
		w.head = protofield.AppendNumber(w.head[:0], fieldWitnessShard, uint64(w.of.Shard))
		w.head = protofield.AppendNumber(w.head, fieldWitnessTerm, w.of.Term)
		w.head = protofield.AppendNumber(w.head, fieldWitnessIndex, w.of.Index)
		w.tail = appendTimestamp(w.tail[:0], fieldWitnessTime, ExactTime(w.of.Time))
	}
	dst = protofield.OpenShort(dst, field)
	start := len(dst)
	dst = append(dst, w.head...)
	dst = protofield.AppendNumber(dst, fieldWitnessEntry, uint64(w.of.Entry+entry))
	dst = append(dst, w.tail...)
	protofield.CloseShort(dst, start)
	return dst
}

// timeWriter writes times. Neighbouring times are often the same.
type timeWriter struct {
	of   fsm.Time
	text []byte
}

// append appends a time as convert returns it, unless it is 0. field and convert must always be the
// same.
func (w *timeWriter) append(dst []byte, field protowire.Number, t fsm.Time,
	convert func(*timestamppb.Timestamp, fsm.Time)) []byte {
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

// appendWitness appends a Witness unless it is nil. A Witness has at most 58 bytes, because it holds
// only numbers.
func appendWitness(dst []byte, field protowire.Number, w *belfryv1.Witness) []byte {
	if w == nil {
		return dst
	}
	dst = protofield.OpenShort(dst, field)
	start := len(dst)
	dst = protofield.AppendNumber(dst, fieldWitnessShard, uint64(w.Shard))
	dst = protofield.AppendNumber(dst, fieldWitnessTerm, w.Term)
	dst = protofield.AppendNumber(dst, fieldWitnessIndex, w.Index)
	dst = protofield.AppendNumber(dst, fieldWitnessEntry, uint64(w.Entry))
	dst = appendTimestamp(dst, fieldWitnessTime, w.Time)
	protofield.CloseShort(dst, start)
	return dst
}

// appendTimestamp appends a Timestamp unless it is nil.
func appendTimestamp(dst []byte, field protowire.Number, t *timestamppb.Timestamp) []byte {
	if t == nil {
		return dst
	}
	return protofield.AppendSeconds(dst, field, t.Seconds, t.Nanos)
}
