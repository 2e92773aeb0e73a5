package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/frame"
)

// A PutOption says more about a job that is put.
type PutOption func(*belfryv1.PutRequest)

// In makes the job due after d: 0 to 100 years.
func In(d time.Duration) PutOption {
	return func(r *belfryv1.PutRequest) {
		when := new(struct {
			field belfryv1.PutRequest_Delay
			delay durationpb.Duration
		}) // one piece of memory for both
		when.delay.Seconds, when.delay.Nanos = int64(d/time.Second), int32(d%time.Second) //nolint:gosec // below a second
		when.field.Delay = &when.delay
		r.When = &when.field
	}
}

// At makes the job due at t, at most 100 years from now. A time in the past means at once. A put with an id that may be
// repeated needs the same t each time, such as a date in the data: with At(time.Now().Add(d)) the repeat is another job and
// fails with [ErrJobExists]; use [In].
func At(t time.Time) PutOption {
	return func(r *belfryv1.PutRequest) { r.When = &belfryv1.PutRequest_DueAt{DueAt: timestamppb.New(t)} }
}

// ID gives the job an id that is unique in its queue: at most 256 bytes of UTF-8, not of the form <digits>-<digits>. While the
// job exists, and for the queue's dedup window after it ended, the same put again changes nothing and is answered with
// what became of the first.
func ID(id string) PutOption {
	return func(r *belfryv1.PutRequest) { r.Id = id }
}

// TTR sets the length of the job's leases: 1 ms to 24 h. Default: the queue's.
func TTR(d time.Duration) PutOption {
	return func(r *belfryv1.PutRequest) { r.Ttr = durationpb.New(d) }
}

// Priority orders ready jobs: -128 to 127, lower leaves first. Default 0.
func Priority(p int8) PutOption {
	return func(r *belfryv1.PutRequest) { r.Priority = new(int32(p)) }
}

// MaxAttempts is how many failed attempts make the job dead: 0 to 1,000,000, 0 for no limit. Default: the queue's.
func MaxAttempts(n uint32) PutOption {
	return func(r *belfryv1.PutRequest) { r.MaxAttempts = &n }
}

// RetryDelays is what follows the first, second, … failed attempt; the last one repeats. At most 64, each 0 to 100 years.
// Default: the queue's.
func RetryDelays(delays ...time.Duration) PutOption {
	return func(r *belfryv1.PutRequest) {
		r.RetryDelays = nil
		for _, d := range delays {
			r.RetryDelays = append(r.RetryDelays, durationpb.New(d))
		}
	}
}

// TTL is how long from the put the job may wait for a consumer: above 0, up to 100 years. Default: without end.
func TTL(d time.Duration) PutOption {
	return func(r *belfryv1.PutRequest) { r.Ttl = durationpb.New(d) }
}

// Header adds a header for the consumer. All names and values together take at most 16 KiB; a name is not empty.
func Header(name, value string) PutOption {
	return func(r *belfryv1.PutRequest) {
		if r.Headers == nil {
			r.Headers = make(map[string]string)
		}
		r.Headers[name] = value
	}
}

// Again lets the job in although an earlier job of the same id ended within the dedup window. One that still exists stays.
func Again() PutOption {
	return func(r *belfryv1.PutRequest) { r.Again = true }
}

// A Put describes a job to add, for [Client.PutBatch].
type Put struct {
	// Queue is the queue, "name" or "namespace/name". It comes into being with its first put.
	Queue string
	// Body is the job's content, at most 1 MiB. The client reads it until the call returns.
	Body []byte
	// Options say more.
	Options []PutOption
}

// A PutResult is what became of a put.
type PutResult struct {
	// ID is the job's id, chosen or made by the server.
	ID string
	// DueAt is the due time that counts: that of the first put if this one was a repeat.
	DueAt time.Time
	// Created is false if the same put was made before; then the result speaks about that job.
	Created bool
	// State is the state of the job, or how it ended.
	State State
	// Err is what went wrong with this entry of a batch, an [*Error]; then nothing else is set. Always nil outside batches.
	Err error
}

// Put adds a job to a queue. It may share a round trip with other puts; see [Coalescing]. The body may be used again once
// Put has returned without an error; after an error it may still be read for a while.
//
// Errors: [ErrJobExists], [ErrQueueFull], [ErrRateLimited], [ErrUnknownOutcome], Reason("QUEUE_NOT_FOUND") where the cluster's setting
// no-auto-create has puts make no queues, and others as [*Error].
func (c *Client) Put(ctx context.Context, queue string, body []byte, opts ...PutOption) (PutResult, error) {
	scratch := c.scratch()
	req, bytes, err := scratch.request(Put{Queue: queue, Body: body, Options: opts})
	if err != nil {
		c.free(scratch)
		return PutResult{}, err
	}
	ctx, op, extra := c.tracing.put(ctx, req)
	res, err := c.put(ctx, scratch, req, bytes+extra)
	op.endPut(res, err)
	return res, err
}

