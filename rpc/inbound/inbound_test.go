package inbound

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
)

// A server end of a connection: the response writer of a request whose body is read from the
// connection. The test plays the client.
type serverEnd struct {
	http.ResponseWriter
	net.Conn
	client net.Conn
	// read and write are the deadlines that were set last; readSet counts those of reads.
	read, write time.Time
	readSet     int

	inFlight atomic.Int64
	observed []int64
}

// newServerEnd returns a connection and a limiter of its request. Messages have at most 100 bytes.
func newServerEnd(t *testing.T) (*serverEnd, *Limiter) {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	s := &serverEnd{Conn: ours, client: theirs}
	limits := check.DefaultLimits()
	limits.MessageBytesMax, limits.StreamMessageBytesMax = 100, 100
	return s, &Limiter{Limits: &limits, InFlight: &s.inFlight, Observe: func(procedure string, bytes int64) {
		if procedure != "/call" {
			t.Errorf("the size of %s is observed", procedure)
		}
		s.observed = append(s.observed, bytes)
	}}
}

// Write implements http.ResponseWriter.
func (s *serverEnd) Write(p []byte) (int, error) { return s.Conn.Write(p) }

// SetReadDeadline implements what http.ResponseController looks for.
func (s *serverEnd) SetReadDeadline(at time.Time) error {
	s.read = at
	s.readSet++
	return s.Conn.SetReadDeadline(at)
}

// SetWriteDeadline implements what http.ResponseController looks for.
func (s *serverEnd) SetWriteDeadline(at time.Time) error {
	s.write = at
	return s.Conn.SetWriteDeadline(at)
}

// request returns the request, whose body ends after length bytes.
func (s *serverEnd) request(t *testing.T, length int64) *http.Request {
	body := io.NopCloser(io.LimitReader(s.Conn, length))
	r := &http.Request{ProtoMajor: 1, Body: body}
	return r.WithContext(t.Context())
}

// sends has the client send text without waiting for it to be read.
func (s *serverEnd) sends(text string) {
	go func() { _, _ = io.WriteString(s.client, text) }()
	synctest.Wait()
}

// expect checks the reason of an error, and that its text has some words.
func expect(t *testing.T, err error, reason belfryv1.Reason, words string) {
	t.Helper()
	if f, ok := fault.FromConnect(err); !ok || f.Reason != reason || !strings.Contains(f.Message, words) {
		t.Errorf("got %v, want %v with %q", err, reason, words)
	}
}

// TestUnaryCounts: bytes are counted when they are read, and uncounted once, when the call is done.
func TestUnaryCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newServerEnd(t)
		r := s.request(t, 7)
		whole := r.Body
		limited, release := l.Unary(s, r, "/call")
		if r.Body != whole || limited.Body == whole {
			t.Error("the request of net/http has another body, or the limited one has not")
		}
		s.sends("seven b")
		if got, err := io.ReadAll(limited.Body); string(got) != "seven b" || err != nil || s.inFlight.Load() != 7 {
			t.Errorf("%q, %v, %d bytes are counted", got, err, s.inFlight.Load())
		}
		if release(); s.inFlight.Load() != 0 || len(s.observed) != 1 || s.observed[0] != 7 {
			t.Errorf("%d bytes are counted, %v were observed", s.inFlight.Load(), s.observed)
		}
		if time.Sleep(2 * l.Limits.BodyWait); s.readSet != 0 {
			t.Error("a read deadline was set after the last byte")
		}
	})
}

// TestUnaryWithoutBody: a request without a body stays as it is.
func TestUnaryWithoutBody(t *testing.T) {
	s, l := newServerEnd(t)
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		r := &http.Request{Body: body}
		limited, release := l.Unary(s, r, "/call")
		if release(); limited != r || len(s.observed) > 0 {
			t.Errorf("%v: it changed, or %v were observed", body, s.observed)
		}
	}
}

// TestUnaryHasTime: a body that does not arrive in time fails the read that waits, and a call that
// is no procedure is bounded without being observed.
func TestUnaryHasTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newServerEnd(t)
		limited, release := l.Unary(s, s.request(t, 7), "")
		began := time.Now()
		s.sends("six by")
		_, err := io.ReadAll(limited.Body)
		expect(t, err, belfryv1.Reason_REASON_INVALID, "did not arrive within 30s")
		if took := time.Since(began); took != l.Limits.BodyWait {
			t.Errorf("it took %v", took)
		}
		if release(); s.inFlight.Load() != 0 || len(s.observed) > 0 {
			t.Errorf("%d bytes are counted, %v were observed", s.inFlight.Load(), s.observed)
		}
	})
}

