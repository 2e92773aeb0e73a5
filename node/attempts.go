package node

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Attempts sees to it that no two attempts at one request that reserves from several shards run at the same time. Side by side, each would see what
// the other is granted, and one would hand out what the other releases. All attempts must come to the same Attempts: that of the node which leads
// the first shard concerned. The zero value is ready for use.
type Attempts struct {
	mu     sync.Mutex
	byName map[string]*attempted
}

// attempted is a request with at least one attempt that runs or waits for its turn.
type attempted struct {
	// turn has room for one: the attempt that runs.
	turn chan struct{}
	// newest is closed when one more attempt comes.
	newest chan struct{}
	// count is the number of attempts that run or wait.
	count int
}

// Begin waits until no other attempt at the request of this name, which is made of its id and content, runs. Those that came before are told that there is a newer one, most
// likely because their callers have given up: one that waits for its turn leaves, so that there is never more than one of
// them, and one that runs is to wait for nothing more. newer tells this attempt the same. end must be called when it has ended.
// After patience, or with ctx, Begin fails with ErrUnknownOutcome: what the running attempt is granted is not known then.
func (a *Attempts) Begin(ctx context.Context, name string, patience time.Duration) (newer <-chan struct{}, end func(), err error) {
	r, newer := a.come(name)
	leave := func() { a.leave(name, r) }
	end = func() {
		<-r.turn
		leave()
	}
	select {
	case r.turn <- struct{}{}: // also if there is no patience at all
		return newer, end, nil
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r.turn <- struct{}{}:
		return newer, end, nil
	case <-newer:
	case <-timer.C:
	case <-ctx.Done():
	}
	leave()
	return nil, nil, fmt.Errorf("%w: another attempt at the request is under way", ErrUnknownOutcome)
}

// come counts an attempt, and tells those before it.
func (a *Attempts) come(name string) (r *attempted, newer <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r = a.byName[name]; r == nil {
		r = &attempted{turn: make(chan struct{}, 1)}
		if a.byName == nil {
			a.byName = map[string]*attempted{}
		}
		a.byName[name] = r
	} else {
		close(r.newest)
	}
	r.count++
	r.newest = make(chan struct{})
	return r, r.newest
}

// leave forgets an attempt.
func (a *Attempts) leave(name string, r *attempted) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.count--; r.count == 0 {
		delete(a.byName, name)
	}
}

// Len returns the number of requests with attempts that run or wait.
func (a *Attempts) Len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.byName)
}
