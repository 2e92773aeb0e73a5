package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/belfrydb/belfry/client/internal/consume"
)

// A Queue is a handle for one queue whose jobs are Go values. Make one with [NewQueue].
type Queue[T any] struct {
	client    *Client
	name      string
	marshal   func(T) ([]byte, error)
	unmarshal func([]byte, *T) error
}

// A JobOf is a job whose body was decoded into Value.
type JobOf[T any] struct {
	*Job
	// Value is the decoded body.
	Value T
}

// NewQueue makes a handle for a queue whose bodies are JSON.
func NewQueue[T any](c *Client, name string) *Queue[T] {
	return &Queue[T]{
		client: c, name: name,
		marshal:   func(v T) ([]byte, error) { return json.Marshal(v) },
		unmarshal: func(body []byte, v *T) error { return json.Unmarshal(body, v) },
	}
}

// WithCodec returns a handle for the same queue with another encoding of bodies.
func (q *Queue[T]) WithCodec(marshal func(T) ([]byte, error), unmarshal func([]byte, *T) error) *Queue[T] {
	return &Queue[T]{client: q.client, name: q.name, marshal: marshal, unmarshal: unmarshal}
}

// Put adds a job; see [Client.Put].
func (q *Queue[T]) Put(ctx context.Context, value T, opts ...PutOption) (PutResult, error) {
	body, err := q.marshal(value)
	if err != nil {
		return PutResult{}, fmt.Errorf("encoding a job for queue %s: %w", q.name, err)
	}
	return q.client.Put(ctx, q.name, body, opts...)
}

// Get reads one job; see [Client.Get].
func (q *Queue[T]) Get(ctx context.Context, id string, options ...JobOption) (*JobOf[T], error) {
	job, err := q.client.Get(ctx, q.name, id, options...)
	if err != nil {
		return nil, err
	}
	return q.decode(job)
}

// Work runs w on the queue; see [Worker.Run]. w.Queues must be empty, or name queues of the same
// type. A body that cannot be decoded is a failed attempt, and OnError is called with the error.
// The job's retry delays decide when it is tried again, perhaps by a program that can decode it.
// The job is dead when its attempts are used up.
func (q *Queue[T]) Work(ctx context.Context, w Worker, handle func(ctx context.Context, job *JobOf[T]) error) error {
	if len(w.Queues) == 0 {
		w.Queues = []string{q.name}
	}
	return w.Run(ctx, q.client, func(ctx context.Context, job *Job) error {
		decoded, err := q.decode(job)
		if err != nil {
			return &consume.AttemptError{Err: err}
		}
		return handle(ctx, decoded)
	})
}

func (q *Queue[T]) decode(job *Job) (*JobOf[T], error) {
	decoded := &JobOf[T]{Job: job}
	if err := q.unmarshal(job.Body, &decoded.Value); err != nil {
		return nil, fmt.Errorf("decoding job %s of queue %s: %w", job.ID, job.Queue, err)
	}
	return decoded, nil
}

// A PutOf describes a job to add, for [Queue.PutBatch].
type PutOf[T any] struct {
	Value   T
	Options []PutOption
}

// PutBatch adds jobs; see [Client.PutBatch]. If it cannot encode one value, it puts none.
func (q *Queue[T]) PutBatch(ctx context.Context, puts []PutOf[T]) ([]PutResult, error) {
	list := make([]Put, len(puts))
	for i, p := range puts {
		body, err := q.marshal(p.Value)
		if err != nil {
			return nil, fmt.Errorf("encoding job %d for queue %s: %w", i, q.name, err)
		}
		list[i] = Put{Queue: q.name, Body: body, Options: p.Options}
	}
	return q.client.PutBatch(ctx, list)
}

// Reserve takes jobs of the queue; see [Client.Reserve]. o.Queues must be empty. If a job's body
// cannot be decoded, Reserve nacks the job as a failed attempt, and the error names it. The other
// jobs are returned beside the error.
func (q *Queue[T]) Reserve(ctx context.Context, o ReserveOptions) ([]*JobOf[T], error) {
	if len(o.Queues) > 0 {
		return nil, invalidError("ReserveOptions.Queues must be empty: the jobs are of queue %s", q.name)
	}
	o.Queues = []string{q.name}
	jobs, err := q.client.Reserve(ctx, o)
	if err != nil {
		return nil, err
	}
	var all []*JobOf[T]
	var problems []error
	for _, job := range jobs {
		decoded, err := q.decode(job)
		if err != nil {
			problems = append(problems, err, job.Nack(ctx, err))
			continue
		}
		all = append(all, decoded)
	}
	return all, errors.Join(problems...)
}

// Cancel ends a job; see [Client.Cancel].
func (q *Queue[T]) Cancel(ctx context.Context, id string, options ...JobOption) (State, error) {
	return q.client.Cancel(ctx, q.name, id, options...)
}

// ForceCancel ends a job even if it is reserved; see [Client.ForceCancel].
func (q *Queue[T]) ForceCancel(ctx context.Context, id string, options ...JobOption) (State, error) {
	return q.client.ForceCancel(ctx, q.name, id, options...)
}

// Redrive makes dead jobs ready again; see [Client.Redrive].
func (q *Queue[T]) Redrive(ctx context.Context, ids ...string) (int, error) {
	return q.client.Redrive(ctx, q.name, ids...)
}

// RedriveOldest makes dead jobs ready again, those with the earliest due times first; see
// [Client.RedriveOldest].
func (q *Queue[T]) RedriveOldest(ctx context.Context, limit int) (int, error) {
	return q.client.RedriveOldest(ctx, q.name, limit)
}

// List reads jobs without their bodies, and so without their values; see [Client.List].
func (q *Queue[T]) List(ctx context.Context, o ListOptions) iter.Seq2[*Job, error] {
	return q.client.List(ctx, q.name, o)
}

// Reschedule gives a job another due time; see [Client.Reschedule].
func (q *Queue[T]) Reschedule(ctx context.Context, id string, when PutOption, options ...JobOption) (time.Time, error) {
	return q.client.Reschedule(ctx, q.name, id, when, options...)
}
