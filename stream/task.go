package stream

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

const (
	// idleMax is how many idle goroutines of all streams of a server are kept: a new goroutine would
	// first have to grow its stack to the size that a call needs.
	idleMax = 512
	// callWaitMax bounds the timeout of a caller, so that no number overflows.
	callWaitMax = time.Hour
)

// A Task is a call to carry out.
type Task struct {
	Method  Method
	Request []byte
	// Stop is closed when the call should wait no longer, because the caller said so or because this
	// side leaves. It is nil in a protocol without Stop.
	Stop <-chan struct{}

	stream *serving
	id     uint32
	cancel context.CancelFunc

	// stream.mu guards the rest.
	stop    chan struct{} // Stop
	closed  bool          // stop is closed
	stopped bool          // the caller sent Stop
}

// CutShort reports whether this side ended the wait of the call because it leaves.
func (t *Task) CutShort() bool {
	t.stream.mu.Lock()
	defer t.stream.mu.Unlock()
	return t.stream.leaving && !t.stopped
}

// stopWaiting closes Stop. stream.mu is held.
func (t *Task) stopWaiting() {
	if t.stop != nil && !t.closed {
		t.closed = true
		close(t.stop)
	}
}

// Reason is why a call is refused before it is carried out.
type Reason uint8

// These are the reasons.
const (
	TooLarge        Reason = iota + 1 // the request has more than RequestBytesMax bytes
	NumberInUse                       // a call with its number is under way
	ServerLeaves                      // the server stops
	TooManyCalls                      // CallsMax calls are under way
	TooManyAnswers                    // UnwrittenBytesMax bytes of answers are not read
	NoRequestMemory                   // Host.Hold refused
)

// A Refusal is the error of a call that is refused before it is carried out.
type Refusal struct {
	Reason Reason
	ID     uint32 // the number of the call
	Size   int    // the bytes of its request
}

// Error implements error.
func (r *Refusal) Error() string {
	return fmt.Sprintf("call %d is refused for reason %d", r.ID, r.Reason)
}

// readCall reads a call and starts it.
func (x *serving) readCall(h Header) error {
	if !x.host.Knows(h.Method) {
		return fmt.Errorf("a caller called method %d", h.Method)
	}
	ctx, t, refused := x.beginCall(h)
	if refused != 0 {
		if _, err := x.in.Discard(int(h.Size)); err != nil {
			return err
		}
		return x.refuse(h, refused)
	}
	request := x.host.Buffer()
	refused, err := x.receive(int(h.Size), request)
	if refused == 0 && err == nil {
		t.Request = *request
		x.start(func() { x.answer(ctx, t, request) })
		return nil
	}
	x.forget(h.ID)
	x.finish()
	if err != nil {
		return err
	}
	return x.refuse(h, refused)
}

// start runs a call in an idle goroutine, or in a new one.
func (x *serving) start(call func()) {
	select {
	case x.work <- call:
	default:
		x.answering.Go(func() { x.carryOut(call) })
	}
}

// carryOut runs a call, and then others of the stream, until the stream ends or too many goroutines
// are idle.
func (x *serving) carryOut(call func()) {
	idle := &x.server.idle
	for {
		call()
		if idle.Add(1) > idleMax {
			idle.Add(-1)
			return
		}
		next, ok := <-x.work
		idle.Add(-1)
		if !ok {
			return
		}
		call = next
	}
}

// receive reads a request. It asks for the memory before it allocates it.
func (x *serving) receive(size int, request *[]byte) (Reason, error) {
	for have := 0; have < size; {
		piece := Piece(have, size)
		if !x.host.Hold(int64(piece)) {
			x.host.Release(int64(have))
			_, err := x.in.Discard(size - have)
			return NoRequestMemory, err
		}
		*request = slices.Grow((*request)[:have], piece)[:have+piece]
		if _, err := io.ReadFull(x.in, (*request)[have:]); err != nil {
			x.host.Release(int64(have + piece))
			return 0, err
		}
		have += piece
	}
	return 0, nil
}

// beginCall registers a call. The context of the call ends with the stream and with no other call.
// forget must be called before the call is answered, and finish afterwards.
func (x *serving) beginCall(h Header) (context.Context, *Task, Reason) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch _, used := x.calls[h.ID]; {
	case int64(h.Size) > int64(x.config.RequestBytesMax):
		return nil, nil, TooLarge
	case used:
		return nil, nil, NumberInUse
	case x.leaving:
		return nil, nil, ServerLeaves
	case x.working >= x.config.CallsMax:
		return nil, nil, TooManyCalls
	case x.unwritten.Load() > x.config.UnwrittenBytesMax:
		return nil, nil, TooManyAnswers
	}
	t, ctx := &Task{Method: h.Method, stream: x, id: h.ID}, x.ctx
	if h.Number > 0 {
		wait := time.Duration(min(h.Number, callWaitMax.Milliseconds())) * time.Millisecond
		ctx, t.cancel = context.WithTimeout(ctx, wait)
	} else {
		ctx, t.cancel = context.WithCancel(ctx)
	}
	if x.config.Stops {
		t.stop = make(chan struct{})
		t.Stop = t.stop
	}
	x.calls[h.ID] = t
	x.working++
	return ctx, t, 0
}

// cancelCall ends a call that the caller no longer waits for.
func (x *serving) cancelCall(id uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t, ok := x.calls[id]; ok {
		t.cancel()
	}
}

// stopCall ends the wait of a call.
func (x *serving) stopCall(id uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t, ok := x.calls[id]; ok {
		t.stopped = true
		t.stopWaiting()
	}
}

// forget lets the caller use the number of a call again.
func (x *serving) forget(id uint32) {
	x.cancelCall(id)
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.calls, id)
}

// finish records that a call has been answered.
func (x *serving) finish() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.working--
	x.stopReadingIfIdle()
}

// answer carries out a call and answers it.
func (x *serving) answer(ctx context.Context, t *Task, request *[]byte) {
	defer x.finish()
	answer := x.host.Buffer()
	var err error
	*answer, err = x.host.Do(ctx, t, *answer)
	x.host.Release(int64(len(t.Request)))
	x.host.Recycle(request)
	x.forget(t.id)
	if err != nil {
		err = x.fail(t.id, err)
	} else {
		err = x.send(Header{Kind: Answer, ID: t.id}, *answer)
	}
	if err != nil {
		x.cancel()
	}
	x.host.Recycle(answer)
}

// refuse answers a call that is not carried out.
func (x *serving) refuse(h Header, r Reason) error {
	return x.fail(h.ID, &Refusal{Reason: r, ID: h.ID, Size: int(h.Size)})
}

// fail answers a call with an error.
func (x *serving) fail(id uint32, err error) error {
	payload, encodeErr := x.host.Failure(err)
	if encodeErr != nil {
		return encodeErr
	}
	return x.send(Header{Kind: Failure, ID: id}, payload)
}

// send sends an answer.
func (x *serving) send(h Header, payload []byte) error {
	h.Number = x.config.Now().UnixMilli()
	x.unwritten.Add(int64(len(payload)))
	defer x.unwritten.Add(-int64(len(payload)))
	_, err := x.out.Send(x.ctx, h, payload)
	return err
}
