package bench

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// batchRequest is a request of PutBatch that is sent many times.
type batchRequest struct {
	message *belfryv1.PutBatchRequest
	// encoded is the message as it is sent, nil if it is encoded for each call; bodies are the places
	// of the bodies in it.
	encoded []byte
	bodies  [][]byte
}

// encode encodes the message once for all calls.
func (b *batchRequest) encode() error {
	encoded, err := proto.Marshal(b.message)
	if err != nil {
		return fmt.Errorf("encoding a batch: %w", err)
	}
	b.encoded, b.bodies = encoded, nil
	for rest := encoded; len(rest) > 0; {
		_, job, size := nextField(rest)
		if size < 0 {
			return errBatch
		}
		for rest = rest[size:]; len(job) > 0; {
			field, value, size := nextField(job)
			if size < 0 {
				return errBatch
			}
			if job = job[size:]; field == fieldData {
				b.bodies = append(b.bodies, value)
			}
		}
	}
	return nil
}

// errBatch cannot happen: all fields of a job of this package are messages, strings or bytes.
var errBatch = errors.New("a batch has a field that was not expected")

// batchAnswer is the answer to PutBatch as far as it is looked at here: how many jobs were put, and
// whether all were.
type batchAnswer struct {
	// puts is how many entries stand before the failure, or in all.
	puts int
	// failure is the error of the first entry that has one.
	failure *belfryv1.EntryError
}

// codec is binary protobuf, for messages, batchRequest and batchAnswer.
type codec struct{}

// Name implements connect.Codec.
func (codec) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (c codec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend lets Connect use its buffers again.
func (codec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	switch m := message.(type) {
	case *batchRequest:
		if m.encoded != nil {
			return append(dst, m.encoded...), nil
		}
		return proto.MarshalOptions{}.MarshalAppend(dst, m.message)
	case proto.Message:
		return proto.MarshalOptions{}.MarshalAppend(dst, m)
	default:
		return nil, fmt.Errorf("marshalling: %T is no protobuf message", message)
	}
}

// Unmarshal implements connect.Codec.
func (codec) Unmarshal(data []byte, message any) error {
	switch m := message.(type) {
	case *batchAnswer:
		return m.read(data)
	case proto.Message:
		return proto.Unmarshal(data, m)
	default:
		return fmt.Errorf("unmarshalling: %T is no protobuf message", message)
	}
}

// The fields of the body, and of what became of a job.
const (
	fieldData protowire.Number = 8 // of PutRequest

	fieldResults protowire.Number = 1 // of PutBatchResponse
	fieldPut     protowire.Number = 1 // of PutBatchResult
	fieldError   protowire.Number = 2 // of PutBatchResult
)

var errAnswer = errors.New("the answer to PutBatch is no such message")

// read counts the entries up to the first that failed, of which the error is read in full. What a
// put says is not looked at.
func (a *batchAnswer) read(data []byte) error {
	for len(data) > 0 && a.failure == nil {
		field, entry, size := nextField(data)
		if size < 0 || field != fieldResults {
			return errAnswer
		}
		data = data[size:]
		kind, value, size := nextField(entry)
		switch {
		case size != len(entry):
			return errAnswer // nothing, or more than one result
		case kind == fieldPut:
			a.puts++
		case kind == fieldError:
			a.failure = &belfryv1.EntryError{}
			if err := proto.Unmarshal(value, a.failure); err != nil {
				return fmt.Errorf("reading the error of entry %d: %w", a.puts, err)
			}
		default:
			return errAnswer
		}
	}
	return nil
}

// nextField returns the first field of a message and its whole size, which is below 0 if it is not
// well formed or not bytes.
func nextField(data []byte) (field protowire.Number, value []byte, size int) {
	field, kind, tagSize := protowire.ConsumeTag(data)
	if tagSize < 0 || kind != protowire.BytesType {
		return 0, nil, -1
	}
	value, size = protowire.ConsumeBytes(data[tagSize:])
	if size < 0 {
		return 0, nil, -1
	}
	return field, value, tagSize + size
}
