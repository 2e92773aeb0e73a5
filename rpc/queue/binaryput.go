package queue

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// PutBatchBytes is the fast path of PutBatch. It appends the bytes of the answer to dst, and keeps
// no part of the request. Its errors are faults.
func (s *Service) PutBatchBytes(ctx context.Context, request, dst []byte) ([]byte, error) {
	b, ok := s.puts.Get().(*putBatch)
	if !ok {
		b = &putBatch{}
	}
	r := putReader{batch: b, check: s.rules.Request(ctx, tokens.Put), bounds: s.codec.Bounds, request: request}
	if !r.read() {
		b.release(&s.puts)
		return codec.SlowPath(ctx, s.codec, request, dst, s.PutBatch)
	}
	s.auditEntries(ctx, belfryv1connect.QueueServicePutBatchProcedure, r.check.Permissions.Refusals())
	s.putAll(ctx, r.requestID, b)
	dst, err := appendPuts(dst, b)
	if err == nil && !b.failed() {
		b.release(&s.puts)
	}
	return dst, err
}

// appendPuts appends the answer to a batch of puts. The generated code encodes failed entries.
func appendPuts(dst []byte, b *putBatch) ([]byte, error) {
	var w wire.PutWriter
	for i := range b.answers {
		if f := b.answers[i].Fault; f != nil {
			var err error
			if dst, err = wire.AppendResult(dst,
				&belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Error{Error: f.Entry()}}); err != nil {
				return nil, err
			}
			continue
		}
		a := &b.answers[i]
		dst = w.Append(dst, b.puts[i].ID, a.Result, a.Request, a.Entry)
	}
	return dst, nil
}

// putBatch holds the parts of a batch of puts, each allocated once for all jobs. Its memory is
// reused.
type putBatch struct {
	all      []fsm.Put
	puts     []*fsm.Put // in all; nil for an entry that already has its fault
	answers  []shardcall.Answer
	commands []shardcall.Command
	bodies   []byte
	// queue is the first queue that the call names. several is set if the call names another.
	queue   string
	several bool
}

// name records the queue that an entry of the call names, even if the entry is wrong otherwise.
func (b *putBatch) name(queue string) {
	if b.queue == "" {
		b.queue = queue
	}
	b.several = b.several || queue != "" && queue != b.queue
}

// split says how the call is split within a shard: by queue if it names several, else by namespace.
func (b *putBatch) split() shardcall.Split {
	if b.several {
		return shardcall.ByQueue
	}
	return shardcall.ByNamespace
}

// grow makes room for one more put.
func (b *putBatch) grow() *fsm.Put {
	b.answers = append(b.answers, shardcall.Answer{})
	if n := len(b.all); n < cap(b.all) {
		b.all = b.all[:n+1] // release and append leave the zero put there
	} else {
		b.all = append(b.all, fsm.Put{})
	}
	return &b.all[len(b.all)-1]
}

// failed reports whether an entry has a fault. The memory of such a batch is not reused: the node
// may still hold the commands of a call that it gave up.
func (b *putBatch) failed() bool { return shardcall.AnyFault(b.answers) }

// release returns the memory to the pool.
func (b *putBatch) release(to *sync.Pool) {
	clear(b.all)
	clear(b.puts)
	clear(b.answers)
	clear(b.commands)
	b.all, b.puts, b.answers, b.commands, b.bodies = b.all[:0], b.puts[:0], b.answers[:0], b.commands[:0], b.bodies[:0]
	b.queue, b.several = "", false
	if cap(b.bodies) <= codec.BufferBytesKept {
		to.Put(b)
	}
}

// These are the tags of PutBatchRequest, and those of PutRequest that putReader reads.
const (
	tagJobs           = 1<<3 | byte(protowire.BytesType)
	tagBatchRequestID = 2<<3 | byte(protowire.BytesType)

	tagQueue    = 1<<3 | byte(protowire.BytesType)
	tagID       = 2<<3 | byte(protowire.BytesType)
	tagDelay    = 3<<3 | byte(protowire.BytesType)
	tagDueAt    = 4<<3 | byte(protowire.BytesType)
	tagTTR      = 5<<3 | byte(protowire.BytesType)
	tagPriority = 6<<3 | byte(protowire.VarintType)
	tagText     = 7<<3 | byte(protowire.BytesType)
	tagData     = 8<<3 | byte(protowire.BytesType)
	tagKey      = 15<<3 | byte(protowire.BytesType)
)

