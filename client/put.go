package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/client/internal/batchcodec"
	"github.com/belfrydb/belfry/client/internal/calls"
	"github.com/belfrydb/belfry/client/internal/coalesce"
	"github.com/belfrydb/belfry/client/internal/placement"
	"github.com/belfrydb/belfry/client/internal/session"
	"github.com/belfrydb/belfry/client/internal/tracing"
	"github.com/belfrydb/belfry/client/internal/values"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/stream"
)

// A PutOption sets one property of a job that is put. The zero value sets nothing.
type PutOption struct{ set func(r *belfryv1.PutRequest) }

// apply sets the property in a request.
func (o PutOption) apply(r *belfryv1.PutRequest) {
	if o.set != nil {
		o.set(r)
	}
}

// In makes the job due after d: 0 to 100 years.
func In(d time.Duration) PutOption {
	return PutOption{func(r *belfryv1.PutRequest) {
		when := new(struct {
			field belfryv1.PutRequest_Delay
			delay durationpb.Duration
		}) // one piece of memory for both
		when.delay.Seconds, when.delay.Nanos = int64(d/time.Second), int32(d%time.Second) //nolint:gosec // below a second
		when.field.Delay = &when.delay
		r.When = &when.field
	}}
}

// At makes the job due at t, at most 100 years from now. A time in the past means at once. If a
// program may repeat a put with an id, t must be the same each time, such as a date in the data.
// With At(time.Now().Add(d)) the repeat is a different job and fails with [ErrJobExists]; use [In]
// instead.
func At(t time.Time) PutOption {
	return PutOption{func(r *belfryv1.PutRequest) { r.When = &belfryv1.PutRequest_DueAt{DueAt: timestamppb.New(t)} }}
}

// ID gives the job an id that is unique in its queue: at most 256 bytes of UTF-8, not of the form
// <digits>-<digits>. While the job exists, and for the queue's dedup window after it ended, a
// repeat of the same put changes nothing. Its result describes what became of the first.
func ID(id string) PutOption {
	return PutOption{func(r *belfryv1.PutRequest) { r.Id = id }}
}

// TTR sets the length of the job's leases: 1 ms to 24 h. Default: the queue's.
func TTR(d time.Duration) PutOption {
	return PutOption{func(r *belfryv1.PutRequest) { r.Ttr = durationpb.New(d) }}
}

// Priority orders ready jobs: -128 to 4,294,967,295, lower leaves first. Default 0. Those from
// 4,294,967,167 on count as the last one. Above 127, all nodes must run a version with format 5.
func Priority(p int64) PutOption {
	return PutOption{func(r *belfryv1.PutRequest) { r.Priority = &p }}
}

// MaxAttempts is how many failed attempts make the job dead: 0 to 1,000,000, 0 for no limit.
// Default: the queue's.
func MaxAttempts(n uint32) PutOption {
	return PutOption{func(r *belfryv1.PutRequest) { r.MaxAttempts = &n }}
}

// RetryDelays are the delays after the first, second, … failed attempt; the last one repeats. At
// most 64, each 0 to 100 years. Default: the queue's.
func RetryDelays(delays ...time.Duration) PutOption {
	return PutOption{func(r *belfryv1.PutRequest) {
		r.RetryDelays = nil
		for _, d := range delays {
			r.RetryDelays = append(r.RetryDelays, durationpb.New(d))
		}
	}}
}

// TTL is how long the job may wait for a consumer, counted from the put: above 0, up to 100 years.
// Default: no limit.
func TTL(d time.Duration) PutOption {
	return PutOption{func(r *belfryv1.PutRequest) { r.Ttl = durationpb.New(d) }}
}

// Header adds a header for the consumer. All names and values together take at most 16 KiB; a name
// is not empty.
func Header(name, value string) PutOption {
	return PutOption{func(r *belfryv1.PutRequest) {
		if r.Headers == nil {
			r.Headers = make(map[string]string)
		}
		r.Headers[name] = value
	}}
}

// Again admits the job although an earlier job of the same id ended within the dedup window. It
// does not replace a job that still exists.
func Again() PutOption {
	return PutOption{func(r *belfryv1.PutRequest) { r.Again = true }}
}

// Key gives the job a key: at most 128 bytes of UTF-8. The queue's settings for keys hold for all jobs
// of one key together, such as how many of them run at one time. In a queue with several partitions
// all jobs of a key are in one of them, and an id is unique per key.
func Key(key string) PutOption {
	return PutOption{func(r *belfryv1.PutRequest) { r.Key = key }}
}

// An Existing says what a put does if a job has its id already.
type Existing int32

