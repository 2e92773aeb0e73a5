// Package recent keeps what was read a moment ago, so that many who look cost one read.
package recent

import (
	"context"
	"sync"
	"time"
)

const (
	// readWait is for how long a page waits for a new value while there is an older one. With some
	// thousands of queues a read takes longer.
	readWait = 20 * time.Millisecond
	// readMax bounds a read, which ends with no request.
	readMax = 10 * time.Second
	// readsMax bounds the values: one for each token that looks.
	readsMax = 64
	// restFactor: a value is fresh for this multiple of the time that its read took, at most restMax.
	// So reads take about 1 % of a processor, and less of a busy one, however much there is to read.
	restFactor = 100
	restMax    = 20 * time.Second
)

// Reads keeps what was read last for each token. Any goroutine may use it.
type Reads[T any] struct {
	fresh, old time.Duration

	mu   sync.Mutex
	kept map[string]*entry[T]
}

// New returns an empty memory. fresh is for how long a value is returned again without another read;
// one whose read took long is returned for longer. old is for how long after that one is returned
// while another is read.
func New[T any](fresh, old time.Duration) *Reads[T] {
	return &Reads[T]{fresh: fresh, old: old, kept: map[string]*entry[T]{}}
}

// entry is what was read last for a token.
type entry[T any] struct {
	value T
	err   error
	// at is when it was read; zero if it never was, or if it failed. took is how long that took.
	at   time.Time
	took time.Duration
	// reading is closed when the read that is under way ends; nil if there is none.
	reading chan struct{}
}

// Get returns the value for a token: a fresh one, or after readWait the one before. Nobody may change
// it. read is called by another goroutine, with a context that ends after readMax and not with ctx.
// The error is that of read or of ctx; a failed read is tried again by the next call.
func (s *Reads[T]) Get(ctx context.Context, token string, read func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	kept := s.of(token)
	age := time.Since(kept.at)
	fresh := max(s.fresh, min(restFactor*kept.took, restMax))
	if age < fresh {
		defer s.mu.Unlock()
		return kept.value, nil
	}
	if kept.reading == nil {
		kept.reading = make(chan struct{})
		go s.fill(context.WithoutCancel(ctx), kept, read)
	}
	reading, before := kept.reading, kept.value
	s.mu.Unlock()
	var soon <-chan time.Time // without an older value, nothing ends the wait but the read
	if age < fresh+s.old {
		timer := time.NewTimer(readWait)
		defer timer.Stop()
		soon = timer.C
	}
	select {
	case <-reading:
		s.mu.Lock()
		defer s.mu.Unlock()
		return kept.value, kept.err
	case <-soon:
		return before, nil
	case <-ctx.Done():
		return before, ctx.Err()
	}
}

// Forget forgets what was read for a token, because a change has made it wrong. A read that is under
// way began before the change and is not waited for.
func (s *Reads[T]) Forget(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, token)
}

// of returns what is kept for a token. For a new token it forgets another one if there are too many.
// s.mu is held.
func (s *Reads[T]) of(token string) *entry[T] {
	if kept := s.kept[token]; kept != nil {
		return kept
	}
	for other, kept := range s.kept {
		if len(s.kept) < readsMax {
			break
		}
		if kept.reading == nil {
			delete(s.kept, other)
		}
	}
	kept := &entry[T]{}
	s.kept[token] = kept
	return kept
}

// fill reads a value.
func (s *Reads[T]) fill(ctx context.Context, kept *entry[T], read func(context.Context) (T, error)) {
	ctx, cancel := context.WithTimeout(ctx, readMax)
	defer cancel()
	began := time.Now()
	value, err := read(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	kept.value, kept.err, kept.at, kept.took = value, err, time.Now(), time.Since(began)
	if err != nil {
		kept.at = time.Time{}
	}
	close(kept.reading)
	kept.reading = nil
}