// putReader reads the jobs of a batch into commands, with the same result as the generated code and
// check.Request.Put. These two read a job with an unusual field or an error, and the whole batch if
// the error is in the batch itself. What putReader allocates shares no memory with the request.
// Each name of a queue has its own memory, since other parts of the server keep it.
type putReader struct {
	batch   *putBatch
	check   *check.Request
	bounds  codec.Bounds
	request []byte

	requestID string
	queue     string // the last one that was found valid
	ids       texts
	bounded   bool // the request does not have too many elements
}

// batchBytesPerIDByte estimates the bytes of a batch of small jobs for each byte of their ids.
const batchBytesPerIDByte = 8

// read reads the batch. It returns false if the message as a whole is unusual or wrong.
func (r *putReader) read() bool {
	seen, sum := false, 0
	r.batch.bodies = slices.Grow(r.batch.bodies, len(r.request))
	for data := r.request; len(data) > 0; {
		tag := data[0]
		value, rest, ok := cutBytes(data[1:])
		if !ok {
			return false
		}
		data = rest
		switch {
		case tag == tagJobs && len(r.batch.all) < r.check.Limits.BatchJobsMax:
			size, ok := r.entry(value)
			if sum += size; !ok || sum > r.check.Limits.BatchBytesMax {
				return false
			}
		case tag == tagBatchRequestID && !seen && len(value) <= r.check.Limits.RequestIDBytesMax && utf8.Valid(value):
			seen, r.requestID = true, string(value)
		default:
			return false
		}
	}
	b := r.batch
	for i := range b.all {
		put := &b.all[i]
		if b.answers[i].Fault != nil {
			put = nil
		}
		b.puts = append(b.puts, put)
	}
	return len(b.all) > 0
}

// entry reads a job. size is what the job adds to the size of a batch. ok is false if the job is
// malformed.
func (r *putReader) entry(data []byte) (size int, ok bool) {
	put := r.batch.grow()
	if size, ok = r.plain(data, put); ok {
		r.batch.name(put.Queue)
		return size, true
	}
	if !r.bounded && r.bounds.CheckBinary(r.request, &belfryv1.PutBatchRequest{}) != nil {
		return 0, false
	}
	r.bounded = true
	var job belfryv1.PutRequest
	if proto.Unmarshal(data, &job) != nil {
		return 0, false
	}
	*put = fsm.Put{}
	r.batch.name(job.GetQueue())
	size, r.batch.answers[len(r.batch.answers)-1].Fault = r.check.Entry(&job, put)
	return size, true
}

// plain reads a job without errors that has only fields of the tags above, each at most once. For
// other jobs it returns false, and leaves the put in any state.
func (r *putReader) plain(data []byte, put *fsm.Put) (size int, ok bool) {
	var seen uint
	for len(data) > 0 {
		tag := data[0]
		field := uint(1) << (tag >> 3)
		if tag > tagData && tag != tagKey || seen&field != 0 {
			return 0, false
		}
		seen |= field
		if tag == tagPriority {
			n, w := binary.Uvarint(data[1:])
			priority := int64(n) //nolint:gosec // as protobuf has it
			if w > 0 && priority >= fsm.PriorityMin && priority <= fsm.PriorityMax {
				put.Priority, put.Given, data = priority, put.Given|fsm.GivenPriority, data[1+w:]
				continue
			}
			return 0, false
		}
		value, rest, ok := cutBytes(data[1:])
		if !ok || !r.set(put, tag, value) {
			return 0, false
		}
		data = rest
	}
	const ofQueue, ofWhen, ofBody = 1 << (tagQueue >> 3), 1<<(tagDelay>>3) | 1<<(tagDueAt>>3),
		1<<(tagText>>3) | 1<<(tagData>>3)
	ok = seen&ofQueue != 0 && seen&ofWhen != ofWhen && seen&ofBody != ofBody &&
		len(put.Body) <= r.check.Limits.BodyBytesMax
	return len(put.Body) + len(put.ID) + len(put.Key), ok
}

