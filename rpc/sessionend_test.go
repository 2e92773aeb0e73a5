package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/inbound"
	"github.com/belfrydb/belfry/stream"
)

// TestBrokenRules end the session, and nothing of the frame is carried out.
func TestBrokenRules(t *testing.T) {
	for name, data := range map[string][]byte{
		"unknown method":     rawFrame(stream.Header{Kind: stream.Call, Method: 4, ID: 1}, nil),
		"no method":          rawFrame(stream.Header{Kind: stream.Call, ID: 1}, nil),
		"unknown kind":       rawFrame(stream.Header{Kind: stream.Pong + 1}, nil),
		"no kind":            rawFrame(stream.Header{}, nil),
		"kind of the server": rawFrame(stream.Header{Kind: stream.Bye}, nil),
		"ping with payload":  rawFrame(stream.Header{Kind: stream.Ping, Size: 1}, []byte("x")),
		"no header":          bytes.Repeat([]byte{1}, 20),
		"cut":                rawFrame(stream.Header{Kind: stream.Call, Method: stream.PutBatch, Size: 100}, []byte("abc")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newTalk(t)
				k.call(9, stream.Reserve, pollOf("q", time.Minute)) // ends with the session
				synctest.Wait()
				before, began := k.server.handler.bodyBytesInFlight.Load(), time.Now()
				k.write(data)
				if name == "cut" {
					synctest.Wait()
					if held := k.server.handler.bodyBytesInFlight.Load() - before; held != 100 {
						t.Errorf("%d bytes are counted", held)
					}
					k.conn.Close()
					<-k.ended
				} else {
					for h, err := stream.ReadHeader(k.in); !errors.Is(err, io.EOF); h, err = stream.ReadHeader(k.in) {
						if h.Kind == stream.Bye || err != nil {
							t.Fatalf("%+v, %v", h, err) // what else was called may have been carried out
						}
						if _, err := k.in.Discard(int(h.Size)); err != nil {
							t.Fatal(err)
						}
					}
					<-k.ended
				}
				if n := k.node.ParkedPolls(); n != 0 || time.Since(began) != 0 {
					t.Errorf("%d polls wait after %v", n, time.Since(began))
				}
				if held := k.server.handler.bodyBytesInFlight.Load(); held != 0 {
					t.Errorf("%d bytes are still counted", held)
				}
			})
		})
	}
}

// TestPollsEnd when the client cancels them, when its time is over, and when it is gone; none of
// that counts as refused.
func TestPollsEnd(t *testing.T) {
	for name, end := range map[string]func(k *talk){
		"cancelled": func(k *talk) {
			k.write(rawFrame(stream.Header{Kind: stream.Cancel, ID: 2}, nil)) // which is no call
			k.write(rawFrame(stream.Header{Kind: stream.Cancel, ID: 1}, nil))
			if f := k.reason(1); f.Reason != belfryv1.Reason_REASON_OVERLOADED {
				k.t.Errorf("%+v", f)
			}
		},
		"gone":   func(k *talk) { k.conn.Close() },
		"silent": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newTalk(t)
				k.call(1, stream.Reserve, pollOf("q", time.Minute))
				synctest.Wait()
				if k.node.ParkedPolls() != 1 {
					t.Fatal("the poll does not wait")
				}
				if end != nil {
					end(k)
				} else {
					go func() { _, _ = io.Copy(io.Discard, k.in) }()
					time.Sleep(sessionSilence)
				}
				synctest.Wait()
				if n := k.node.ParkedPolls(); n != 0 {
					t.Errorf("%d polls wait", n)
				}
				if n := k.measured("Reserve", "canceled"); n != 1 {
					t.Errorf("%d calls were measured as cancelled", n)
				}
			})
		})
	}
}

// TestCallsEndWithTheClientsTime: a poll answers before the time that the client waits, others end
// with it.
func TestCallsEndWithTheClientsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		payload := bytesOf(t, pollOf("q", time.Minute))
		k.write(rawFrame(stream.Header{
			Kind: stream.Call, Method: stream.Reserve, ID: 1, Size: uint32(len(payload)), Number: 1000,
		}, payload))
		began := time.Now()
		var granted belfryv1.ReserveResponse
		k.answer(1, &granted)
		if took := time.Since(began); len(granted.GetJobs()) != 0 || took != 900*time.Millisecond {
			t.Errorf("%v after %v", &granted, took)
		}
	})
}

// TestSessionPings: pings keep a session open whose polls wait.
func TestSessionPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		k.call(1, stream.Reserve, pollOf("q", time.Minute))
		for range 2 {
			time.Sleep(sessionSilence - time.Second)
			k.write(rawFrame(stream.Header{Kind: stream.Ping}, nil))
			h, _ := k.next()
			if h.Kind == stream.Answer {
				h, _ = k.next()
			}
			if h.Kind != stream.Pong {
				t.Fatalf("%+v", h)
			}
		}
		k.write(rawFrame(stream.Header{Kind: stream.Pong}, nil))
		began := time.Now()
		k.over()
		if took := time.Since(began); took != sessionSilence {
			t.Errorf("it ended after %v", took)
		}
	})
}

