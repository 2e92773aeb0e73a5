package inbound

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// Stream is the request body of a stream. A message has limits on its size, on the time it
// takes to arrive from its first byte, and on the time that the client takes to read one. Between
// messages both sides may be silent. Bytes that were read and not yet processed count against the
// bytes that all bodies hold together. Only an answer that starts touches the response after the
// call has ended.
type Stream struct {
	io.ReadCloser
	controller *http.ResponseController
	limits     *check.Limits
	inFlight   *atomic.Int64
	measure    func(bytes int64) // of a message that has arrived

	mu sync.Mutex
	// wait is how long the client has to read a message.
	wait time.Duration
	// reading counts the bytes of the message that is being read.
	reading int64
	// cutOff and ended mean that the read deadline must not be set any more.
	cutOff, ended bool
	// ending means that the client gets no more time to read.
	ending bool
	// unread means that the write deadline of the current message is set. resets means that on
	// HTTP/2 this deadline ends the stream even if no bytes wait to be sent.
	unread, resets bool
}

// Stream returns the request of a procedure with a Stream as its body. Release must be called when
// the call has ended.
func (l *Limiter) Stream(w http.ResponseWriter, r *http.Request,
	procedure string) (limited *http.Request, body *Stream) {
	b := &Stream{
		ReadCloser: r.Body, controller: http.NewResponseController(w), limits: l.Limits, wait: l.Limits.ResponseWait,
		inFlight: l.InFlight, measure: func(bytes int64) { l.Observe(procedure, bytes) }, resets: r.ProtoMajor > 1,
	}
	changed := *r.WithContext(context.WithValue(r.Context(), streamKey{}, b))
	changed.Body = b
	return &changed, b
}

// streamKey finds the body of a stream in its context.
type streamKey struct{}

// StreamOf returns the body of the stream with this context. Without a stream it returns a body
// without limits, whose reads end when the client ends them.
func StreamOf(ctx context.Context) *Stream {
	if b, ok := ctx.Value(streamKey{}).(*Stream); ok {
		return b
	}
	return &Stream{ended: true, inFlight: new(atomic.Int64), measure: func(int64) {}}
}

// Read counts the bytes that it reads. With an error of its own it returns no bytes: a reader that
// has all the bytes it wants ignores the error.
func (b *Stream) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reading == 0 && n > 0 {
		b.deadline(time.Now().Add(b.limits.BodyWait))
	}
	b.reading += int64(n)
	all := b.inFlight.Add(int64(n))
	switch {
	case b.reading > int64(b.limits.StreamMessageBytesMax)+envelopeBytes:
		f := fault.TooLarge("request", int(b.reading), b.limits.StreamMessageBytesMax)
		f.Message = "request: a message of a stream has more than " + strconv.Itoa(b.limits.StreamMessageBytesMax) +
			" bytes, which is the limit"
		return 0, f.Wire()
	case all > BytesInFlightMax:
		return 0, fault.New(belfryv1.Reason_REASON_OVERLOADED).Wire()
	case errors.Is(err, os.ErrDeadlineExceeded) && !b.cutOff && b.reading > 0:
		return 0, fault.Invalid("request", "a message of a stream did not arrive within %s, which is the limit",
			wire.FormatDuration(b.limits.BodyWait)).Wire()
	default:
		return n, err
	}
}

// deadline bounds the current read. On a connection without deadlines, as in a test, the read waits
// for the client. b.mu is held.
func (b *Stream) deadline(t time.Time) {
	if !b.cutOff && !b.ended {
		_ = b.controller.SetReadDeadline(t)
	}
}

// Arrived records that a message was read to its end.
func (b *Stream) Arrived() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight.Add(-b.reading)
	b.measure(b.reading)
	b.reading = 0
	b.deadline(time.Time{})
}

// Answering sets the time that the client has to read an answer that starts. For an error that was
// held back, that may be after the call.
func (b *Stream) Answering() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.allow()
}

// Sending renews the time that the client has to read, before a message is sent: a deadline for the
// whole of a long answer would come too early.
func (b *Stream) Sending() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended && !b.unread {
		b.allow()
	}
}

// SetReadWait sets how long the client has to read each message from now on.
func (b *Stream) SetReadWait(wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wait = wait
}

// allow gives the client time to read. b.mu is held.
func (b *Stream) allow() {
	if !b.ending {
		b.unread = true
		_ = b.controller.SetWriteDeadline(time.Now().Add(b.wait))
	}
}

// Sent records that the windows of the client took all bytes. The next message may come much later.
func (b *Stream) Sent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || b.ending {
		return
	}
	if b.unread = false; b.resets {
		_ = b.controller.SetWriteDeadline(time.Time{})
	}
}

// EndWait is how long a client has to read the end of an answer that is cut short.
const EndWait = time.Second

// LimitEndOfResponse gives the client no more than EndWait to read the rest of the answer.
func (b *Stream) LimitEndOfResponse() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return // an error that was held back has its own time
	}
	b.ending = true
	_ = b.controller.SetWriteDeadline(time.Now().Add(EndWait))
}

// ActionBytes is the memory that an action of a stream needs besides its text.
const ActionBytes = 128

// Hold counts the bytes of a message until done is called. ok is false if the server holds too many
// bytes.
func (b *Stream) Hold(message *belfryv1.WorkRequest) (done func(), ok bool) {
	actions := len(message.GetAcks()) + len(message.GetNacks()) + len(message.GetReleases()) + len(message.GetExtends())
	size := int64(proto.Size(message)) + int64(actions)*ActionBytes
	return func() { b.inFlight.Add(-size) }, b.inFlight.Add(size) <= BytesInFlightMax
}

// Cut makes the current read fail, because the call has ended for another reason.
func (b *Stream) Cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deadline(time.Unix(1, 0))
	b.cutOff = true
}

// Release records that the call is about to end. It uncounts the bytes of a message that was not
// read to its end.
func (b *Stream) Release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.inFlight.Add(-b.reading)
	b.reading = 0
}

// StreamFault returns the fault of a stream that could not be read.
func StreamFault(err error) error {
	if f, ours := fault.FromConnect(err); ours {
		return f
	}
	var wire *connect.Error
	if errors.As(err, &wire) {
		return fault.Explain(wire.Code(), wire.Message())
	}
	return fault.Of(err)
}
