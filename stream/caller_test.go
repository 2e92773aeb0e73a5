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
		PingAfter: time.Hour, PingTimeout: time.Hour, Write: Limit{Wait: time.Hour}, CallsMax: 10, AnswerBytesMax: 100,
	}
	c, err := callers.start(&activityConn{Conn: ours, began: time.Now()}, bufio.NewReader(ours), config)
	if err != nil {
		t.Fatal(err)
	}
	return c, &serverEnd{theirs, bufio.NewReaderSize(theirs, headerBytes)}
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
		call := func(ctx context.Context, payload []byte) chan error {
			ended := make(chan error, 1)
			go func() {
				_, err := c.Call(ctx, Request{Method: 1, Payload: payload})
				ended <- err
			}()
			synctest.Wait()
			return ended
		}
		errLeft := errors.New("left")
		ctx, leave := context.WithCancelCause(t.Context())
		poll := call(ctx, nil)
		if h := server.next(t); h.Kind != Call || h.ID != 1 {
			t.Fatalf("the first frame is %+v", h)
		}
		// One is being written, one is pending: from here on there is no room.
		others := []chan error{call(t.Context(), nil), call(t.Context(), make([]byte, pendingMax))}
		leave(errLeft)
		if err := <-poll; !errors.Is(err, errLeft) {
			t.Errorf("the poll ended with %v", err)
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
			if err := <-other; err == nil {
				t.Error("a call without an answer did not fail")
			}
		}
	})
}