// TestSlowRequests: the bytes of a request have as long to arrive as those of a body.
func TestSlowRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		began := time.Now()
		k.write(rawFrame(stream.Header{Kind: stream.Call, Method: stream.PutBatch, Size: 1000}, nil))
		go func() {
			for range 100 {
				time.Sleep(time.Second)
				k.write([]byte{0})
			}
		}()
		k.over()
		if took := time.Since(began); took != k.server.handler.limits.BodyWait {
			t.Errorf("it ended after %v", took)
		}
		time.Sleep(100 * time.Second)
	})
}

// TestClaimsAreNotBelieved: a header costs its sender nothing, and takes no part of what all bodies
// may hold.
func TestClaimsAreNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		limit := k.server.handler.limits.MessageBytesMax
		k.write(rawFrame(stream.Header{Kind: stream.Call, Method: stream.PutBatch, ID: 1, Size: uint32(limit)}, nil))
		inFlight := &k.server.handler.bodyBytesInFlight
		for sent := 0; sent < limit; sent += limit / 16 {
			synctest.Wait()
			if held := inFlight.Load(); held > int64(max(stream.PieceBytes, 2*sent)) {
				t.Errorf("%d bytes are held of %d that came", held, sent)
			}
			k.write(make([]byte, limit/16))
		}
		k.failure(1) // zeros are no message
		k.call(2, stream.PutBatch, putIn("q"))
		k.answer(2, &belfryv1.PutBatchResponse{})
		synctest.Wait()
		if held := inFlight.Load(); held != 0 {
			t.Errorf("%d bytes are still counted", held)
		}
	})
}

// TestAllBodiesTogetherAreBounded: what comes beyond the bound is refused, also in the middle of a
// request.
func TestAllBodiesTogetherAreBounded(t *testing.T) {
	for _, free := range []int64{0, stream.PieceBytes} {
		synctest.Test(t, func(t *testing.T) {
			k := newTalk(t)
			inFlight := &k.server.handler.bodyBytesInFlight
			inFlight.Store(inbound.BytesInFlightMax - free)
			payload := make([]byte, 4*stream.PieceBytes)
			k.write(rawFrame(stream.Header{
				Kind: stream.Call, Method: stream.PutBatch, ID: 1, Size: uint32(len(payload)),
			}, payload))
			if f := k.reason(1); f.Reason != belfryv1.Reason_REASON_OVERLOADED ||
				f.Outcome() != belfryv1.Outcome_OUTCOME_NOT_APPLIED {
				t.Errorf("%+v", f)
			}
			synctest.Wait()
			if held := inFlight.Load(); held != inbound.BytesInFlightMax-free {
				t.Errorf("%d bytes are counted", held-inbound.BytesInFlightMax)
			}
			inFlight.Store(0)
			k.call(1, stream.PutBatch, putIn("q")) // the number is free, and so are its bytes
			k.answer(1, &belfryv1.PutBatchResponse{})
		})
	}
}

// TestCallsOfASessionAreBounded: one more than the limit is refused until another has ended.
func TestCallsOfASessionAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		var all bytes.Buffer
		payload := bytesOf(t, pollOf("q", time.Minute))
		for id := range uint32(sessionCallsMax + 1) {
			all.Write(rawFrame(stream.Header{
				Kind: stream.Call, Method: stream.Reserve, ID: id, Size: uint32(len(payload)),
			}, payload))
		}
		k.write(all.Bytes())
		if f := k.reason(sessionCallsMax); f.Reason != belfryv1.Reason_REASON_OVERLOADED ||
			!strings.Contains(f.Message, strconv.Itoa(sessionCallsMax)) {
			t.Errorf("%+v", f)
		}
		k.write(rawFrame(stream.Header{Kind: stream.Cancel, ID: 5}, nil))
		k.failure(5)
		synctest.Wait()
		k.call(5, stream.PutBatch, putIn("other"))
		k.answer(5, &belfryv1.PutBatchResponse{})
	})
}

// TestAReaderThatDoesNotRead is given up when an answer was not taken in time, and its polls end.
func TestAReaderThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		k.call(1, stream.Reserve, pollOf("q", time.Hour))
		began := time.Now()
		go func() { // pings, which are not read either
			for range 10 {
				k.write(rawFrame(stream.Header{Kind: stream.Ping}, nil))
				time.Sleep(20 * time.Second)
			}
		}()
		<-k.ended
		if took := time.Since(began); took != k.server.handler.limits.ResponseWait || k.node.ParkedPolls() != 0 {
			t.Errorf("it ended after %v, %d polls wait", took, k.node.ParkedPolls())
		}
		time.Sleep(4 * time.Minute)
	})
}

