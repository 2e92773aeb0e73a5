package cli

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/belfrydb/belfry/rpc/fault"

	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// CheckQueue returns QUEUE_NOT_FOUND, with the queue that was probably meant, if there is no such
// queue. To the server a queue that was never put to is as good as an empty one; a person may have
// mistyped its name.
func CheckQueue(ctx context.Context, conn *Connection, queue string) error {
	_, err := conn.Admin.GetQueue(ctx, &belfryv1.GetQueueRequest{Queue: queue})
	if WireCode(err) == CodeNotFound {
		return WithNearestQueue(ctx, conn, queue, err)
	}
	return nil // the call was answered, and the caller did not ask for more
}

// WithNearestQueue adds the queue that was probably meant to the error that a call for an unknown
// one ended with.
func WithNearestQueue(ctx context.Context, conn *Connection, queue string, err error) error {
	fault, ok := fault.FromConnect(err)
	if !ok || fault.Reason != belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
		return err
	}
	hint := NearestQueue(ctx, conn, queue)
	if hint == "" {
		return err
	}
	return ExitWith(CodeNotFound, fmt.Sprintf("QUEUE_NOT_FOUND: there is no queue %q%s", queue, hint))
}

// NearestQueue returns "; did you mean …?" if there is a queue of a name like it, of the first
// thousand by name. What cannot be listed offers nothing.
func NearestQueue(ctx context.Context, conn *Connection, queue string) string {
	page, err := conn.Admin.ListQueues(ctx, &belfryv1.ListQueuesRequest{PageSize: 1000})
	if err != nil {
		return ""
	}
	names := make([]string, len(page.Queues))
	for i, q := range page.Queues {
		names[i] = q.Name
	}
	return DidYouMean(queue, names)
}

// WarnOfUnknownQueues tells a consumer that got nothing which of its queues do not exist: it would
// wait for ever where a name is mistyped. A queue may also be made by its first put later, so that
// it is no error.
func (a *App) WarnOfUnknownQueues(ctx context.Context, conn *Connection, queues []string) {
	const most = 16 // a look at each costs a call
	for _, queue := range queues[:min(len(queues), most)] {
		err := CheckQueue(ctx, conn, queue)
		if err == nil {
			continue
		}
		text := strings.TrimPrefix(Explain(err), "QUEUE_NOT_FOUND: ")
		if !strings.Contains(text, queue) {
			text = fmt.Sprintf("there is no queue %q", queue)
		}
		fmt.Fprintf(a.Err, "belfry: warning: %s\n", text)
	}
}

// ListQueues reads all pages.
func ListQueues(ctx context.Context, conn *Connection,
	request *belfryv1.ListQueuesRequest) (*belfryv1.ListQueuesResponse, error) {
	return ReadQueues(ctx, conn, request, math.MaxInt)
}

// ReadQueues reads so many pages at most. If there are more, the answer has the token of the next.
func ReadQueues(ctx context.Context, conn *Connection, request *belfryv1.ListQueuesRequest,
	pages int) (*belfryv1.ListQueuesResponse, error) {
	all := &belfryv1.ListQueuesResponse{Due: &belfryv1.DueHistogram{}}
	request.PageSize = 1000
	for range pages {
		page, err := conn.Admin.ListQueues(ctx, request)
		if err != nil {
			return nil, err
		}
		all.Queues = append(all.Queues, page.Queues...)
		if page.Due != nil {
			render.AddDue(all.Due, page.Due)
		}
		if all.NextPageToken = page.NextPageToken; all.NextPageToken == "" {
			break
		}
		request.PageToken = all.NextPageToken
	}
	return all, nil
}
