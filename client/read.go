package client

import (
	"context"
	"iter"
	"time"

	"github.com/belfrydb/belfry/client/internal/calls"
	"github.com/belfrydb/belfry/client/internal/placement"
	"github.com/belfrydb/belfry/client/internal/values"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A JobOption says more about the job that a call names. The zero value says nothing.
type JobOption struct{ key string }

// OfKey names the key of the job; see [Key]. In a queue with several partitions the key says where the
// job is. Without it the servers ask the partition of the id first, and all others if the job is not
// there; if several keys have a job of the id, it is one of them.
func OfKey(key string) JobOption { return JobOption{key} }

// keyIn returns the key that options name, empty if none does.
func keyIn(options []JobOption) (key string) {
	for _, o := range options {
		if o.key != "" {
			key = o.key
		}
	}
	return key
}

// Get reads one job with its body. The option is [OfKey].
//
// Errors: [ErrJobNotFound].
func (c *Client) Get(ctx context.Context, queue, id string, options ...JobOption) (*Job, error) {
	return c.get(ctx, &belfryv1.GetRequest{Queue: queue, Id: id, Key: keyIn(options)})
}

// Find is Get that also reports a job that has ended, as long as the server remembers its id: for
// the queue's dedup window, if the producer chose the id. Such a job has State, EndedAt, FirstDueAt
// and, unless AttemptUnknown, Attempt. Its body is gone. The option is [OfKey].
//
// Errors: [ErrJobNotFound].
func (c *Client) Find(ctx context.Context, queue, id string, options ...JobOption) (*Job, error) {
	return c.get(ctx, &belfryv1.GetRequest{Queue: queue, Id: id, Ended: true, Key: keyIn(options)})
}

func (c *Client) get(ctx context.Context, req *belfryv1.GetRequest) (*Job, error) {
	place := placement.Place{Queue: req.GetQueue(), ID: req.GetId(), Key: req.GetKey()}
	res, err := call(ctx, c, calls.Kind{Reads: true, Place: place}, onQueue(queueMethods.Get, req))
	if err != nil {
		return nil, err
	}
	return jobOf(c, res.GetJob(), time.Time{}), nil
}

// ListOptions select jobs for [Client.List].
type ListOptions struct {
	// State is DELAYED, READY, RESERVED or DEAD. Default DELAYED.
	State State
	// DueAfter and DueBefore, if not zero, select jobs due at or after DueAfter and before
	// DueBefore.
	DueAfter, DueBefore time.Time
	// Text, if not empty, selects jobs that have it in the id, in a header, in the last error or in
	// the body; IDPrefix those whose id begins with it: at most 256 bytes each. Cause selects jobs
	// by [Job.Cause], and Key those of one key. With any of them the list is a search, which looks at
	// one job after the other.
	Text, IDPrefix, Cause, Key string
	// PageSize is how many jobs one round trip returns: 1 to 1,000, default 100.
	PageSize int
}

// List reads jobs of one queue and state in due order, without bodies. The sequence ends after the
// first error. Jobs that change while it runs may be seen twice or not at all.
func (c *Client) List(ctx context.Context, queue string, o ListOptions) iter.Seq2[*Job, error] {
	return func(yield func(*Job, error) bool) {
		state, ok := values.StateNumber(o.State)
		if !ok || o.PageSize < 0 || o.PageSize > batchJobsMax {
			yield(nil, invalidError("ListOptions: there is no state %q, or the page size %d is not 0 to %d", o.State, o.PageSize,
				batchJobsMax))
			return
		}
		req := &belfryv1.ListRequest{
			Queue: queue, State: state, DueAfter: values.Timestamp(o.DueAfter), DueBefore: values.Timestamp(o.DueBefore),
			PageSize: int32(o.PageSize), Text: o.Text, IdPrefix: o.IDPrefix, Cause: o.Cause, Key: o.Key,
		}
		for {
			res, err := call(ctx, c, calls.Kind{Reads: true, Place: placement.Place{Queue: queue}},
				onQueue(queueMethods.List, req))
			if err != nil {
				yield(nil, err)
				return
			}
			for _, job := range res.GetJobs() {
				if !yield(jobOf(c, job, time.Time{}), nil) {
					return
				}
			}
			if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
				return
			}
		}
	}
}
