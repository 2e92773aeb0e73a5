package client

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/frame"
)

// A PutOption says more about a job that is put.
type PutOption func(*belfryv1.PutRequest)

// In makes the job due after d: 0 to 100 years.
func In(d time.Duration) PutOption {
	return func(r *belfryv1.PutRequest) { r.When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(d)} }
}

// At makes the job due at t, at most 100 years from now. A time in the past means at once.
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
// Errors: [ErrJobExists], [ErrQueueFull], [ErrRateLimited], [ErrUnknownOutcome], and others as [*Error].
func (c *Client) Put(ctx context.Context, queue string, body []byte, opts ...PutOption) (PutResult, error) {
	req, bytes, err := Put{Queue: queue, Body: body, Options: opts}.request()
	if err != nil {
		return PutResult{}, err
	}
	if !c.limits.Off && bytes <= batchBytesMax {
		return c.puts.do(ctx, req, bytes)
	}
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
	results := make([]PutResult, len(puts))
	var chunk []*belfryv1.PutRequest
	var places []int
	chunkBytes := 0
	flush := func() {
		c.putChunk(ctx, chunk, places, results)
		chunk, places, chunkBytes = nil, nil, 0
	}
	for i, put := range puts {
		req, bytes, err := put.request()
		if err != nil {
			results[i].Err = err
			continue
		}
		if len(chunk) == batchJobsMax || len(chunk) > 0 && chunkBytes+bytes > batchBytesMax {
			flush()
		}
		chunk, places, chunkBytes = append(chunk, req), append(places, i), chunkBytes+bytes
	}
	if len(chunk) > 0 {
		flush()
	}
	return results, firstFailure(len(results), "puts", func(i int) error { return results[i].Err })
}

// putChunk sends the puts of one message as a batch of its own, and fills in their results.
func (c *Client) putChunk(ctx context.Context, reqs []*belfryv1.PutRequest, places []int, results []PutResult) {
	for i, r := range c.puts.whole(ctx, reqs) {
		results[places[i]] = r.res
		if r.err != nil {
			results[places[i]] = PutResult{Err: r.err}
		}
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

// request makes the message of a put, and estimates from above how many bytes it adds to a batch. What would spoil the
// batch for others is refused: text that is not UTF-8 cannot be encoded.
func (p Put) request() (*belfryv1.PutRequest, int, error) {
	req := &belfryv1.PutRequest{Queue: p.Queue, Body: &belfryv1.PutRequest_Data{Data: p.Body}}
	for _, opt := range p.Options {
		opt(req)
	}
	bytes := 128 + len(req.GetQueue()) + len(req.GetId()) + len(p.Body) + 16*len(req.GetRetryDelays())
	valid := utf8.ValidString(req.GetQueue()) && utf8.ValidString(req.GetId())
	for name, value := range req.GetHeaders() {
		bytes += 16 + len(name) + len(value)
		valid = valid && utf8.ValidString(name) && utf8.ValidString(value)
	}
	if !valid {
		return nil, 0, invalidError("queue, id and headers of a put must be valid UTF-8")
	}
	return req, bytes, nil
}

// putPlace says what a put is about.
func putPlace(req *belfryv1.PutRequest) place { return place{queue: req.GetQueue(), id: req.GetId()} }

func putResult(res *belfryv1.PutResponse) PutResult {
	return PutResult{
		ID: res.GetId(), DueAt: timeOf(res.GetDueAt()), Created: res.GetCreated(), State: stateOf(res.GetState()),
	}
}

// sendPuts sends a batch of puts once.
func sendPuts(ctx context.Context, ep *endpoint, id string, reqs []*belfryv1.PutRequest) ([]reply[PutResult], error) {
	request, err := proto.Marshal(&belfryv1.PutBatchRequest{Jobs: reqs, RequestId: id})
	if err != nil {
		return nil, fmt.Errorf("encoding %d puts: %w", len(reqs), err)
	}
	answer, err := hot(ctx, ep, frame.PutBatch, ep.putBatch, request)
	if err != nil {
		return nil, fmt.Errorf("putting %d jobs: %w", len(reqs), err)
	}
	return answer.replies, nil
}
