package stream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A serverEnd is the other end of a caller's connection. The test plays the server.
type serverEnd struct {
	net.Conn
	in *bufio.Reader
}

// startCaller starts a caller over a pipe. The test must end it.
func startCaller(t *testing.T, callers *Callers) (*Caller, *serverEnd) {
	t.Helper()
	ours, theirs := net.Pipe()
	config := &CallerConfig{
		PingAfter: time.Hour, PingTimeout: time.Hour, Write: Limit{Wait: time.Hour}, CallsMax: 3, AnswerBytesMax: 100,
		Read: Limit{Bytes: 10, Wait: time.Minute},
	}
	c, err := callers.start(&activityConn{Conn: ours, began: time.Now()}, bufio.NewReader(ours), config)
	if err != nil {
		t.Fatal(err)
	}
	return c, &serverEnd{theirs, bufio.NewReaderSize(theirs, headerBytes)}
}

// A callEnd is how a call ended.
type callEnd struct {
	text string // of the answer
	err  error
}

// calling makes a call, and returns where its end will be.
func calling(ctx context.Context, c *Caller, payload []byte, stop <-chan struct{}) chan callEnd {
	ended := make(chan callEnd, 1)
	go func() {
		reply, err := c.Call(ctx, Request{Method: 1, Payload: payload, Stop: stop})
		ended <- callEnd{string(reply.Payload), err}
	}()
	synctest.Wait()
	return ended
}

// isUnsent reports whether an error says that the call was not carried out.
func isUnsent(err error) bool {
	_, unsent := errors.AsType[*UnsentError](err)
	return unsent
}

// send sends a frame.
func (s *serverEnd) send(t *testing.T, h Header, payload string) {
	t.Helper()
	h.Size = uint32(len(payload))
	if _, err := s.Write(append(h.append(nil), payload...)); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// next reads a frame, and drops its payload.
func (s *serverEnd) next(t *testing.T) Header {
	t.Helper()
	h, err := ReadHeader(s.in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, s.in, int64(h.Size)); err != nil {
		t.Fatal(err)
	}
	return h
}

// TestACancelIsNeverDropped: the server learns that a caller left, even if too much was pending at
// that moment for another call. Without that, a poll waits on, and is handed jobs that are lost
// until their leases end.
func TestACancelIsNeverDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var callers Callers
		c, server := startCaller(t, &callers)
		errGone := errors.New("gone")
		ctx, leave := context.WithCancelCause(t.Context())
		poll := calling(ctx, c, nil, nil)
		if h := server.next(t); h.Kind != Call || h.ID != 1 {
			t.Fatalf("the first frame is %+v", h)
		}
		// One is being written, one is pending: from here on there is no room.
		others := []chan callEnd{
			calling(t.Context(), c, nil, nil), calling(t.Context(), c, make([]byte, pendingMax), nil),
		}
		leave(errGone)
		if end := <-poll; !errors.Is(end.err, errGone) || isUnsent(end.err) {
			t.Errorf("the poll ended with %v", end.err)
		}
		for _, want := range []Header{{Kind: Call, ID: 2}, {Kind: Call, ID: 3}, {Kind: Cancel, ID: 1}} {
			got := make(chan Header, 1)
			go func() { got <- server.next(t) }()
			synctest.Wait()
			select {
			case h := <-got:
				if h.Kind != want.Kind || h.ID != want.ID {
					t.Errorf("got %+v, want %+v", h, want)
				}
			default:
				t.Errorf("no frame came, want %+v", want)
			}
		}
		_ = server.Close()
		callers.Close()
		for _, other := range others {
			if end := <-other; end.err == nil {
				t.Error("a call without an answer did not fail")
			}
		}
	})
}

// TestWhatWasNotSent: a call is known not to be carried out if its frame was only pending, or if the
// server says Bye. Where the frame was written, the outcome is unknown.
func TestWhatWasNotSent(t *testing.T) {
	errGone := errors.New("gone")
	type end func(t *testing.T, server *serverEnd, leave context.CancelCauseFunc)
	says := func(kind Kind) end {
		return func(t *testing.T, s *serverEnd, _ context.CancelCauseFunc) { s.send(t, Header{Kind: kind}, "") }
	}
	for name, test := range map[string]struct {
		end     end
		written bool // whether a call that was written is known not to be carried out
	}{
		"the callers leave":    {func(_ *testing.T, _ *serverEnd, leave context.CancelCauseFunc) { leave(errGone) }, false},
		"the connection ends":  {func(_ *testing.T, s *serverEnd, _ context.CancelCauseFunc) { _ = s.Close() }, false},
		"the server says Bye":  {says(Bye), true},
		"the server is broken": {says(99), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var callers Callers
				c, server := startCaller(t, &callers)
				ctx, leave := context.WithCancelCause(t.Context())
				defer leave(nil)
				written := calling(ctx, c, nil, nil)
				server.next(t)
				half, pending := calling(ctx, c, nil, nil), calling(ctx, c, nil, nil) // a write has begun
				test.end(t, server, leave)
				for which, end := range map[string]callEnd{"written": <-written, "half written": <-half} {
					if end.err == nil || isUnsent(end.err) != test.written {
						t.Errorf("a call that was %s: %v", which, end.err)
					}
				}
				if end := <-pending; !isUnsent(end.err) {
					t.Errorf("a call that was pending: %v", end.err)
				}
				_ = server.Close()
				callers.Close()
			})
		})
	}
}

