package client

import (
	"context"
	"encoding/json"
	"fmt"
)

// A Queue is one queue whose jobs are Go values. Make one with [NewQueue].
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

// WithCodec gives a handle for the same queue with another encoding of bodies.
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
func (q *Queue[T]) Get(ctx context.Context, id string) (*JobOf[T], error) {
	job, err := q.client.Get(ctx, q.name, id)
	if err != nil {
		return nil, err
	}
	return q.decode(job)
}

// Work runs w over the queue; see [Worker.Run]. w.Queues must be empty or name queues of the same type. A job whose body
// cannot be decoded becomes dead: another attempt would fail as this one did.
func (q *Queue[T]) Work(ctx context.Context, w Worker, handle func(ctx context.Context, job *JobOf[T]) error) error {
	if len(w.Queues) == 0 {
		w.Queues = []string{q.name}
	}
	return w.Run(ctx, q.client, func(ctx context.Context, job *Job) error {
		decoded, err := q.decode(job)
		if err != nil {
			return Dead(err)
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
