package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// cleanupMax is how long the deletion of a run's queues may take.
const cleanupMax = 10 * time.Minute

// straggleTime is within which a call is carried out that had reached the server when its run was
// cut off.
const straggleTime = 250 * time.Millisecond

// removeQueues deletes the queues of the run, with the jobs that are left in them. Where the run
// was cut off, a put that was on its way may make a queue again. So it deletes until it finds none
// that comes back.
func (r *run) removeQueues(ctx context.Context, cutOff bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupMax)
	defer cancel()
	conn := r.newWire()
	defer conn.close()
	defer context.AfterFunc(ctx, conn.close)()
	admin := belfryv1connect.NewAdminServiceClient(conn, r.URL, withoutGzip())
	for {
		found, err := r.removeOnce(ctx, admin)
		if err != nil {
			return fmt.Errorf("removing the queues of this run, %s, which 'belfry queue delete' does as well: %w",
				strings.Join(r.names, " "), err)
		}
		if !found || !cutOff {
			return nil
		}
		select {
		case <-time.After(straggleTime):
		case <-ctx.Done():
		}
	}
}

// removeOnce deletes each queue of the run, and reports whether there was one.
func (r *run) removeOnce(ctx context.Context, admin belfryv1connect.AdminServiceClient) (found bool, err error) {
	for _, name := range r.names {
		_, err := admin.DeleteQueue(ctx, &belfryv1.DeleteQueueRequest{Queue: name})
		wire, _ := errors.AsType[*connect.Error](err)
		switch {
		case err == nil:
			found = true
		case wire != nil && wire.Code() == connect.CodeNotFound:
		default:
			return found, err
		}
	}
	return found, nil
}
