package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node"
)

// attempts are the attempts at polls over several shards that come through this node. The zero value is ready for use.
type attempts struct {
	// here keeps them apart if the node does not.
	here node.RequestMutex
	// finishing are attempts that were answered and have not ended yet.
	finishing sync.WaitGroup
}

// name returns what makes two polls attempts at the same one: request id and content, and the caller's namespace once there are any. Another's poll, or
// one with other content, must not end this one's wait.
func (p *poll) name() string {
	return fmt.Sprintf("%q %q %d %d", p.requestID, p.queues, p.jobsMax, p.ttr)
}

// begin is node.Attempts.Begin.
func (a *attempts) begin(ctx context.Context, name string, patience time.Duration) (newer <-chan struct{}, end func(), err error) {
	if newer, end, err = a.here.Lock(ctx, name, patience); err != nil {
		return nil, nil, faultOfError(err)
	}
	return newer, end, nil
}

// finish ends an attempt once rest, if there is any, is done.
func (a *attempts) finish(rest, end func()) {
	if rest == nil {
		end()
		return
	}
	a.finishing.Go(func() {
		defer end()
		rest()
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
