package stream

import (
	"context"
	"errors"
	"sync"
	"time"
)

// DialerConfig says how a Dialer makes streams.
type DialerConfig struct {
	// Dial makes a stream. key is the present one. A *RefusedError says that there are no streams, and
	// any other error that the server is out of reach.
	Dial func(ctx context.Context, key string) (*Caller, error)
	// Key names the credentials of new calls; a stream with others is not used for them.
	Key func() string
	// BarMin is how long no stream is asked for after one was refused. It doubles with each further
	// refusal, up to BarMax, because calls wait while a request for a stream goes unanswered.
	BarMin, BarMax time.Duration
}

// A Dialer keeps one stream to a server, and makes it when a call needs it. NewDialer makes a
// Dialer.
type Dialer struct {
	callers *Callers
	config  DialerConfig
	dialing chan struct{} // holds one value while a call dials

	mu       sync.Mutex
	current  *Caller
	carries  string        // the key of current
	barred   time.Time     // no stream is requested with barredTo before this time
	barredTo string        // the key with which the server, or a middlebox, refused
	bar      time.Duration // the length of the last bar
	failure  error         // the error of the last attempt to connect; nil if it did not fail
	failedAt time.Time
}

// NewDialer returns a dialer whose streams are among callers.
func NewDialer(callers *Callers, config DialerConfig) *Dialer {
	return &Dialer{callers: callers, config: config, dialing: make(chan struct{}, 1)}
}

// A RefusedError says that a connection was made and no stream.
type RefusedError struct{ Cause error }

// Error implements error.
func (e *RefusedError) Error() string { return e.Cause.Error() }

// Unwrap returns what refused the stream.
func (e *RefusedError) Unwrap() error { return e.Cause }

// Get returns the stream, and makes one if there is none. Nil without an error means that calls go
// another way. After an error no part of the call was sent.
func (d *Dialer) Get(ctx context.Context) (*Caller, error) {
	if c, known := d.now(); known {
		return c, nil
	}
	asked := time.Now()
	select {
	case d.dialing <- struct{}{}:
		defer func() { <-d.dialing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if c, known := d.now(); known {
		return c, nil // another call was faster
	}
	if err := d.failedSince(asked); err != nil {
		return nil, err
	}
	key := d.config.Key()
	c, err := d.config.Dial(ctx, key)
	return c, d.dialed(ctx, c, key, err)
}

// now returns the present stream, nil if there can be none. known is false if Get should make one.
func (d *Dialer) now() (c *Caller, known bool) {
	key := d.config.Key()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != nil && d.carries == key && d.current.Takes() { // the stream of an earlier key ends by being idle
		return d.current, true
	}
	return nil, d.barredTo == key && time.Now().Before(d.barred) || d.callers.isClosed()
}

// failedSince returns the error with which another caller has found since asked that the server is
// out of reach. Callers that waited for that attempt do not try again one after the other.
func (d *Dialer) failedSince(asked time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failedAt.After(asked) {
		return d.failure
	}
	return nil
}

// dialed records how an attempt ended. It returns the error for the call that made the attempt.
// Without an error and without a stream, calls go another way.
func (d *Dialer) dialed(ctx context.Context, c *Caller, key string, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, refused := errors.AsType[*RefusedError](err)
	switch {
	case err == nil:
		d.current, d.carries, d.failure, d.bar = c, key, nil, 0
	case ctx.Err() != nil:
		return err // it does not concern the server
	case refused:
		d.failure = nil
		d.barLocked(key)
	default:
		d.failure, d.failedAt = err, time.Now()
	}
	return d.failure
}

// barLocked stops requests for a stream with a key for a while: calls go another way. d.mu is held.
func (d *Dialer) barLocked(key string) {
	d.bar = min(max(2*d.bar, d.config.BarMin), d.config.BarMax)
	d.barred, d.barredTo = time.Now().Add(d.bar), key
}

// Swallowed records that a request for a stream went unanswered. Only the request's caller can tell
// that from its own departure.
func (d *Dialer) Swallowed() {
	key := d.config.Key()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.barLocked(key)
}

// Carries returns the key of the newest stream.
func (d *Dialer) Carries() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.carries
}
