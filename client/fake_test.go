package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/client/internal/failure"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// A Fake is a server with just enough of Belfry's semantics to see what a client does: jobs become
// due, are leased, finished and lapse; request ids are remembered. Tests plant faults in it. It is
// exported for the examples.
type Fake struct {
	belfryv1connect.UnimplementedQueueServiceHandler
	belfryv1connect.UnimplementedAdminServiceHandler
	belfryv1connect.UnimplementedScheduleServiceHandler

	mu sync.Mutex
	// before and after, if not nil, are called around each call; an error from before refuses it
	// unapplied, one from after hides that it was applied. They run without the lock.
	before, after func(ctx context.Context, method string, req proto.Message) error
	// entryFault, if not nil, may refuse an entry of a batch unapplied.
	entryFault func(queue string, attempt int) *belfryv1.EntryError
	serial     uint64
	leaseOf    func(queue string, serial, fence uint64) string // makes leases; nil for short ones that name no queue
	jobs       []*fakeJob                                      // in the order of their puts
	answers    map[string]fakeAnswer
	calls      []fakeCall
	parked     int           // Reserve calls that wait
	changed    chan struct{} // closed and replaced when something changes
	entries    map[string]int
}

// A fakeCall is one call as it arrived.
type fakeCall struct {
	method, requestID string
	size              int // entries of a batch, jobs asked for
	repeat            bool
}

type fakeAnswer struct {
	content []byte
	res     proto.Message
}

type fakeJob struct {
	queue, id, lease string
	serial, fence    uint64
	put              *belfryv1.PutRequest
	created          time.Time
	due, until       time.Time
	ttr              time.Duration
	attempt          uint32
	state            belfryv1.JobState
	lastError        string
}

// NewFake makes an empty fake.
func NewFake() *Fake {
	return &Fake{answers: make(map[string]fakeAnswer), changed: make(chan struct{}), entries: make(map[string]int)}
}

// failBefore plants a fault that refuses calls unapplied; nil takes it away.
func (f *Fake) failBefore(fault func(ctx context.Context, method string, req proto.Message) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = fault
}

// failAfter plants a fault that hides the answers of calls that were applied; nil takes it away.
func (f *Fake) failAfter(fault func(ctx context.Context, method string, req proto.Message) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = fault
}

// Handler serves the fake.
func (f *Fake) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(belfryv1connect.NewQueueServiceHandler(f))
	mux.Handle(belfryv1connect.NewAdminServiceHandler(f))
	mux.Handle(belfryv1connect.NewScheduleServiceHandler(f))
	return mux
}

// refusal makes a wire error as the server makes them.
func refusal(code connect.Code, reason, outcome string, retryAfter time.Duration) error {
	err := connect.NewError(code, errors.New("refused by the fake"))
	info, _ := connect.NewErrorDetail(&errdetails.ErrorInfo{
		Domain: "belfry", Reason: reason, Metadata: map[string]string{"outcome": outcome, "shard": "3", "leader": "n2:7400"},
	})
	err.AddDetail(info)
	if retryAfter > 0 {
		retry, _ := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
		err.AddDetail(retry)
	}
	return err
}

