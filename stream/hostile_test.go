package stream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A countingHost counts the memory of requests. A call waits until its context ends, if its request
// begins with w. There is memory for 400 KiB.
type countingHost struct {
	held, done atomic.Int64
	refused    Reason // why the last call was refused
}

func (h *countingHost) Knows(m Method) bool           { return m == 1 }
func (h *countingHost) Allowed(context.Context) error { return nil }
func (h *countingHost) Release(bytes int64)           { h.held.Add(-bytes) }
func (h *countingHost) Buffer() *[]byte               { return new([]byte) }
func (h *countingHost) Recycle(*[]byte)               {}

func (h *countingHost) Hold(bytes int64) bool {
	if h.held.Add(bytes) > 400<<10 {
		h.held.Add(-bytes)
		return false
	}
	return true
}

func (h *countingHost) Do(ctx context.Context, t *Task, dst []byte) ([]byte, error) {
	defer h.done.Add(1)
	if bytes.HasPrefix(t.Request, []byte("w")) {
		<-ctx.Done()
		return dst, ctx.Err()
	}
	return append(dst, "answer"...), nil
}

func (h *countingHost) Failure(err error) ([]byte, error) {
	if refused, ok := errors.AsType[*Refusal](err); ok {
		h.refused = refused.Reason // the reader alone refuses
	}
	return []byte(err.Error()), nil
}

// callOf returns a call as a caller sends it.
func callOf(id uint32, payload string) []byte {
	h := Header{Kind: Call, Method: 1, ID: id, Size: uint32(len(payload))}
	return append(h.append(nil), payload...)
}

// A hostileCaller sends frames one after the other, and leaves.
type hostileCaller struct {
	sent    [][]byte
	done    int64  // calls that are carried out
	refused Reason // why one was refused
	cut     bool   // the server ends the stream
}

func hostileCallers() map[string]hostileCaller {
	header := func(h Header) []byte { return h.append(nil) }
	large, three := string(make([]byte, 700<<10)), [][]byte{callOf(1, "w"), callOf(2, "w"), callOf(3, "w")}
	announced := Header{Kind: Call, Method: 1, ID: 2, Size: 900}
	return map[string]hostileCaller{
		"answered":            {[][]byte{callOf(1, "a"), callOf(1, "a")}, 2, 0, false},
		"it leaves":           {[][]byte{callOf(1, "w"), callOf(2, "w")}, 2, 0, false},
		"cut in a header":     {[][]byte{callOf(1, "w"), callOf(2, "w")[:9]}, 1, 0, false},
		"cut in a request":    {[][]byte{callOf(1, "w"), callOf(2, "w and more")[:25]}, 1, 0, false},
		"an announced size":   {[][]byte{callOf(1, "w"), header(announced)}, 1, 0, false},
		"a number twice":      {[][]byte{callOf(1, "w"), callOf(1, "a")}, 1, NumberInUse, false},
		"too many calls":      {append(three, callOf(4, "a")), 3, TooManyCalls, false},
		"a large request":     {[][]byte{callOf(1, large+"x"), callOf(2, "a")}, 1, TooLarge, false},
		"no memory":           {[][]byte{callOf(1, large), callOf(2, "a")}, 1, NoRequestMemory, false},
		"no call to cancel":   {[][]byte{header(Header{Kind: Cancel, ID: 7}), callOf(1, "a")}, 1, 0, false},
		"an unknown method":   {[][]byte{callOf(1, "w"), header(Header{Kind: Call, Method: 9, ID: 2})}, 1, 0, true},
		"an unknown kind":     {[][]byte{callOf(1, "w"), header(Header{Kind: 99})}, 1, 0, true},
		"a frame of a server": {[][]byte{callOf(1, "w"), header(Header{Kind: Answer, ID: 1})}, 1, 0, true},
		"a Stop without Stop": {[][]byte{callOf(1, "w"), header(Header{Kind: Stop, ID: 1})}, 1, 0, true},
		"a payload of a ping": {[][]byte{callOf(1, "w"), header(Header{Kind: Ping, Size: 5})}, 1, 0, true},
	}
}

// TestNothingStaysOfAStream: whatever a caller sends, and wherever it breaks off, the stream ends
// with all its calls. No number, no memory and no goroutine is kept.
func TestNothingStaysOfAStream(t *testing.T) {
	for name, test := range hostileCallers() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := &ServerConfig{
					Protocol: "test", Now: time.Now, Silence: time.Hour, RequestWait: time.Minute, Write: Limit{Wait: time.Minute},
					CallsMax: 3, RequestBytesMax: 700 << 10, UnwrittenBytesMax: 1000,
				}
				ours, theirs := net.Pipe()
				server, host := NewServer(config), &countingHost{}
				x := server.add(host)
				x.in = bufio.NewReader(theirs)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer server.remove(x)
					x.run(t.Context(), theirs, http.Header{})
				}()
				go func() { _, _ = io.Copy(io.Discard, ours) }()
				for _, frame := range test.sent {
					_, _ = ours.Write(frame)
					synctest.Wait()
				}
				select {
				case <-ended:
					if !test.cut {
						t.Error("the server ended the stream")
					}
				default:
					if test.cut {
						t.Error("the server did not end the stream")
					}
				}
				_ = ours.Close()
				<-ended
				if err := server.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				if x.working != 0 || len(x.calls) != 0 || host.held.Load() != 0 || server.idle.Load() != 0 {
					t.Errorf("%d calls, %d numbers, %d bytes and %d idle goroutines stay",
						x.working, len(x.calls), host.held.Load(), server.idle.Load())
				}
				if done := host.done.Load(); done != test.done || host.refused != test.refused {
					t.Errorf("%d calls were carried out, want %d; one was refused for reason %d, want %d",
						done, test.done, host.refused, test.refused)
				}
			})
		})
	}
}
