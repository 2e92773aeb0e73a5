package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// fakeJob is a job of the fake server.
type fakeJob struct {
	put     *belfryv1.PutRequest
	id      string
	due     time.Time
	until   time.Time // of the lease; zero if nobody holds it
	fence   uint64
	attempt uint32
	dead    bool
}

// fakeQueues is a server in memory that does what the story needs, on the clock of a synctest bubble. It lets tests play a
// story in no time, and spoil it.
type fakeQueues struct {
	belfryv1connect.QueueServiceClient // nil: a method that is not faked panics

	mu     sync.Mutex
	jobs   []*fakeJob
	serial uint64
	// changed is closed and made anew whenever a waiting reserve shall look again.
	changed chan struct{}

	// fails makes a method fail with an error; handsOut is called with each job that is handed out and may spoil it.
	fails    map[string]error
	handsOut func(*belfryv1.Job)
	// forgets makes a second put of an id a new job.
	forgets bool
	// acksStale lets a lapsed lease end a job.
	acksStale bool
}

func newFakeQueues() *fakeQueues {
	return &fakeQueues{changed: make(chan struct{}), fails: make(map[string]error), handsOut: func(*belfryv1.Job) {}}
}

// wake has waiting reserves look again. f.mu is held.
func (f *fakeQueues) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeQueues) add(put *belfryv1.PutRequest) *belfryv1.PutResponse {
	if i := slices.IndexFunc(f.jobs, func(j *fakeJob) bool { return put.Id != "" && j.id == put.Id }); i >= 0 && !f.forgets {
		return &belfryv1.PutResponse{Id: put.Id, DueAt: timestamppb.New(f.jobs[i].due)}
	}
	f.serial++
	job := &fakeJob{put: put, id: put.Id, due: time.Now().Add(put.GetDelay().AsDuration())}
	if job.id == "" {
		job.id = fmt.Sprintf("0-%d", f.serial)
	}
	f.jobs = append(f.jobs, job)
	f.wake()
	return &belfryv1.PutResponse{Id: job.id, DueAt: timestamppb.New(job.due), Created: true}
}

func (f *fakeQueues) Put(_ context.Context, r *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails["Put"]; err != nil {
		return nil, err
	}
	return f.add(r), nil
}

func (f *fakeQueues) PutBatch(_ context.Context, r *belfryv1.PutBatchRequest) (*belfryv1.PutBatchResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails["PutBatch"]; err != nil {
		return nil, err
	}
	response := &belfryv1.PutBatchResponse{}
	for _, put := range r.Jobs {
		response.Results = append(response.Results, &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Put{Put: f.add(put)}})
	}
	return response, nil
}

// next returns a job that is due, or when to look again.
func (f *fakeQueues) next(queue string, now time.Time) (job *fakeJob, wait time.Duration) {
	wait = time.Hour
	for _, j := range f.jobs {
		at := j.due
		if j.until.After(at) {
			at = j.until
		}
		switch {
		case j.put.Queue != queue || j.dead:
		case at.After(now):
			wait = min(wait, at.Sub(now))
		default:
			return j, 0
		}
	}
	return nil, wait
}

func (f *fakeQueues) Reserve(ctx context.Context, r *belfryv1.ReserveRequest) (*belfryv1.ReserveResponse, error) {
	end := time.Now().Add(r.Wait.AsDuration())
	for {
		f.mu.Lock()
		if err := f.fails["Reserve "+r.Queues[0]]; err != nil {
			f.mu.Unlock()
			return nil, err
		}
		now := time.Now()
		job, wait := f.next(r.Queues[0], now)
		changed := f.changed
		if job != nil {
			defer f.mu.Unlock()
			return &belfryv1.ReserveResponse{Jobs: []*belfryv1.Job{f.grant(job, now)}}, nil
		}
		f.mu.Unlock()
		if !now.Before(end) {
			return &belfryv1.ReserveResponse{}, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(min(wait, end.Sub(now))):
		case <-changed:
		}
	}
}

// grant hands a job out. f.mu is held.
func (f *fakeQueues) grant(j *fakeJob, now time.Time) *belfryv1.Job {
	f.serial++
	ttr := j.put.Ttr.AsDuration()
	if ttr == 0 {
		ttr = 30 * time.Second
	}
	j.fence, j.attempt, j.until = f.serial, j.attempt+1, now.Add(ttr)
	out := &belfryv1.Job{
		Queue: j.put.Queue, Id: j.id, Lease: fmt.Sprintf("%s/%d", j.id, j.fence), Fence: j.fence, Attempt: j.attempt,
		DueAt: timestamppb.New(j.due), LeaseUntil: timestamppb.New(j.until),
	}
	f.handsOut(out)
	return out
}