// handle runs one call between the faults; a repeat of a request id gets the first answer.
func handle[Req, Res proto.Message](
	ctx context.Context, f *Fake, method, id string, size int, req Req, apply func() (Res, error),
) (Res, error) {
	var none Res
	compared := proto.Message(req)
	if reserve, ok := compared.(*belfryv1.ReserveRequest); ok {
		clone := proto.Clone(reserve).(*belfryv1.ReserveRequest)
		clone.Wait = nil // how long a call waits is no part of what it asks for
		compared = clone
	}
	content, _ := proto.MarshalOptions{Deterministic: true}.Marshal(compared)
	f.mu.Lock()
	earlier, repeat := f.answers[id]
	f.calls = append(f.calls, fakeCall{method, id, size, repeat})
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx, method, req); err != nil {
			return none, err
		}
	}
	var res Res
	if repeat {
		if !bytes.Equal(earlier.content, content) {
			return none, refusal(connect.CodeInvalidArgument, "INVALID", "not_applied", 0)
		}
		res = earlier.res.(Res)
	} else {
		f.mu.Lock()
		var err error
		res, err = apply()
		if err == nil && id != "" {
			f.answers[id] = fakeAnswer{content, res}
		}
		close(f.changed)
		f.changed = make(chan struct{})
		f.mu.Unlock()
		if err != nil {
			return none, err
		}
	}
	if after != nil {
		if err := after(ctx, method, req); err != nil {
			return none, err
		}
	}
	return res, nil
}

func (f *Fake) witness() *belfryv1.Witness {
	return &belfryv1.Witness{Shard: 3, Term: 1, Index: f.serial, Time: timestamppb.Now()}
}

// Put implements the service.
func (f *Fake) Put(ctx context.Context, req *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
	return handle(ctx, f, "Put", req.GetRequestId(), 1, req, func() (*belfryv1.PutResponse, error) { return f.put(req) })
}

func (f *Fake) put(req *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
	for _, job := range f.jobs {
		if req.GetId() != "" && job.queue == req.GetQueue() && job.id == req.GetId() {
			if !bytes.Equal(job.put.GetData(), req.GetData()) {
				return nil, refusal(connect.CodeAlreadyExists, "JOB_EXISTS", "not_applied", 0)
			}
			return &belfryv1.PutResponse{
				Id: job.id, DueAt: timestamppb.New(job.due), State: job.state, Witness: f.witness(),
			}, nil
		}
	}
	f.serial++
	job := &fakeJob{
		queue: req.GetQueue(), id: req.GetId(), serial: f.serial, put: req, due: time.Now().Add(req.GetDelay().AsDuration()),
		ttr: 30 * time.Second, state: belfryv1.JobState_JOB_STATE_DELAYED, created: time.Now(),
	}
	if at := req.GetDueAt(); at != nil {
		job.due = at.AsTime()
	}
	if ttr := req.GetTtr(); ttr != nil {
		job.ttr = ttr.AsDuration()
	}
	if job.id == "" {
		job.id = fmt.Sprintf("0-%d", f.serial)
	}
	f.jobs = append(f.jobs, job)
	return &belfryv1.PutResponse{
		Id: job.id, DueAt: timestamppb.New(job.due), Created: true, State: job.state, Witness: f.witness(),
	}, nil
}

// PutBatch implements the service.
func (f *Fake) PutBatch(ctx context.Context, req *belfryv1.PutBatchRequest) (*belfryv1.PutBatchResponse, error) {
	return handle(ctx, f, "PutBatch", req.GetRequestId(), len(req.GetJobs()), req,
		func() (*belfryv1.PutBatchResponse, error) {
			res := &belfryv1.PutBatchResponse{}
			for _, put := range req.GetJobs() {
				if f.entryFault != nil {
					f.entries[put.GetQueue()]++
					if fault := f.entryFault(put.GetQueue(), f.entries[put.GetQueue()]); fault != nil {
						res.Results = append(res.Results, &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Error{Error: fault}})
						continue
					}
				}
				one, err := f.put(put)
				if err != nil {
					res.Results = append(res.Results,
						&belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Error{Error: entryOf(err)}})
					continue
				}
				res.Results = append(res.Results, &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Put{Put: one}})
			}
			return res, nil
		})
}

func entryOf(err error) *belfryv1.EntryError {
	e := failure.Of(asWire(err))
	return &belfryv1.EntryError{
		Code: e.Code.String(), Reason: belfryv1.Reason(belfryv1.Reason_value["REASON_"+string(e.Reason)]), Message: e.Message,
		Outcome: belfryv1.Outcome(belfryv1.Outcome_value["OUTCOME_"+string(e.Outcome)]), Shard: e.Shard,
	}
}