// TestLeaving: the server says that it leaves, answers what is under way, refuses what comes, says
// Bye, and waits for the client to close.
func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		hold := make(chan struct{})
		k.node.Fail = func(uint32) error { <-hold; return nil }
		k.call(1, stream.PutBatch, putIn("q"))
		synctest.Wait()
		stopped := make(chan error, 1)
		go func() { stopped <- k.server.Shutdown(t.Context()) }()
		if h, _ := k.next(); h != (stream.Header{Kind: stream.Leave}) {
			t.Fatalf("%+v", h)
		}
		synctest.Wait()
		k.call(2, stream.PutBatch, putIn("q"))
		if f := k.reason(2); f.Reason != belfryv1.Reason_REASON_SHUTTING_DOWN ||
			f.Outcome() != belfryv1.Outcome_OUTCOME_NOT_APPLIED {
			t.Errorf("%+v", f)
		}
		time.Sleep(10 * time.Second)
		if len(stopped) > 0 {
			t.Error("the server stopped with a call under way")
		}
		close(hold)
		k.answer(1, &belfryv1.PutBatchResponse{})
		if h, _ := k.next(); h != (stream.Header{Kind: stream.Bye}) {
			t.Fatalf("%+v", h)
		}
		k.call(3, stream.PutBatch, putIn("q")) // it is not read, and the connection is not broken for it
		synctest.Wait()
		k.conn.Close()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		<-k.ended
	})
}

// TestAnIdleSessionLeavesAtOnce, and a client that does not close is not waited for.
func TestAnIdleSessionLeavesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		k.call(1, stream.PutBatch, putIn("q"))
		k.answer(1, &belfryv1.PutBatchResponse{})
		began := time.Now()
		go k.server.Drain()
		for _, want := range []stream.Kind{stream.Leave, stream.Bye} {
			if h, _ := k.next(); h.Kind != want {
				t.Fatalf("%+v", h)
			}
		}
		k.over()
		if took := time.Since(began); took != time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}

// TestShutdownOfSessionsIsBounded: what is under way when the time is over is cut, and the client
// is not told that it was answered.
func TestShutdownOfSessionsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		hold := make(chan struct{})
		k.node.Fail = func(uint32) error { <-hold; return nil }
		k.call(1, stream.PutBatch, putIn("q"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		stopped := make(chan error, 1)
		go func() { stopped <- k.server.Shutdown(ctx) }()
		if h, _ := k.next(); h.Kind != stream.Leave {
			t.Fatalf("%+v", h)
		}
		var signs sync.WaitGroup
		signs.Go(func() {
			for ctx.Err() == nil { // the client sends pings
				time.Sleep(10 * time.Second)
				k.write(rawFrame(stream.Header{Kind: stream.Ping}, nil))
			}
		})
		for {
			h, err := stream.ReadHeader(k.in)
			if err != nil {
				break
			}
			if h.Kind != stream.Pong {
				t.Errorf("%+v", h)
			}
		}
		if err := <-stopped; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		close(hold)
		<-k.ended
		signs.Wait()
	})
}

// FuzzSession feeds a session any bytes: it ends when they do, and holds nothing then.
func FuzzSession(f *testing.F) {
	batch := bytesOf(f, putIn("q"))
	seed := rawFrame(stream.Header{
		Kind: stream.Call, Method: stream.PutBatch, ID: 1, Size: uint32(len(batch)), Number: 1000,
	}, batch)
	seed = append(seed, rawFrame(stream.Header{Kind: stream.Cancel, ID: 1}, nil)...)
	reserve := bytesOf(f, pollOf("q", time.Minute))
	seed = append(seed, rawFrame(stream.Header{
		Kind: stream.Call, Method: stream.Reserve, ID: 1, Size: uint32(len(reserve)),
	}, reserve)...)
	f.Add(seed)
	f.Add(rawFrame(stream.Header{Kind: stream.Call, Method: stream.AckBatch, Size: 1 << 31}, []byte("abc")))
	k := newTalk(f)
	k.conn.Close()
	f.Fuzz(func(t *testing.T, data []byte) {
		ours, theirs := net.Pipe()
		w := &takenOver{memoryResponse: memoryResponse{header: http.Header{}}, conn: theirs}
		r := (&http.Request{}).WithContext(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = k.server.handler.sessions.Serve(w, r, &sessionHost{handler: k.server.handler})
		}()
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(io.Discard, ours)
		}()
		_, _ = ours.Write(data) // it may end before all is read
		ours.Close()
		<-ended
		<-read
		if held := k.server.handler.bodyBytesInFlight.Load(); held != 0 {
			t.Errorf("%d bytes are still counted", held)
		}
	})
}
