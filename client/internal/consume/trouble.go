package consume

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// troubleRepeat is how often a worker logs that the server is still out of reach.
const troubleRepeat = time.Minute

// Trouble is what a worker knows about its connection to the server. It logs when failures begin,
// once a minute while they last, and when they end. Several goroutines may use it.
type Trouble struct {
	logger    *slog.Logger
	addresses string

	mu      sync.Mutex
	reached bool      // at some time
	last    error     // nil while all is well
	since   time.Time // start of the present failures
	told    time.Time // when it was logged last
}

// NewTrouble returns what a worker knows before its first call. The addresses are those of the
// server, for people.
func NewTrouble(logger *slog.Logger, addresses string) *Trouble {
	return &Trouble{logger: logger, addresses: addresses}
}

// Failed records that a reserve failed.
func (t *Trouble) Failed(err error) {
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

// Succeeded records that the server answered.
func (t *Trouble) Succeeded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reached = true; t.last != nil {
		t.last = nil
		t.logger.Warn("the worker reaches the server again", "addresses", t.addresses, "after", time.Since(t.since))
	}
}

// Never returns the last error if no call has ever succeeded, nil if one did or none failed.
func (t *Trouble) Never() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reached || t.last == nil {
		return nil
	}
	return fmt.Errorf("the worker never got an answer from %s: %w", t.addresses, t.last)
}