// held returns the job of a lease, or why there is none. f.mu is held.
func (f *fakeQueues) held(lease string) (*fakeJob, error) {
	for _, j := range f.jobs {
		current := lease == fmt.Sprintf("%s/%d", j.id, j.fence) && time.Now().Before(j.until)
		if current || f.acksStale && lease != "" && len(lease) > len(j.id) && lease[:len(j.id)] == j.id {
			return j, nil
		}
	}
	return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("stale"))
}

// remove takes a job out. f.mu is held.
func (f *fakeQueues) remove(j *fakeJob) {
	f.jobs = slices.DeleteFunc(f.jobs, func(other *fakeJob) bool { return other == j })
}

func (f *fakeQueues) Ack(_ context.Context, r *belfryv1.AckRequest) (*belfryv1.AckResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails["Ack"]; err != nil {
		return nil, err
	}
	job, err := f.held(r.Lease)
	if err != nil {
		return nil, err
	}
	f.remove(job)
	return &belfryv1.AckResponse{}, nil
}

func (f *fakeQueues) Nack(_ context.Context, r *belfryv1.NackRequest) (*belfryv1.NackResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails["Nack"]; err != nil {
		return nil, err
	}
	job, err := f.held(r.Lease)
	if err != nil {
		return nil, err
	}
	job.until = time.Time{}
	if most := job.put.GetMaxAttempts(); most > 0 && job.attempt >= most {
		job.dead = true
		return &belfryv1.NackResponse{State: belfryv1.JobState_JOB_STATE_DEAD}, nil
	}
	delays := job.put.RetryDelays
	job.due = time.Now().Add(delays[min(int(job.attempt), len(delays))-1].AsDuration())
	f.wake()
	return &belfryv1.NackResponse{State: belfryv1.JobState_JOB_STATE_DELAYED, DueAt: timestamppb.New(job.due)}, nil
}

func (f *fakeQueues) Extend(_ context.Context, r *belfryv1.ExtendRequest) (*belfryv1.ExtendResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails["Extend"]; err != nil {
		return nil, err
	}
	job, err := f.held(r.Lease)
	if err != nil {
		return nil, err
	}
	job.until = time.Now().Add(job.put.Ttr.AsDuration())
	return &belfryv1.ExtendResponse{LeaseUntil: timestamppb.New(job.until)}, nil
}

// named returns a job by its id. f.mu is held.
func (f *fakeQueues) named(id string) (*fakeJob, error) {
	for _, j := range f.jobs {
		if j.id == id {
			return j, nil
		}
	}
	return nil, connect.NewError(connect.CodeNotFound, errors.New("no such job"))
}

func (f *fakeQueues) Cancel(_ context.Context, r *belfryv1.CancelRequest) (*belfryv1.CancelResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails["Cancel"]; err != nil {
		return nil, err
	}
	job, err := f.named(r.Id)
	if err != nil {
		return nil, err
	}
	f.remove(job)
	return &belfryv1.CancelResponse{State: belfryv1.JobState_JOB_STATE_DELAYED}, nil
}

func (f *fakeQueues) Reschedule(_ context.Context, r *belfryv1.RescheduleRequest) (*belfryv1.RescheduleResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails["Reschedule"]; err != nil {
		return nil, err
	}
	job, err := f.named(r.Id)
	if err != nil {
		return nil, err
	}
	job.due = time.Now().Add(r.GetDelay().AsDuration())
	f.wake()
	return &belfryv1.RescheduleResponse{DueAt: timestamppb.New(job.due), State: belfryv1.JobState_JOB_STATE_DELAYED}, nil
}

func (f *fakeQueues) Redrive(_ context.Context, r *belfryv1.RedriveRequest) (*belfryv1.RedriveResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails["Redrive"]; err != nil {
		return nil, err
	}
	job, err := f.named(r.Ids[0])
	if err != nil || !job.dead {
		return &belfryv1.RedriveResponse{}, nil
	}
	job.dead, job.attempt, job.due = false, 0, time.Now()
	f.wake()
	return &belfryv1.RedriveResponse{Moved: 1}, nil
}
