package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/client"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// reserveWait is how long a consumer waits for a job in one call.
const reserveWait = 5 * time.Second

// sdk measures puts by many callers, and then reserve and ack of all these jobs by as many.
func (r *run) sdk(ctx context.Context, sdk *client.Client) ([]Result, error) {
	var begun atomic.Uint64
	puts := closed(ctx, r.Callers, newBudget(r.Jobs, r.Duration), 1,
		func(ctx context.Context, worker, _ int) (int, error) {
			if _, err := sdk.Put(ctx, r.names[worker%len(r.names)], stamped(r.body, time.Now()),
				r.key(begun.Add(1))...); err != nil {
				return 0, fmt.Errorf("putting a job: %w", err)
			}
			return 1, nil
		})
	results := []Result{r.result("put", puts, r.Callers)}
	if err := puts.failure(ctx); err != nil {
		return results, err
	}
	takes := closed(ctx, r.Callers, newBudget(puts.jobs, 0), 1, func(ctx context.Context, _, _ int) (int, error) {
		return r.take(ctx, sdk, nil)
	})
	return append(results, r.result("reserve+ack", takes, r.Callers)), takes.failure(ctx)
}

// limitKeys has each key of the run's queues be reserved once at a time.
func (r *run) limitKeys(ctx context.Context) error {
	if r.Keys == 0 {
		return nil
	}
	admin := belfryv1connect.NewAdminServiceClient(r.wires[0], r.URL, withoutGzip())
	for _, name := range r.names {
		settings := &belfryv1.QueueSettings{KeyConcurrency: new(uint32(1))}
		request := &belfryv1.CreateQueueRequest{Queue: name, Settings: settings}
		if _, err := admin.CreateQueue(ctx, request); err != nil {
			return fmt.Errorf("making a queue whose keys have a limit: %w", err)
		}
	}
	return nil
}

// key returns what gives job n its key: the keys take turns.
func (r *run) key(n uint64) []client.PutOption {
	if r.Keys == 0 {
		return nil
	}
	return []client.PutOption{client.Key("key-" + strconv.FormatUint(n%uint64(r.Keys), 10))} //nolint:gosec // above 0
}

// errEmpty: jobs that were put did not come.
var errEmpty = errors.New("no job came although some are left")

// take reserves one job and acks it. seen looks at the job as soon as it is there.
func (r *run) take(ctx context.Context, sdk *client.Client, seen func(*client.Job) error) (int, error) {
	jobs, err := sdk.Reserve(ctx, client.ReserveOptions{Queues: r.names, Wait: reserveWait})
	if err != nil {
		return 0, fmt.Errorf("reserving a job: %w", err)
	}
	if len(jobs) == 0 {
		return 0, errEmpty
	}
	if seen != nil {
		if err := seen(jobs[0]); err != nil {
			return 0, err
		}
	}
	if err := jobs[0].Ack(ctx); err != nil {
		return 0, fmt.Errorf("acking a job: %w", err)
	}
	return 1, nil
}