// The choices.
const (
	// ReturnExisting makes the put a repeat: it changes nothing, and its content must be that of the
	// job, else it fails with [ErrJobExists]. This is the default.
	ReturnExisting = Existing(belfryv1.OnExisting_ON_EXISTING_RETURN)
	// KeepExisting leaves the job as it is, whatever the content of the put.
	KeepExisting = Existing(belfryv1.OnExisting_ON_EXISTING_KEEP)
	// ReplaceExisting gives the job the content and the due time of the put. If the job is reserved,
	// the put fails with [ErrJobReserved].
	ReplaceExisting = Existing(belfryv1.OnExisting_ON_EXISTING_REPLACE)
	// NextExisting is ReplaceExisting, except that the put becomes the successor of a reserved job. It
	// takes over the id when that job ends. There is at most one successor; the last put wins.
	NextExisting = Existing(belfryv1.OnExisting_ON_EXISTING_NEXT)
)

// OnExisting says what the put does if a job has its id already. All choices but [ReturnExisting] need
// an [ID].
func OnExisting(e Existing) PutOption {
	return PutOption{func(r *belfryv1.PutRequest) { r.OnExisting = belfryv1.OnExisting(e) }}
}

// MaxWait bounds how long a job that is replaced again and again waits: it is due at most d after its
// first put. Above 0, up to 100 years; only with [ReplaceExisting] or [NextExisting].
func MaxWait(d time.Duration) PutOption {
	return PutOption{func(r *belfryv1.PutRequest) { r.MaxWait = durationpb.New(d) }}
}

// IfVersion admits the put only if a job of its id is held in this version, which [Job.Version] and
// [PutResult.Version] show. Else it fails with [ErrVersionChanged]. Only with [ReplaceExisting] or
// [NextExisting]; 0 admits any version.
func IfVersion(version uint64) PutOption {
	return PutOption{func(r *belfryv1.PutRequest) { r.IfVersion = version }}
}

// A Put describes a job to add, for [Client.PutBatch].
type Put struct {
	// Queue is the queue, "name" or "namespace/name". Its first put creates it.
	Queue string
	// Body is the job's content, at most 1 MiB. The client may read it until the call returns.
	Body []byte
	// Options say more.
	Options []PutOption
}

// A PutResult is the outcome of a put.
type PutResult struct {
	// ID is the job's id, chosen by the caller or generated by the server.
	ID string
	// DueAt is the due time in force. If this put was a repeat, it is that of the first.
	DueAt time.Time
	// Created is false if the same put was made before. The result then describes that job.
	Created bool
	// Replaced is set if the put gave a job that exists its content, or became its successor; see
	// [OnExisting].
	Replaced bool
	// Version is the version of the job: 1 for its first content, one more for each that replaced
	// it. 0 if the answer does not say: for a repeat with [ReturnExisting], and for a job that ended.
	Version uint64
	// State is the state of the job, or how it ended.
	State State
	// Err is the error of this entry of a batch, an [*Error]; no other field is then set. Always
	// nil outside batches.
	Err error
}

// Put adds a job to a queue. It may share a round trip with other puts; see [Coalescing]. The
// caller may reuse the body once Put has returned without an error. After an error the client may
// still read it for a while.
//
// Errors: [ErrJobExists], [ErrJobReserved], [ErrVersionChanged], [ErrQueueFull], [ErrRateLimited],
// [ErrUnknownOutcome], and others as [*Error]. Reason("QUEUE_NOT_FOUND") where the cluster's setting
// no-auto-create forbids puts to create queues.
func (c *Client) Put(ctx context.Context, queue string, body []byte, opts ...PutOption) (PutResult, error) {
	scratch := c.scratch()
	req, bytes, err := scratch.request(Put{Queue: queue, Body: body, Options: opts})
	if err != nil {
		c.free(scratch)
		return PutResult{}, err
	}
	ctx, op, extra := c.tracer.Put(ctx, req)
	res, err := c.put(ctx, scratch, req, bytes+carriedBytes(extra))
	op.EndPut(tracing.Put{ID: res.ID, Created: res.Created}, err)
	return res, err
}

// put sends req, the last put made in the scratch; bytes is its estimated size.
func (c *Client) put(ctx context.Context, scratch *putScratch, req *belfryv1.PutRequest,
	bytes int) (_ PutResult, err error) {
	if c.limits.Off || bytes > batchBytesMax {
		return c.putAlone(ctx, req) // the scratch is not used again: an attempt that was given up may still read it
	}
	put := encodedPut{place: putPlace(req)}
	put.wire, err = scratch.encode(nil, req)
	c.free(scratch)
	if err != nil {
		return PutResult{}, invalidError("encoding the put: %v", err)
	}
	res, failed := c.puts.to(c.endpoints.routes.Leader(put.place)).Do(ctx, put, bytes)
	if failed != nil {
		return PutResult{}, public(failed)
	}
	return res, nil
}

// putAlone sends a put in a call of its own.
func (c *Client) putAlone(ctx context.Context, req *belfryv1.PutRequest) (PutResult, error) {
	req.RequestId = c.clock.NewID()
	res, err := call(ctx, c, calls.Kind{ID: &req.RequestId, Place: putPlace(req)}, onQueue(queueMethods.Put, req))
	if err != nil {
		return PutResult{}, err
	}
	return putResult(res), nil
}

