package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// put measures single puts.
func (r *run) put(ctx context.Context) ([]Result, error) {
	m := closed(ctx, r.Connections, newBudget(r.Jobs, r.Duration), 1,
		func(ctx context.Context, worker, _ int) (int, error) {
			if _, err := r.queues[worker].Put(ctx, r.request(worker, nil)); err != nil {
				return 0, fmt.Errorf("putting a job: %w", err)
			}
			return 1, nil
		})
	return []Result{r.result("put", m, r.Connections)}, m.failure(ctx)
}

// batch measures puts in batches.
func (r *run) batch(ctx context.Context) ([]Result, error) {
	m := closed(ctx, r.Connections, newBudget(r.Jobs, r.Duration), r.Batch,
		func(ctx context.Context, worker, jobs int) (int, error) {
			return r.putBatch(ctx, worker, jobs, nil)
		})
	return []Result{r.result("put", m, r.Connections)}, m.failure(ctx)
}

// putBatch puts so many jobs in one call.
func (r *run) putBatch(ctx context.Context, worker, jobs int, delay func() *durationpb.Duration) (int, error) {
	request, err := r.batchOf(worker, jobs, delay)
	if err != nil {
		return 0, err
	}
	response, err := r.putBatches[worker].CallUnary(ctx, connect.NewRequest(request))
	if err != nil {
		return 0, fmt.Errorf("putting %d jobs: %w", jobs, err)
	}
	answer := response.Msg
	switch {
	case answer.failure != nil:
		return answer.puts, fmt.Errorf("putting job %d of %d: %s: %s", answer.puts, jobs, answer.failure.Reason,
			answer.failure.Message)
	case answer.puts != jobs:
		return answer.puts, fmt.Errorf("putting %d jobs: %d were answered", jobs, answer.puts)
	}
	return jobs, nil
}

// batchOf returns the worker's last batch with other stamps and delays: what making it anew costs
// is not the server's.
func (r *run) batchOf(worker, jobs int, delay func() *durationpb.Duration) (*batchRequest, error) {
	b := &r.batches[worker]
	if len(b.message.GetJobs()) != jobs {
		*b = batchRequest{message: &belfryv1.PutBatchRequest{}}
		for range jobs {
			b.message.Jobs = append(b.message.Jobs, r.request(worker, nil))
		}
		if delay == nil {
			if err := b.encode(); err != nil {
				return nil, err
			}
		}
	}
	now := time.Now()
	for _, body := range b.bodies {
		restamp(body, now)
	}
	if delay != nil {
		for _, request := range b.message.Jobs {
			restamp(request.GetData(), now)
			request.When = &belfryv1.PutRequest_Delay{Delay: delay()}
		}
	}
	return b, nil
}

// request returns a put to one of the queues; without delay the job is due at once.
func (r *run) request(worker int, delay func() *durationpb.Duration) *belfryv1.PutRequest {
	request := &belfryv1.PutRequest{
		Queue: r.names[worker%len(r.names)],
		Body:  &belfryv1.PutRequest_Data{Data: stamped(r.body, time.Now())},
	}
	if delay != nil {
		request.When = &belfryv1.PutRequest_Delay{Delay: delay()}
	}
	return request
}

// pending fills the server with jobs that are due in 10 to 20 hours, and looks at what they cost.
func (r *run) pending(ctx context.Context) ([]Result, error) {
	var before Memory
	var err error
	if r.Memory != nil {
		if before, err = r.Memory(ctx); err != nil {
			return nil, err
		}
	}
	delay := func() *durationpb.Duration {
		return durationpb.New(10*time.Hour + rand.N(10*time.Hour)) //nolint:gosec // no secret
	}
	m := closed(ctx, r.Connections, newBudget(r.Jobs, r.Duration), r.Batch,
		func(ctx context.Context, worker, jobs int) (int, error) {
			return r.putBatch(ctx, worker, jobs, delay)
		})
	result := r.result("fill", m, r.Connections)
	if err := m.failure(ctx); err != nil {
		return []Result{result}, err
	}
	return r.weigh(ctx, result, before)
}

// weigh adds to a result what the jobs cost.
func (r *run) weigh(ctx context.Context, result Result, before Memory) ([]Result, error) {
	if r.Memory == nil {
		return []Result{result}, nil
	}
	filled, err := r.Memory(ctx)
	if err != nil {
		return []Result{result}, err
	}
	result.Memory = &MemoryCost{Before: before, Filled: filled, BytesPerJob: perJob(before, filled, result.Jobs)}
	if r.Collect == nil {
		return []Result{result}, nil
	}
	cost := r.Collect()
	settled, err := r.Memory(ctx)
	if err != nil {
		return []Result{result}, err
	}
	result.Collection, result.Memory.Settled, result.Memory.SettledBytesPerJob = &cost, &settled,
		perJob(before, settled, result.Jobs)
	return []Result{result}, nil
}

// perJob returns how much the resident memory grew for each job.
func perJob(before, after Memory, jobs uint64) float64 {
	if jobs == 0 {
		return 0
	}
	return (float64(after.ResidentBytes) - float64(before.ResidentBytes)) / float64(jobs)
}