// TestStopIsSent once, and the call is answered afterwards.
func TestStopIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var callers Callers
		c, server := startCaller(t, &callers)
		stop := make(chan struct{})
		call := calling(t.Context(), c, nil, stop)
		server.next(t)
		close(stop)
		if h := server.next(t); h.Kind != Stop || h.ID != 1 {
			t.Errorf("%+v", h)
		}
		server.send(t, Header{Kind: Answer, ID: 1}, "stopped")
		if end := <-call; end.text != "stopped" || end.err != nil {
			t.Errorf("%+v", end)
		}
		_ = server.Close()
		callers.Close()
	})
}

// TestRetire: a stream that retires takes no more calls and ends with its last one. Then there are
// no more streams.
func TestRetire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var callers Callers
		c, server := startCaller(t, &callers)
		call := calling(t.Context(), c, nil, nil)
		server.next(t)
		callers.Retire()
		if end := <-calling(t.Context(), c, nil, nil); !isUnsent(end.err) || c.Takes() {
			t.Errorf("a later call: %v", end.err)
		}
		if synctest.Wait(); callers.Len() != 1 {
			t.Error("the stream ended before its last call")
		}
		server.send(t, Header{Kind: Answer, ID: 1}, "the last")
		if end := <-call; end.text != "the last" || end.err != nil {
			t.Errorf("the last call: %+v", end)
		}
		began := time.Now()
		callers.Wait(t.Context())
		if _, err := ReadHeader(server.in); !errors.Is(err, io.EOF) || callers.Len() != 0 || !time.Now().Equal(began) {
			t.Errorf("after %v the connection has %v", time.Since(began), err)
		}
		ours, theirs := net.Pipe()
		_, err := callers.Open(t.Context(), ours, c.config, func(net.Conn, *bufio.Reader) error { return nil })
		if _, closed := theirs.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) || !errors.Is(closed, io.EOF) {
			t.Errorf("a stream afterwards: %v, its connection: %v", err, closed)
		}
	})
}

// TestRetiredStreamsAreCut when the time for their last calls is over.
func TestRetiredStreamsAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var callers Callers
		c, server := startCaller(t, &callers)
		call := calling(t.Context(), c, nil, nil)
		server.next(t)
		callers.Retire()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if callers.Wait(ctx); time.Since(began) != time.Second {
			t.Errorf("it took %v", time.Since(began))
		}
		if end := <-call; !errors.Is(end.err, net.ErrClosed) || isUnsent(end.err) {
			t.Errorf("%v", end.err)
		}
	})
}

// TestLimitsOfACaller: calls beyond the limit are refused. An answer that is too large, or too slow,
// ends the stream.
func TestLimitsOfACaller(t *testing.T) {
	for name, answer := range map[string]struct {
		size, sent int
		after      time.Duration
	}{
		"too large": {101, 0, 0},
		"too slow":  {100, 30, 10 * time.Minute}, // a minute for each ten bytes
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var callers Callers
				c, server := startCaller(t, &callers)
				var calls []chan callEnd
				for range 3 {
					calls = append(calls, calling(t.Context(), c, nil, nil))
					server.next(t)
				}
				if end := <-calling(t.Context(), c, nil, nil); !errors.Is(end.err, ErrFull) || !isUnsent(end.err) {
					t.Errorf("a call above the limit: %v", end.err)
				}
				began := time.Now()
				h := Header{Kind: Answer, ID: 1, Size: uint32(answer.size)}
				if _, err := server.Write(append(h.append(nil), make([]byte, answer.sent)...)); err != nil {
					t.Fatal(err)
				}
				for _, call := range calls {
					if end := <-call; end.err == nil || isUnsent(end.err) || time.Since(began) != answer.after {
						t.Errorf("after %v: %v", time.Since(began), end.err)
					}
				}
				callers.Close()
			})
		})
	}
}
