package client

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// troubleRepeat is how often a worker logs that the server is still out of reach.
const troubleRepeat = time.Minute

// trouble is what a worker knows about its connection to the server. It logs when failures begin,
// once a minute while they last, and when they end. Several goroutines may use it.
type trouble struct {
	logger    *slog.Logger
	addresses string

	mu      sync.Mutex
	reached bool      // at some time
	last    error     // nil while all is well
	since   time.Time // start of the present failures
	told    time.Time // when it was logged last
}

// failed records that a reserve failed.
func (t *trouble) failed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	first := t.last == nil
	if t.last = err; first {
		t.since = now
	}
	if first || now.Sub(t.told) >= troubleRepeat {
		t.told = now
		t.logger.Warn("the worker gets no jobs from the server", "addresses", t.addresses, "for", now.Sub(t.since), "error",
			err)
	}
}

// succeeded records that the server answered.
func (t *trouble) succeeded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reached = true; t.last != nil {
		t.last = nil
		t.logger.Warn("the worker reaches the server again", "addresses", t.addresses, "after", time.Since(t.since))
	}
}

// never returns the last error if no call has ever succeeded, nil if one did or none failed.
func (t *trouble) never() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reached || t.last == nil {
		return nil
	}
	return fmt.Errorf("the worker never got an answer from %s: %w", t.addresses, t.last)
}

// An attemptError is an attempt that failed before the handler returned a result: the handler
// panicked, or the body could not be decoded.
type attemptError struct{ err error }

func (e *attemptError) Error() string { return e.err.Error() }

func (e *attemptError) Unwrap() error { return e.err }