// TestUnaryIsBounded: a body that is too large, that ends too early, or for which the server has no
// memory is refused.
func TestUnaryIsBounded(t *testing.T) {
	for name, test := range map[string]struct {
		length int64 // of what arrives; then the client leaves
		others int64 // bytes of other bodies
		reason belfryv1.Reason
		words  string
	}{
		"as large as may be": {length: 100 + envelopeBytes},
		"too large":          {101 + envelopeBytes, 0, belfryv1.Reason_REASON_TOO_LARGE, "more than 100 bytes"},
		"the last memory":    {length: 10, others: BytesInFlightMax - 10},
		"no memory":          {10, BytesInFlightMax - 9, belfryv1.Reason_REASON_OVERLOADED, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newServerEnd(t)
				s.inFlight.Store(test.others)
				limited, release := l.Unary(s, s.request(t, test.length), "/call")
				s.sends(strings.Repeat("x", int(test.length)))
				_, err := io.ReadAll(limited.Body)
				if test.reason == 0 && err != nil {
					t.Error(err)
				} else if test.reason != 0 {
					expect(t, err, test.reason, test.words)
				}
				if release(); s.inFlight.Load() != test.others {
					t.Errorf("%d bytes are counted, want %d", s.inFlight.Load(), test.others)
				}
				if time.Sleep(2 * l.Limits.BodyWait); s.readSet != 0 {
					t.Error("a read deadline was set after the last read")
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s, l := newServerEnd(t)
		r := s.request(t, 7)
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader("six by"), errReader{io.ErrUnexpectedEOF}))
		limited, release := l.Unary(s, r, "/call")
		defer release()
		_, err := io.ReadAll(limited.Body)
		expect(t, err, belfryv1.Reason_REASON_INVALID, "the body ended too early")
	})
}

// An errReader fails.
type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// reads reads a message of some bytes, as Connect does.
func reads(t *testing.T, b *Stream, bytes int) {
	t.Helper()
	if _, err := io.ReadFull(b, make([]byte, bytes)); err != nil {
		t.Error(err)
	}
}

// TestStreamMessages: each message has its time from its first byte. Between messages there is no
// deadline, and the bytes of messages that are done are not counted.
func TestStreamMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newServerEnd(t)
		r, b := l.Stream(s, s.request(t, 1000), "/call")
		if StreamOf(r.Context()) != b || r.Body != io.ReadCloser(b) {
			t.Error("the body is not found")
		}
		for n := 1; n <= 3; n++ {
			time.Sleep(10 * l.Limits.BodyWait) // no message waits
			s.sends("a message")
			if reads(t, b, 4); !s.read.Equal(time.Now().Add(l.Limits.BodyWait)) {
				t.Errorf("the deadline is %v", s.read)
			}
			time.Sleep(l.Limits.BodyWait / 2)
			if reads(t, b, 5); !s.read.Equal(time.Now().Add(l.Limits.BodyWait/2)) || s.inFlight.Load() != 9 {
				t.Errorf("the deadline moved to %v, or %d bytes are counted", s.read, s.inFlight.Load())
			}
			if b.Arrived(); !s.read.IsZero() || s.inFlight.Load() != 0 || len(s.observed) != n || s.observed[n-1] != 9 {
				t.Errorf("the deadline is %v, %d bytes are counted, %v were observed", s.read, s.inFlight.Load(), s.observed)
			}
		}
		s.sends("half")
		reads(t, b, 4)
		if b.Release(); s.inFlight.Load() != 0 {
			t.Errorf("%d bytes are counted after the call", s.inFlight.Load())
		}
		if set := s.readSet; set != 7 {
			t.Errorf("%d deadlines were set", set)
		}
		if b.Arrived(); s.readSet != 7 {
			t.Error("a deadline was set after the call")
		}
	})
}

