package propose

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node/outcome"
)

// RequestMutex keeps two attempts at one request that reserves from several shards from running at
// the same time. Side by side, each would see the grants of the other, and one would deliver what
// the other releases. All attempts must use the same RequestMutex: that of the node that leads the
// first shard of the request. The zero value is ready for use.
type RequestMutex struct {
	mu     sync.Mutex
	byName map[string]*requestLock
}

// requestLock is the lock of a request with at least one attempt that runs or waits.
type requestLock struct {
	// held has one element while an attempt runs.
	held chan struct{}
	// newest is closed when another attempt arrives.
	newest chan struct{}
	// count is the number of attempts that run or wait.
	count int
}

// Lock waits until no other attempt at the request runs. name is made of the request's id and
// content. The callers of earlier attempts have most likely given up, so Lock tells these attempts
// that there is a newer one. A waiting attempt then fails, so that at most one waits; a running
// attempt should end its waits. newer is closed when a newer attempt than this one arrives. The
// caller must call unlock when the attempt has ended. After wait, or when ctx ends, Lock fails with
// ErrUnknownOutcome, because the outcome of the running attempt is not known.
func (a *RequestMutex) Lock(ctx context.Context, name string, wait time.Duration) (newer <-chan struct{},
	unlock func(), err error) {
	r, newer := a.addAttempt(name)
	leave := func() { a.removeAttempt(name, r) }
	unlock = func() {
		<-r.held
		leave()
	}
	select {
	case r.held <- struct{}{}: // also if wait is 0
		return newer, unlock, nil
	default:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case r.held <- struct{}{}:
		return newer, unlock, nil
	case <-newer:
	case <-timer.C:
	case <-ctx.Done():
	}
	leave()
	return nil, nil, fmt.Errorf("%w: another attempt at the request is under way", outcome.ErrUnknownOutcome)
}

// addAttempt counts an attempt, and tells the earlier ones.
func (a *RequestMutex) addAttempt(name string) (r *requestLock, newer <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r = a.byName[name]; r == nil {
		r = &requestLock{held: make(chan struct{}, 1)}
		if a.byName == nil {
			a.byName = map[string]*requestLock{}
		}
		a.byName[name] = r
	} else {
		close(r.newest)
	}
	r.count++
	r.newest = make(chan struct{})
	return r, r.newest
}

// removeAttempt removes an attempt.
func (a *RequestMutex) removeAttempt(name string, r *requestLock) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.count--; r.count == 0 {
		delete(a.byName, name)
	}
}

// Len returns the number of requests with attempts that run or wait.
func (a *RequestMutex) Len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.byName)
}
