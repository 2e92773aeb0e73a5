package rpc

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// readPutBatch reads a batch of which every field is known and well formed, and occurs once. It reports false if data is
// anything else, an error included; the message is then to be read anew.
func readPutBatch(data []byte, batch *belfryv1.PutBatchRequest) bool {
	jobs, ok := countJobs(data)
	if !ok {
		return false
	}
	batch.Reset()
	r := putReader{size: len(data)}
	requests := make([]belfryv1.PutRequest, jobs)
	batch.Jobs = make([]*belfryv1.PutRequest, 0, jobs)
	for len(data) > 0 {
		field, _, tagSize := protowire.ConsumeTag(data)
		value, size := protowire.ConsumeBytes(data[tagSize:])
		data = data[tagSize+size:]
		if field != fieldJobs {
			if !utf8.Valid(value) {
				return false
			}
			batch.RequestId = string(value)
			continue
		}
		at := len(batch.Jobs)
		r.ahead = jobs - at
		if put := &requests[at]; !r.read(value, put) {
			// Rare fields, or wrong ones: what is wrong is said about the whole message.
			if proto.Unmarshal(value, put) != nil {
				return false
			}
		}
		batch.Jobs = append(batch.Jobs, &requests[at])
	}
	return true
}

// The fields of PutBatchRequest.
const (
	fieldJobs           protowire.Number = 1
	fieldBatchRequestID protowire.Number = 2
)

// countJobs returns how many jobs a batch has. It reports false unless the batch is made of jobs and at most one request id.
func countJobs(data []byte) (jobs int, ok bool) {
	ids := 0
	for len(data) > 0 {
		field, kind, tagSize := protowire.ConsumeTag(data)
		if tagSize < 0 || kind != protowire.BytesType {
			return 0, false
		}
		_, size := protowire.ConsumeBytes(data[tagSize:])
		if size < 0 {
			return 0, false
		}
		switch field {
		case fieldJobs:
			jobs++
		case fieldBatchRequestID:
			ids++
		default:
			return 0, false
		}
		data = data[tagSize+size:]
	}
	return jobs, ids <= 1
}

// The fields of PutRequest that putReader reads; they are also the bits of what it has seen.
const (
	fieldQueue protowire.Number = iota + 1
	fieldID
	fieldDelay
	fieldDueAt
	fieldTTR
	fieldPriority
	fieldText
	fieldData
)

// putReader reads the jobs of one message. Nothing that it makes shares memory with the message, but ids, texts and bodies
// share it with each other. Names of queues stand alone, since meters keep them.
type putReader struct {
	size  int // of the message
	ahead int // how many jobs are still to be read
	queue string

	texts      texts
	bodies     []byte
	data       slab[belfryv1.PutRequest_Data]
	text       slab[belfryv1.PutRequest_Text]
	delays     slab[belfryv1.PutRequest_Delay]
	dueAts     slab[belfryv1.PutRequest_DueAt]
	durations  slab[durationpb.Duration]
	times      slab[timestamppb.Timestamp]
	priorities slab[int32]
}

// read reads a job into the zero message. It reports false, and leaves the message in any state, unless each field is one
// of those above, well formed, and there once. Of two alternatives the last counts, as in the generated code.
func (r *putReader) read(data []byte, put *belfryv1.PutRequest) bool {
	seen := 0
	for len(data) > 0 {
		field, kind, size := protowire.ConsumeTag(data)
		if size < 0 || field > fieldData || seen&(1<<field) != 0 {
			return false
		}
		seen |= 1 << field
		data = data[size:]
		if field == fieldPriority {
			number, size := protowire.ConsumeVarint(data)
			if kind != protowire.VarintType || size < 0 {
				return false
			}
			put.Priority = r.priorities.next(r.ahead)
			*put.Priority = int32(number) // the upper half does not count, as in the generated code
			data = data[size:]
			continue
		}
		value, size := protowire.ConsumeBytes(data)
		if kind != protowire.BytesType || size < 0 || !r.set(put, field, value) {
			return false
		}
		data = data[size:]
	}
	return true
}

// set sets a field that is a string, bytes or a message.
func (r *putReader) set(put *belfryv1.PutRequest, field protowire.Number, value []byte) bool {
	switch field {
	case fieldQueue:
		if string(value) != r.queue { // most batches are for one queue
			r.queue = string(value)
		}
		put.Queue = r.queue
		return utf8.ValidString(r.queue)
	case fieldID:
		put.Id = r.texts.add(value, r.size)
		return utf8.Valid(value)
	case fieldDelay:
		delay := r.delays.next(r.ahead)
		put.When, delay.Delay = delay, r.durations.next(r.ahead)
		return readSeconds(value, &delay.Delay.Seconds, &delay.Delay.Nanos)
	case fieldDueAt:
		due := r.dueAts.next(r.ahead)
		put.When, due.DueAt = due, r.times.next(r.ahead)
		return readSeconds(value, &due.DueAt.Seconds, &due.DueAt.Nanos)
	case fieldTTR:
		put.Ttr = r.durations.next(r.ahead)
		return readSeconds(value, &put.Ttr.Seconds, &put.Ttr.Nanos)
	case fieldText:
		text := r.text.next(r.ahead)
		put.Body, text.Text = text, r.texts.add(value, r.size)
		return utf8.Valid(value)
	case fieldData:
		body := r.data.next(r.ahead)
		put.Body, body.Data = body, r.body(value)
		return true
	default:
		return false
	}
}

// body returns a copy of a body.
func (r *putReader) body(value []byte) []byte {
	if r.bodies == nil {
		r.bodies = make([]byte, 0, r.size)
	}
	start := len(r.bodies)
	r.bodies = append(r.bodies, value...)
	return r.bodies[start:len(r.bodies):len(r.bodies)]
}

// readSeconds reads the two fields that google.protobuf.Duration and Timestamp have.
func readSeconds(data []byte, seconds *int64, nanos *int32) bool {
	for len(data) > 0 {
		field, kind, size := protowire.ConsumeTag(data)
		if size < 0 || kind != protowire.VarintType {
			return false
		}
		data = data[size:]
		number, size := protowire.ConsumeVarint(data)
		if size < 0 {
			return false
		}
		data = data[size:]
		switch field {
		case fieldSeconds:
			*seconds = int64(number)
		case fieldNanos:
			*nanos = int32(number)
		default:
			return false
		}
	}
	return true
}
