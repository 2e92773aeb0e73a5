package queue

import (
	"context"
	"fmt"
	"sync"
)

// attempts counts the attempts at polls over several shards that were answered and have not ended
// yet. The zero value is ready for use.
type attempts struct{ finishing sync.WaitGroup }

// name identifies the request of a poll by its id and content. Two polls with the same name are
// attempts at the same request. A poll with other content must not end the wait of this one.
func (p *poll) name() string {
	return fmt.Sprintf("%q %q %d %d", p.requestID, p.queues, p.jobsMax, p.ttr)
}

// finish ends an attempt. If afterAnswer is not nil, the attempt ends when that has returned.
func (a *attempts) finish(afterAnswer, end func()) {
	if afterAnswer == nil {
		end()
		return
	}
	a.finishing.Go(func() {
		defer end()
		afterAnswer()
	})
}

// wait waits until no attempt has anything left to do, or until ctx ends.
func (a *attempts) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		a.finishing.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the end of polls: %w", context.Cause(ctx))
	}
}