// put makes a put of so many bytes, the last that was made in the scratch.
func (c *Client) put(ctx context.Context, scratch *putScratch, req *belfryv1.PutRequest, bytes int) (_ PutResult, err error) {
	if c.limits.Off || bytes > batchBytesMax {
		return c.putAlone(ctx, req) // the scratch is not used again: an attempt that was given up may still read it
	}
	put := encodedPut{place: putPlace(req)}
	put.wire, err = scratch.encode(nil, req)
	c.free(scratch)
	if err != nil {
		return PutResult{}, invalidError("encoding the put: %v", err)
	}
	return c.puts.do(ctx, put, bytes)
}

// putAlone puts by a call of its own.
func (c *Client) putAlone(ctx context.Context, req *belfryv1.PutRequest) (PutResult, error) {
	req.RequestId = c.clock.newID()
	res, err := call(ctx, c, callKind{id: &req.RequestId, place: putPlace(req)}, func(ctx context.Context, ep *endpoint) (*belfryv1.PutResponse, error) {
		return ep.queue.Put(ctx, req)
	})
	if err != nil {
		return PutResult{}, err
	}
	return putResult(res), nil
}

// PutBatch adds jobs, to one or several queues. Each put stands alone: some may fail while others succeed. The results are
// in order and as many as puts; the error is nil if all succeeded, else it joins the first failure with how many there
// were. More than 1,000 puts or 4 MiB go in several round trips.
func (c *Client) PutBatch(ctx context.Context, puts []Put) ([]PutResult, error) {
	ctx, op := c.tracing.putBatch(ctx, puts)
	results, err := c.putBatch(ctx, op, puts)
	op.end(err)
	return results, err
}

func (c *Client) putBatch(ctx context.Context, op *operation, puts []Put) ([]PutResult, error) {
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
		bytes += op.carry(ctx, req)
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

// putSlack is by how much the estimate of an ordinary put's size is too large.
const putSlack = 96

// A putChunk is the part of a batch that goes into one message. Its memory is used again.
type putChunk struct {
	client  *Client
	results []PutResult
	puts    []encodedPut
	places  []int // of the puts among the results
	wire    []byte
	bytes   int
}

// full reports whether there is no room for a put.
func (p *putChunk) full(bytes int) bool {
	return len(p.puts) == batchJobsMax || len(p.puts) > 0 && p.bytes+bytes > batchBytesMax
}

func (p *putChunk) add(position int, put encodedPut, bytes int) {
	p.puts, p.places, p.bytes = append(p.puts, put), append(p.places, position), p.bytes+bytes
}

// send sends what there is as a batch of its own, and fills in the results.
func (p *putChunk) send(ctx context.Context) {
	if len(p.puts) == 0 {
		return
	}
	p.client.puts.doAll(ctx, p.puts, func(i int, r reply[PutResult]) {
		p.results[p.places[i]] = r.res
		if r.err != nil {
			p.results[p.places[i]] = PutResult{Err: r.err}
		}
	})
	p.clear()
}

// clear makes the chunk empty. Nothing is kept of what was sent but memory, and no large piece of that.
func (p *putChunk) clear() {
	clear(p.puts)
	p.puts, p.places, p.wire, p.bytes = p.puts[:0], p.places[:0], p.wire[:0], 0
	if cap(p.wire) > requestBytesKept {
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

// putPlace says what a put is about.
func putPlace(req *belfryv1.PutRequest) place { return place{queue: req.GetQueue(), id: req.GetId()} }

func putResult(res *belfryv1.PutResponse) PutResult {
	return PutResult{
		ID: res.GetId(), DueAt: timeOf(res.GetDueAt()), Created: res.GetCreated(), State: stateOf(res.GetState()),
	}
}

// sendPuts sends a batch of puts once.
func sendPuts(ctx context.Context, ep *endpoint, id string, puts []encodedPut) ([]reply[PutResult], error) {
	size := 64
	for i := range puts {
		size += len(puts[i].wire)
	}
	request := ep.sessions.request(size)
	for i := range puts {
		*request = append(*request, puts[i].wire...)
	}
	if id != "" {
		*request = protowire.AppendTag(*request, fieldRequestID, protowire.BytesType)
		*request = protowire.AppendString(*request, id)
	}
	answer, err := hot(ctx, ep, frame.PutBatch, ep.putBatch, request)
	if err != nil {
		return nil, fmt.Errorf("putting %d jobs: %w", len(puts), err)
	}
	return answer.replies, nil
}
