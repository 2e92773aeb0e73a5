package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belfrydb/belfry/client"
)

// reserveWait is how long a consumer waits for a job in one call.
const reserveWait = 5 * time.Second

// sdk measures puts by many callers, and then reserve and ack of all these jobs by as many.
func (r *run) sdk(ctx context.Context, sdk *client.Client) ([]Result, error) {
	puts := closed(ctx, r.Callers, newBudget(r.Jobs, r.Duration), 1,
		func(ctx context.Context, worker, _ int) (int, error) {
			if _, err := sdk.Put(ctx, r.names[worker%len(r.names)], stamped(r.body, time.Now())); err != nil {
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