// set sets a field that is a string, bytes or a message.
func (r *putReader) set(put *fsm.Put, tag byte, value []byte) (ok bool) {
	switch tag {
	case tagQueue:
		if string(value) != r.queue { // most batches are for one queue
			if !r.check.AcceptsQueue(string(value)) {
				return false
			}
			r.queue = string(value)
		}
		put.Queue = r.queue
		return r.queue != ""
	case tagID:
		put.ID = r.ids.add(value, len(r.request)/batchBytesPerIDByte)
		return len(value) <= r.check.Limits.IDBytesMax && !check.IsReservedID(put.ID) && utf8.Valid(value)
	case tagKey:
		put.Key = r.ids.add(value, len(r.request)/batchBytesPerIDByte)
		return len(value) <= r.check.Limits.KeyBytesMax && utf8.Valid(value)
	case tagDelay:
		put.Delay, ok = r.duration(value, 0, r.check.Limits.DelayMax)
		put.Delay, put.Given = wire.CeilMillis(put.Delay), put.Given|fsm.GivenDelay
		return ok
	case tagDueAt:
		put.DueAt, ok = r.time(value)
		put.Given |= fsm.GivenDueAt
		return ok
	case tagTTR:
		put.TTR, ok = r.duration(value, r.check.Limits.TTRMin, r.check.Limits.TTRMax)
		put.Given |= fsm.GivenTTR
		return ok
	case tagText:
		put.Body = r.body(value)
		return utf8.Valid(value)
	case tagData:
		put.Body = r.body(value)
		return true
	default:
		return false
	}
}

// body returns a copy of a body.
func (r *putReader) body(value []byte) []byte {
	start := len(r.batch.bodies)
	r.batch.bodies = append(r.batch.bodies, value...)
	return r.batch.bodies[start:len(r.batch.bodies):len(r.batch.bodies)]
}

// duration reads a google.protobuf.Duration in a range that begins at 0 or above.
func (r *putReader) duration(value []byte, least, most time.Duration) (time.Duration, bool) {
	seconds, nanos, ok := readSeconds(value)
	if !ok || seconds > int64(most/time.Second) {
		return 0, false
	}
	d := time.Duration(seconds)*time.Second + time.Duration(nanos)
	return d, d >= least && d <= most
}

// time reads a google.protobuf.Timestamp that is neither before 1970 nor too far in the future.
func (r *putReader) time(value []byte) (fsm.Time, bool) {
	seconds, nanos, ok := readSeconds(value)
	if !ok || seconds > int64(fsm.TimeMax/fsm.Time(time.Second)) ||
		time.Unix(seconds, int64(nanos)).After(r.check.Now.Add(r.check.Limits.DelayMax)) {
		return 0, false
	}
	return wire.WholeMillis(max(1, fsm.Time(seconds)*fsm.Time(time.Second)+fsm.Time(nanos))), true
}

// These are the tags of Duration and Timestamp.
const (
	tagSeconds = 1<<3 | byte(protowire.VarintType)
	tagNanos   = 2<<3 | byte(protowire.VarintType)
)

// readSeconds reads the two fields of google.protobuf.Duration and Timestamp. It returns false for
// a negative field, and for nanos of a second or more; no valid job has them.
func readSeconds(data []byte) (seconds int64, nanos int32, ok bool) {
	for len(data) > 0 {
		tag := data[0]
		n, size := binary.Uvarint(data[1:])
		switch {
		case size <= 0:
			return 0, 0, false
		case tag == tagSeconds:
			seconds = int64(n)
		case tag == tagNanos:
			nanos = int32(n)
		default:
			return 0, 0, false
		}
		data = data[1+size:]
	}
	return seconds, nanos, seconds >= 0 && nanos >= 0 && nanos < 1e9
}

// cutBytes splits a length, and as many bytes, from data.
func cutBytes(data []byte) (value, rest []byte, ok bool) {
	n, size := binary.Uvarint(data)
	if size <= 0 || n > uint64(len(data)-size) {
		return nil, nil, false
	}
	return data[size : size+int(n) : size+int(n)], data[size+int(n):], true
}

// texts makes strings that share memory.
type texts struct{ all strings.Builder }

// add returns text as a string. sizeAhead is the expected size of all strings, this one included;
// only the first call uses it.
func (t *texts) add(text []byte, sizeAhead int) string {
	if t.all.Cap() == 0 {
		t.all.Grow(sizeAhead)
	}
	start := t.all.Len()
	t.all.Write(text)
	return t.all.String()[start:]
}