// asWire makes an error look as if it had come over the wire.
func asWire(err error) error {
	var local *connect.Error
	if !errors.As(err, &local) {
		return err
	}
	wire := connect.NewWireError(local.Code(), errors.New(local.Message()))
	for _, detail := range local.Details() {
		wire.AddDetail(detail)
	}
	return wire
}

// lapse returns jobs whose leases are over. Called with mu held.
func (f *Fake) lapse(now time.Time) {
	for _, job := range f.jobs {
		if job.state == belfryv1.JobState_JOB_STATE_RESERVED && !job.until.After(now) {
			job.state, job.lease = belfryv1.JobState_JOB_STATE_DELAYED, ""
		}
	}
}

// Reserve implements the service.
func (f *Fake) Reserve(ctx context.Context, req *belfryv1.ReserveRequest) (*belfryv1.ReserveResponse, error) {
	end := time.Now().Add(req.GetWait().AsDuration())
	return handle(ctx, f, "Reserve", req.GetRequestId(), int(req.GetMaxJobs()), req,
		func() (*belfryv1.ReserveResponse, error) {
			for {
				jobs, next := f.grant(req)
				now := time.Now()
				if len(jobs) > 0 || !now.Before(end) || ctx.Err() != nil {
					return &belfryv1.ReserveResponse{Jobs: jobs}, nil
				}
				if next.IsZero() || next.After(end) {
					next = end
				}
				changed := f.changed
				f.parked++
				f.mu.Unlock()
				timer := time.NewTimer(next.Sub(now))
				select {
				case <-changed:
				case <-timer.C:
				case <-ctx.Done():
				}
				timer.Stop()
				f.mu.Lock()
				f.parked--
			}
		})
}

// grant reserves what is due, and says when something else will be.
func (f *Fake) grant(req *belfryv1.ReserveRequest) (jobs []*belfryv1.Job, next time.Time) {
	now := time.Now()
	f.lapse(now)
	for _, job := range f.jobs {
		if job.state != belfryv1.JobState_JOB_STATE_DELAYED || !slices.Contains(req.GetQueues(), job.queue) {
			continue
		}
		if job.due.After(now) {
			if next.IsZero() || job.due.Before(next) {
				next = job.due
			}
			continue
		}
		if len(jobs) == int(req.GetMaxJobs()) {
			break
		}
		f.serial++
		job.fence, job.attempt, job.state = f.serial, job.attempt+1, belfryv1.JobState_JOB_STATE_RESERVED
		job.lease = fmt.Sprintf("lease-%d-%d", job.serial, job.fence)
		if f.leaseOf != nil {
			job.lease = f.leaseOf(job.queue, job.serial, job.fence)
		}
		ttr := job.ttr
		if req.GetTtr() != nil {
			ttr = req.GetTtr().AsDuration()
		}
		job.until = now.Add(ttr)
		jobs = append(jobs, f.wireJob(job, ttr))
	}
	return jobs, next
}

func (f *Fake) wireJob(job *fakeJob, ttr time.Duration) *belfryv1.Job {
	w := &belfryv1.Job{
		Queue: job.queue, Id: job.id, Lease: job.lease, Fence: job.fence, Attempt: job.attempt,
		DueAt: timestamppb.New(job.due),
		Body:  &belfryv1.Job_Data{Data: job.put.GetData()}, Headers: job.put.GetHeaders(), State: job.state,
		Ttr: durationpb.New(ttr), LastError: job.lastError, Witness: f.witness(), BodyBytes: uint32(len(job.put.GetData())),
		CreatedAt: timestamppb.New(job.created),
	}
	if job.state == belfryv1.JobState_JOB_STATE_RESERVED {
		w.LeaseUntil = timestamppb.New(job.until)
	}
	return w
}