// PutBatch adds jobs, to one or several queues. Each put stands alone: some may fail while others
// succeed. There is one result for each put, in the same order. The error is nil if all puts
// succeeded; else it wraps the first failure and says how many there were. More than 1,000 puts, or
// 4 MiB, take several round trips.
func (c *Client) PutBatch(ctx context.Context, puts []Put) ([]PutResult, error) {
	ctx, op := c.tracer.PutBatch(ctx, len(puts), func(i int) string { return puts[i].Queue })
	results, err := c.putBatch(ctx, op, puts)
	op.End(err)
	return results, err
}

func (c *Client) putBatch(ctx context.Context, op *tracing.Operation, puts []Put) ([]PutResult, error) {
	results := make([]PutResult, len(puts))
	scratch := c.scratch()
	defer c.free(scratch)
	chunk := &scratch.chunk
	chunk.client, chunk.results = c, results
	for i, put := range puts {
		req, bytes, err := scratch.request(put)
		if err != nil {
			results[i].Err = err
			continue
		}
		bytes += carriedBytes(op.Carry(ctx, req))
		if chunk.full(bytes) {
			chunk.send(ctx)
		}
		if len(chunk.wire) == 0 {
			chunk.wire = slices.Grow(chunk.wire, min((len(puts)-i)*(bytes-putSlack), batchBytesMax))
		}
		start := len(chunk.wire)
		if chunk.wire, err = scratch.encode(chunk.wire, req); err != nil {
			results[i].Err = invalidError("encoding the put: %v", err)
			continue
		}
		chunk.add(i, encodedPut{wire: chunk.wire[start:], place: putPlace(req)}, bytes)
	}
	chunk.send(ctx)
	return results, firstFailure(len(results), "puts", func(i int) error { return results[i].Err })
}

// putSlack is how much too large the estimate of an ordinary put's size is.
const putSlack = 128

// A putChunk is the part of a batch that goes into one message. Its memory is reused.
type putChunk struct {
	client  *Client
	results []PutResult
	puts    []encodedPut
	places  []int // of the puts among the results
	wire    []byte
	bytes   int
}

// full reports whether the chunk has no room for a put of this many bytes.
func (p *putChunk) full(bytes int) bool {
	return len(p.puts) == batchJobsMax || len(p.puts) > 0 && p.bytes+bytes > batchBytesMax
}

func (p *putChunk) add(position int, put encodedPut, bytes int) {
	p.puts, p.places, p.bytes = append(p.puts, put), append(p.places, position), p.bytes+bytes
}

// send sends the chunk as a batch of its own, and fills in the results.
func (p *putChunk) send(ctx context.Context) {
	if len(p.puts) == 0 {
		return
	}
	p.client.puts.to(nil).DoAll(ctx, p.puts, func(i int, r coalesce.Reply[PutResult]) {
		p.results[p.places[i]] = r.Result
		if r.Err != nil {
			p.results[p.places[i]] = PutResult{Err: public(r.Err)}
		}
	})
	p.clear()
}

// clear makes the chunk empty. It keeps memory for reuse, but no large piece and nothing that was
// sent.
func (p *putChunk) clear() {
	clear(p.puts)
	p.puts, p.places, p.wire, p.bytes = p.puts[:0], p.places[:0], p.wire[:0], 0
	if cap(p.wire) > session.RequestBytesKept {
		p.wire = nil
	}
}

// firstFailure sums up the errors of a batch: nil if there is none.
func firstFailure(n int, what string, errOf func(i int) error) error {
	var first error
	failures := 0
	for i := range n {
		if err := errOf(i); err != nil {
			if failures++; first == nil {
				first = fmt.Errorf("entry %d: %w", i, err)
			}
		}
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("%d of %d %s failed, the first: %w", failures, n, what, first)
}

// putPlace returns the place that a put concerns.
func putPlace(req *belfryv1.PutRequest) placement.Place {
	return placement.Place{Queue: req.GetQueue(), ID: req.GetId(), Key: req.GetKey()}
}

func putResult(res *belfryv1.PutResponse) PutResult {
	return PutResult{
		ID: res.GetId(), DueAt: values.TimeOf(res.GetDueAt()), Created: res.GetCreated(),
		State: values.StateOf(res.GetState()), Replaced: res.GetReplaced(), Version: res.GetVersion(),
	}
}

// sendPuts sends a batch of puts once.
func sendPuts(ctx context.Context, ep *endpoint, id string, puts []encodedPut) ([]coalesce.Reply[PutResult], error) {
	size := 64
	for i := range puts {
		size += len(puts[i].wire)
	}
	request := ep.sessions.Request(size)
	for i := range puts {
		*request = append(*request, puts[i].wire...)
	}
	*request = batchcodec.AppendRequestID(*request, id)
	answer, err := session.Do(ctx, ep.sessions, stream.PutBatch, ep.putBatch, request)
	if err != nil {
		return nil, fmt.Errorf("putting %d jobs: %w", len(puts), err)
	}
	return answer.replies, nil
}
