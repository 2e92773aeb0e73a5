package inbound

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// BytesInFlightMax bounds the bytes of request bodies that all calls together hold in memory.
const BytesInFlightMax = 256 << 20

// Limiter bounds the bodies of requests. All of its fields are required.
type Limiter struct {
	Limits *check.Limits
	// InFlight counts the bytes of bodies that all calls together hold in memory.
	InFlight *atomic.Int64
	// Observe records the size of a request of a procedure, or of a message of a stream.
	Observe func(procedure string, bytes int64)
}

// limitedBody is a request body with limits on its size, on the time it takes to arrive, and on the
// bytes that all such bodies hold together. Its errors are Connect errors, which Connect passes on
// as they are.
type limitedBody struct {
	io.ReadCloser
	limits   *check.Limits
	inFlight *atomic.Int64
	held     int64

	// mu prevents a read deadline after the last byte. On HTTP/1 such a deadline would end the wait of
	// a long poll: the server reads its connection in the background to notice that the client left.
	mu    sync.Mutex
	done  bool
	timer *time.Timer
}

// Unary returns the request of a procedure, "" for none, with a limitedBody. release must be called
// when the call has ended. The request that net/http holds keeps its own body: the server
// checks whether bytes of that body are left, and would read them as the next request otherwise.
func (l *Limiter) Unary(w http.ResponseWriter, r *http.Request,
	procedure string) (limited *http.Request, release func()) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, func() {}
	}
	b := &limitedBody{
		ReadCloser: http.MaxBytesReader(w, r.Body, int64(l.Limits.MessageBytesMax)+envelopeBytes),
		limits:     l.Limits, inFlight: l.InFlight,
	}
	controller := http.NewResponseController(w)
	b.timer = time.AfterFunc(l.Limits.BodyWait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.done {
			// A deadline in the past fails the waiting read. Where no deadline can be set, the server's
			// timeouts bound the read.
			_ = controller.SetReadDeadline(time.Unix(1, 0))
		}
	})
	changed := *r
	changed.Body = b
	return &changed, func() {
		b.release()
		if procedure != "" {
			l.Observe(procedure, b.held)
		}
	}
}

// envelopeBytes is the length of the prefix that gRPC puts before a message.
const envelopeBytes = 5

// Read reads, and counts the bytes that it read.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.held += int64(n)
	if b.inFlight.Add(int64(n)) > BytesInFlightMax {
		b.finish()
		return n, fault.New(belfryv1.Reason_REASON_OVERLOADED).Wire()
	}
	if err == nil {
		return n, nil
	}
	b.finish()
	var tooMuch *http.MaxBytesError
	switch {
	case errors.Is(err, io.EOF):
		return n, err
	case errors.As(err, &tooMuch):
		return n, fault.TooLargeRequest(strconv.Itoa(b.limits.MessageBytesMax)).Wire()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, fault.Invalid("request", "the body did not arrive within %s, which is the limit",
			wire.FormatDuration(b.limits.BodyWait)).Wire()
	default:
		return n, fault.Invalid("request", "the body ended too early").Wire()
	}
}

// finish ends the time limit of the body: there are no more reads.
func (b *limitedBody) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done = true
	b.timer.Stop()
}

// release returns the bytes that the body held to the limit on all bodies.
func (b *limitedBody) release() {
	b.finish()
	b.inFlight.Add(-b.held)
}
