package client

import (
	"context"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// held finds the job of a lease. Called with mu held.
func (f *Fake) held(lease string) (*fakeJob, error) {
	f.lapse(time.Now())
	for _, job := range f.jobs {
		if job.lease == lease && lease != "" && job.state == belfryv1.JobState_JOB_STATE_RESERVED {
			return job, nil
		}
	}
	return nil, refusal(connect.CodeFailedPrecondition, "STALE_LEASE", "not_applied", 0)
}

// find finds a job by its id. Called with mu held.
func (f *Fake) find(queue, id string) (*fakeJob, error) {
	for _, job := range f.jobs {
		if job.queue == queue && job.id == id && job.state != belfryv1.JobState_JOB_STATE_ACKED {
			return job, nil
		}
	}
	return nil, refusal(connect.CodeNotFound, "JOB_NOT_FOUND", "not_applied", 0)
}

// Ack implements the service.
func (f *Fake) Ack(ctx context.Context, req *belfryv1.AckRequest) (*belfryv1.AckResponse, error) {
	return handle(ctx, f, "Ack", req.GetRequestId(), 1, req, func() (*belfryv1.AckResponse, error) {
		return f.ack(req.GetLease())
	})
}

func (f *Fake) ack(lease string) (*belfryv1.AckResponse, error) {
	job, err := f.held(lease)
	if err != nil {
		return nil, err
	}
	job.state = belfryv1.JobState_JOB_STATE_ACKED
	return &belfryv1.AckResponse{Witness: f.witness()}, nil
}

// AckBatch implements the service.
func (f *Fake) AckBatch(ctx context.Context, req *belfryv1.AckBatchRequest) (*belfryv1.AckBatchResponse, error) {
	return handle(ctx, f, "AckBatch", req.GetRequestId(), len(req.GetLeases()), req,
		func() (*belfryv1.AckBatchResponse, error) {
			res := &belfryv1.AckBatchResponse{}
			for _, lease := range req.GetLeases() {
				one, err := f.ack(lease)
				if err != nil {
					res.Results = append(res.Results,
						&belfryv1.AckBatchResult{Result: &belfryv1.AckBatchResult_Error{Error: entryOf(err)}})
					continue
				}
				res.Results = append(res.Results, &belfryv1.AckBatchResult{Result: &belfryv1.AckBatchResult_Ack{Ack: one}})
			}
			return res, nil
		})
}

// Nack implements the service.
func (f *Fake) Nack(ctx context.Context, req *belfryv1.NackRequest) (*belfryv1.NackResponse, error) {
	return handle(ctx, f, "Nack", req.GetRequestId(), 1, req, func() (*belfryv1.NackResponse, error) {
		job, err := f.held(req.GetLease())
		if err != nil {
			return nil, err
		}
		job.lease, job.lastError = "", req.GetError()
		if req.GetDead() {
			job.state = belfryv1.JobState_JOB_STATE_DEAD
			return &belfryv1.NackResponse{State: job.state, Witness: f.witness()}, nil
		}
		job.state, job.due = belfryv1.JobState_JOB_STATE_DELAYED, time.Now().Add(req.GetDelay().AsDuration())
		return &belfryv1.NackResponse{State: job.state, DueAt: timestamppb.New(job.due), Witness: f.witness()}, nil
	})
}

// Release implements the service.
func (f *Fake) Release(ctx context.Context, req *belfryv1.ReleaseRequest) (*belfryv1.ReleaseResponse, error) {
	return handle(ctx, f, "Release", req.GetRequestId(), 1, req, func() (*belfryv1.ReleaseResponse, error) {
		job, err := f.held(req.GetLease())
		if err != nil {
			return nil, err
		}
		job.lease, job.state, job.due = "", belfryv1.JobState_JOB_STATE_DELAYED, time.Now().Add(req.GetDelay().AsDuration())
		job.attempt--
		return &belfryv1.ReleaseResponse{State: job.state, DueAt: timestamppb.New(job.due), Witness: f.witness()}, nil
	})
}

// Extend implements the service.
func (f *Fake) Extend(ctx context.Context, req *belfryv1.ExtendRequest) (*belfryv1.ExtendResponse, error) {
	return handle(ctx, f, "Extend", req.GetRequestId(), 1, req, func() (*belfryv1.ExtendResponse, error) {
		job, err := f.held(req.GetLease())
		if err != nil {
			return nil, err
		}
		ttr := job.ttr
		if req.GetTtr() != nil {
			ttr = req.GetTtr().AsDuration()
		}
		if until := time.Now().Add(ttr); until.After(job.until) {
			job.until = until
		}
		return &belfryv1.ExtendResponse{LeaseUntil: timestamppb.New(job.until), Witness: f.witness()}, nil
	})
}

// Cancel implements the service.
func (f *Fake) Cancel(ctx context.Context, req *belfryv1.CancelRequest) (*belfryv1.CancelResponse, error) {
	return handle(ctx, f, "Cancel", req.GetRequestId(), 1, req, func() (*belfryv1.CancelResponse, error) {
		job, err := f.find(req.GetQueue(), req.GetId())
		if err != nil {
			return nil, err
		}
		if job.state == belfryv1.JobState_JOB_STATE_RESERVED && !req.GetForce() {
			return nil, refusal(connect.CodeFailedPrecondition, "JOB_RESERVED", "not_applied", 0)
		}
		f.jobs = slices.DeleteFunc(f.jobs, func(other *fakeJob) bool { return other == job })
		return &belfryv1.CancelResponse{State: job.state, Witness: f.witness()}, nil
	})
}

// Reschedule implements the service.
func (f *Fake) Reschedule(ctx context.Context, req *belfryv1.RescheduleRequest) (*belfryv1.RescheduleResponse, error) {
	return handle(ctx, f, "Reschedule", req.GetRequestId(), 1, req, func() (*belfryv1.RescheduleResponse, error) {
		job, err := f.find(req.GetQueue(), req.GetId())
		if err != nil {
			return nil, err
		}
		job.due = time.Now().Add(req.GetDelay().AsDuration())
		if at := req.GetDueAt(); at != nil {
			job.due = at.AsTime()
		}
		return &belfryv1.RescheduleResponse{DueAt: timestamppb.New(job.due), State: job.state, Witness: f.witness()}, nil
	})
}

// Redrive implements the service.
func (f *Fake) Redrive(ctx context.Context, req *belfryv1.RedriveRequest) (*belfryv1.RedriveResponse, error) {
	return handle(ctx, f, "Redrive", req.GetRequestId(), 1, req, func() (*belfryv1.RedriveResponse, error) {
		res := &belfryv1.RedriveResponse{}
		for _, job := range f.jobs {
			chosen := slices.Contains(req.GetIds(), job.id) || res.GetMoved() < req.GetMax()
			if job.queue == req.GetQueue() && job.state == belfryv1.JobState_JOB_STATE_DEAD && chosen {
				job.state, job.attempt, job.due = belfryv1.JobState_JOB_STATE_DELAYED, 0, time.Now()
				res.Moved++
			}
		}
		return res, nil
	})
}

// Get implements the service.
func (f *Fake) Get(ctx context.Context, req *belfryv1.GetRequest) (*belfryv1.GetResponse, error) {
	return handle(ctx, f, "Get", "", 1, req, func() (*belfryv1.GetResponse, error) {
		f.lapse(time.Now())
		job, err := f.find(req.GetQueue(), req.GetId())
		if err != nil {
			return nil, err
		}
		w := f.wireJob(job, job.ttr)
		w.Lease = ""
		return &belfryv1.GetResponse{Job: w, Witness: f.witness()}, nil
	})
}

// List implements the service; its page token is a plain number.
func (f *Fake) List(ctx context.Context, req *belfryv1.ListRequest) (*belfryv1.ListResponse, error) {
	return handle(ctx, f, "List", "", int(req.GetPageSize()), req, func() (*belfryv1.ListResponse, error) {
		from, _ := strconv.Atoi(req.GetPageToken())
		state := max(req.GetState(), belfryv1.JobState_JOB_STATE_DELAYED)
		var found []*fakeJob
		for _, job := range f.jobs {
			if job.queue == req.GetQueue() && job.state == state {
				found = append(found, job)
			}
		}
		slices.SortStableFunc(found, func(a, b *fakeJob) int { return a.due.Compare(b.due) })
		size := int(req.GetPageSize())
		if size == 0 {
			size = 100
		}
		res := &belfryv1.ListResponse{}
		for _, job := range found[min(from, len(found)):min(from+size, len(found))] {
			w := f.wireJob(job, job.ttr)
			w.Body, w.Lease = nil, ""
			res.Jobs = append(res.Jobs, w)
		}
		if from+size < len(found) {
			res.NextPageToken = strconv.Itoa(from + size)
		}
		return res, nil
	})
}