// TestStreamIsBounded: a message that is too large, too slow, or for which the server has no memory
// is refused, and returns no bytes.
func TestStreamIsBounded(t *testing.T) {
	for name, test := range map[string]struct {
		bytes  int
		others int64
		reason belfryv1.Reason
		words  string
	}{
		"too large": {101 + envelopeBytes, 0, belfryv1.Reason_REASON_TOO_LARGE, "has more than 100 bytes"},
		"too slow":  {10, 0, belfryv1.Reason_REASON_INVALID, "did not arrive within 30s"},
		"no memory": {10, BytesInFlightMax - 9, belfryv1.Reason_REASON_OVERLOADED, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newServerEnd(t)
				s.inFlight.Store(test.others)
				_, b := l.Stream(s, s.request(t, 1000), "/call")
				s.sends(strings.Repeat("x", test.bytes))
				began, room := time.Now(), make([]byte, 1000)
				n, err := b.Read(room)
				if test.words == "did not arrive within 30s" && err == nil {
					n, err = b.Read(room)
					if took := time.Since(began); took != l.Limits.BodyWait {
						t.Errorf("it took %v", took)
					}
				}
				if expect(t, err, test.reason, test.words); n != 0 {
					t.Errorf("%d bytes came with the error", n)
				}
				if b.Release(); s.inFlight.Load() != test.others {
					t.Errorf("%d bytes are counted, want %d", s.inFlight.Load(), test.others)
				}
			})
		})
	}
}

// TestCutFailsTheRead that waits, with no fault of the client, and no later message revives it.
func TestCutFailsTheRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newServerEnd(t)
		_, b := l.Stream(s, s.request(t, 1000), "/call")
		failed := make(chan error, 1)
		go func() {
			_, err := b.Read(make([]byte, 10))
			failed <- err
		}()
		synctest.Wait()
		b.Cut()
		err := <-failed
		if _, ours := fault.FromConnect(err); err == nil || ours {
			t.Errorf("the read ended with %v", err)
		}
		if b.Arrived(); !s.read.Equal(time.Unix(1, 0)) {
			t.Errorf("the deadline is %v", s.read)
		}
	})
}

// TestReadersHaveTime: the client has its time for each message of an answer. On HTTP/2 the deadline
// is removed when the client has taken the message; on HTTP/1 it ends only a write.
func TestReadersHaveTime(t *testing.T) {
	for major := 1; major <= 2; major++ {
		synctest.Test(t, func(t *testing.T) {
			s, l := newServerEnd(t)
			r := s.request(t, 0)
			r.ProtoMajor = major
			_, b := l.Stream(s, r, "/call")
			in := func(wait time.Duration) {
				t.Helper()
				if !s.write.Equal(time.Now().Add(wait)) {
					t.Errorf("HTTP/%d: the deadline is in %v, want %v", major, time.Until(s.write), wait)
				}
			}
			b.Answering()
			in(l.Limits.ResponseWait)
			time.Sleep(time.Second)
			b.Sending() // the answer's start has not been taken
			in(l.Limits.ResponseWait - time.Second)
			if b.Sent(); s.write.IsZero() != (major == 2) {
				t.Errorf("HTTP/%d: after a message the deadline is %v", major, s.write)
			}
			time.Sleep(time.Hour)
			b.SetReadWait(time.Minute / 2)
			b.Sending()
			in(time.Minute / 2)
			b.LimitEndOfResponse()
			in(EndWait)
			time.Sleep(EndWait / 2)
			b.Sent()
			b.Answering()
			in(EndWait / 2) // it gets no more
		})
	}
}

// TestHold counts the bytes of a message until it is done, with those of its actions.
func TestHold(t *testing.T) {
	s, l := newServerEnd(t)
	_, b := l.Stream(s, s.request(t, 0), "/call")
	message := &belfryv1.WorkRequest{Acks: []*belfryv1.AckRequest{{}, {}}}
	done, ok := b.Hold(message)
	if held := s.inFlight.Load(); !ok || held <= 2*ActionBytes || held > 2*ActionBytes+10 {
		t.Errorf("%v, %d bytes are counted", ok, held)
	}
	if done(); s.inFlight.Load() != 0 {
		t.Errorf("%d bytes are counted", s.inFlight.Load())
	}
	s.inFlight.Store(BytesInFlightMax)
	if done, ok = b.Hold(message); ok {
		t.Error("it holds too much")
	}
	if done(); s.inFlight.Load() != BytesInFlightMax {
		t.Errorf("%d bytes are counted", s.inFlight.Load())
	}
}

// TestWithoutAStream: a context without a stream has a body without limits.
func TestWithoutAStream(t *testing.T) {
	b := StreamOf(t.Context())
	b.Arrived()
	b.Sending()
	b.Sent()
	b.LimitEndOfResponse()
	b.Cut()
	if done, ok := b.Hold(&belfryv1.WorkRequest{}); !ok {
		t.Error("it holds nothing")
	} else {
		done()
	}
	b.Release()
}
