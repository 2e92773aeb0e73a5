package many

import (
	"context"
	"fmt"
	"sync"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/selection"
)

// callsAtOnce is how many calls are under way at one time.
const callsAtOnce = 16

// Changer changes jobs, as the client of QueueService does.
type Changer interface {
	Cancel(context.Context, *belfryv1.CancelRequest) (*belfryv1.CancelResponse, error)
	Reschedule(context.Context, *belfryv1.RescheduleRequest) (*belfryv1.RescheduleResponse, error)
	Redrive(context.Context, *belfryv1.RedriveRequest) (*belfryv1.RedriveResponse, error)
}

// Act carries out an order on jobs of a queue, and returns how many were changed. Jobs that have ended
// or changed meanwhile are left as they are. After an error some may have been changed; the same call
// with the same request id goes on.
func Act(ctx context.Context, by Changer, queue string, jobs []selection.Job, order *selection.Order,
	requestID string) (int, error) {
	if order.Act == selection.Redrive { // the call finds a job by its id, whatever its key
		var ids []string
		for _, j := range jobs {
			ids = append(ids, j.ID)
		}
		res, err := by.Redrive(ctx, &belfryv1.RedriveRequest{Queue: queue, Ids: ids, RequestId: requestID})
		return int(res.GetMoved()), err
	}
	var mu sync.Mutex
	var calls sync.WaitGroup
	var first error
	done, slots := 0, make(chan struct{}, callsAtOnce)
	for i, job := range jobs {
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			err := actOn(ctx, by, queue, job, order, fmt.Sprintf("%s-%d", requestID, i))
			code := connect.CodeOf(err)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				done++
			case code != connect.CodeNotFound && code != connect.CodeFailedPrecondition && first == nil:
				first = err
			}
		})
	}
	calls.Wait()
	return done, first
}

// actOn makes the call about one job.
func actOn(ctx context.Context, by Changer, queue string, job selection.Job, order *selection.Order,
	requestID string) error {
	if order.Act == selection.Cancel {
		_, err := by.Cancel(ctx, &belfryv1.CancelRequest{Queue: queue, Id: job.ID, Key: job.Key, Force: order.Force,
			RequestId: requestID})
		return err
	}
	_, err := by.Reschedule(ctx, &belfryv1.RescheduleRequest{Queue: queue, Id: job.ID, Key: job.Key,
		When: order.When.When, RequestId: requestID})
	return err
}
