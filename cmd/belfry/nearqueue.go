package main

import (
	"context"
	"fmt"
	"strings"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// mustExist returns QUEUE_NOT_FOUND, with the queue that was probably meant, if there is no such queue. To the server a
// queue that was never put to is as good as an empty one; a person may have mistyped its name.
func mustExist(ctx context.Context, conn *connection, queue string) error {
	_, err := conn.admin.GetQueue(ctx, &belfryv1.GetQueueRequest{Queue: queue})
	if wireCode(err) == codeNotFound {
		return withNearestQueue(ctx, conn, queue, err)
	}
	return nil // the call was answered; whatever else there is to say of the queue, nobody asked
}

// withNearestQueue adds the queue that was probably meant to the error that a call for an unknown one ended with.
func withNearestQueue(ctx context.Context, conn *connection, queue string, err error) error {
	fault, ok := fault.FromConnect(err)
	if !ok || fault.Reason != belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
		return err
	}
	hint := nearestQueue(ctx, conn, queue)
	if hint == "" {
		return err
	}
	return &codedError{codeNotFound, fmt.Sprintf("QUEUE_NOT_FOUND: there is no queue %q%s", queue, hint)}
}

// nearestQueue returns "; did you mean …?" if there is a queue of a name like it, of the first thousand by name. What cannot
// be listed offers nothing.
func nearestQueue(ctx context.Context, conn *connection, queue string) string {
	page, err := conn.admin.ListQueues(ctx, &belfryv1.ListQueuesRequest{PageSize: 1000})
	if err != nil {
		return ""
	}
	names := make([]string, len(page.Queues))
	for i, q := range page.Queues {
		names[i] = q.Name
	}
	return didYouMean(queue, names)
}

// warnOfUnknownQueues tells a consumer that got nothing which of its queues do not exist: it would wait for ever where a
// name is mistyped. A queue may also be made by its first put later, so that it is no error.
func (a *app) warnOfUnknownQueues(ctx context.Context, conn *connection, queues []string) {
	const most = 16 // a look at each costs a call
	for _, queue := range queues[:min(len(queues), most)] {
		err := mustExist(ctx, conn, queue)
		if err == nil {
			continue
		}
		text := strings.TrimPrefix(explain(err), "QUEUE_NOT_FOUND: ")
		if !strings.Contains(text, queue) {
			text = fmt.Sprintf("there is no queue %q", queue)
		}
		fmt.Fprintf(a.err, "belfry: warning: %s\n", text)
	}
}
