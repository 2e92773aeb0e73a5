package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/servers"
	"github.com/belfrydb/belfry/client/internal/session"
	"github.com/belfrydb/belfry/stream"
)

// TestACallersContextEndsItsCallOnly: the server hears of it, and the other calls go on.
func TestACallersContextEndsItsCallOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &sessionServer{Fake: NewFake()}
		c := startSessions(t, newPipeNet(), nil, server)
		ctx, leave := context.WithCancel(t.Context())
		results := make(chan error, 2)
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() {
				jobs, err := c.Reserve(ctx, ReserveOptions{Queues: []string{"q"}, Max: 2, Wait: time.Minute})
				if err == nil && len(jobs) != 1 {
					err = errors.New("no job")
				}
				results <- err
			}()
		}
		synctest.Wait()
		if server.parked != 2 {
			t.Fatalf("%d polls wait", server.parked)
		}
		leave()
		if err := <-results; !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if server.parked != 1 {
			t.Errorf("%d polls wait", server.parked)
		}
		if _, err := c.Put(t.Context(), "q", nil); err != nil {
			t.Error(err)
		}
		if err := <-results; err != nil || server.count() != 1 {
			t.Errorf("%v, %d sessions", err, server.count())
		}
	})
}

// TestFailuresOfSessions say what those of Connect do.
func TestFailuresOfSessions(t *testing.T) {
	for _, off := range []bool{false, true} { // by a session, and by Connect
		synctest.Test(t, func(t *testing.T) {
			server := &sessionServer{Fake: NewFake()}
			server.failBefore(func(context.Context, string, proto.Message) error {
				return refusal(connect.CodeResourceExhausted, "QUEUE_FULL", "not_applied", time.Second)
			})
			if off {
				server.refuse = 426
			}
			_, err := startSessions(t, newPipeNet(), nil, server).Reserve(t.Context(), ReserveOptions{
				Queues: []string{"q"}, Max: 2,
			})
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Reason != ErrQueueFull || e.Code != connect.CodeResourceExhausted || e.RetryAfter != time.Second ||
				e.Leader != "n2:7400" ||
				*e.Shard != 3 || e.Outcome != OutcomeNotApplied || e.Message != "refused by the fake" || e.RequestID == "" {
				t.Errorf("%+v", e)
			}
		})
	}
}

// TestAnAnswerThatMakesNoSense is not asked for again: it would be the same.
func TestAnAnswerThatMakesNoSense(t *testing.T) {
	for _, kind := range []stream.Kind{stream.Answer, stream.Failure} {
		synctest.Test(t, func(t *testing.T) {
			server := &sessionServer{Fake: NewFake()}
			server.accepts = func(s *serverSession, h stream.Header) bool {
				return h.Kind == stream.Call && s.send(stream.Header{Kind: kind, ID: h.ID}, []byte{0xff}) == nil
			}
			c := startSessions(t, newPipeNet(), nil, server)
			_, err := c.Reserve(t.Context(), ReserveOptions{Queues: []string{"q"}, Max: 2})
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != connect.CodeInternal || e.Outcome != OutcomeUnknown {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestCallersShareAFailure: calls that waited for a connection that failed do not try one after the
// other.
func TestCallersShareAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newPipeNet()
		n.servers["n1:7400"] = &pipeListener{closed: make(chan struct{})} // takes no connection
		c := startSessions(t, n, nil, nil)
		began := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := inUse(c).sessions.Get(t.Context()); failure.Of(err).Outcome != failure.NotApplied {
					t.Errorf("%v", err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took != session.DialTimeout || n.dialed() != 1 {
			t.Errorf("%d connections were tried in %v", n.dialed(), took)
		}
	})
}

// TestADialersContextEndsItsCallOnly: the next caller dials.
func TestADialersContextEndsItsCallOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newPipeNet()
		n.servers["n1:7400"] = &pipeListener{closed: make(chan struct{})}
		c := startSessions(t, n, nil, nil)
		ctx, leave := context.WithCancel(t.Context())
		gone, came := make(chan error, 1), make(chan error, 1)
		get := func(ctx context.Context, result chan error) {
			s, err := inUse(c).sessions.Get(ctx)
			if err == nil && s == nil {
				err = errors.New("no session")
			}
			result <- err
		}
		go get(ctx, gone)
		synctest.Wait()
		go get(t.Context(), came)
		synctest.Wait()
		n.serve(t, "n1:7400", &sessionServer{Fake: NewFake()})
		time.Sleep(time.Second)
		leave()
		if err := <-gone; failure.Of(err).Outcome != failure.NotApplied || !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if err := <-came; err != nil {
			t.Error(err)
		}
	})
}

// TestCloseEndsSessions: also one that is replaced, one that is being made, and one of a server
// that the client has forgotten.
func TestCloseEndsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, server := newPipeNet(), &sessionServer{Fake: NewFake()}
		c := startSessions(t, n, nil, server)
		n.serve(t, "n9:7400", server)
		release := holding(server)
		defer release()
		results := make(chan error, 2)
		put := func(at *endpoint) {
			s, err := at.sessions.Get(t.Context())
			if err == nil {
				err = session.Call(t.Context(), s, stream.PutBatch, nil, &putBatchAnswer{})
			}
			results <- err
		}
		go put(inUse(c))
		synctest.Wait()
		if err := server.sessions()[0].send(stream.Header{Kind: stream.Leave}, nil); err != nil { // it does not say Bye
			t.Fatal(err)
		}
		synctest.Wait()
		forgotten := c.endpoints.Named("n9:7400")
		go put(forgotten)
		synctest.Wait()
		for i := range servers.NamedMax {
			c.endpoints.Named(fmt.Sprintf("m%d:7400", i))
		}
		if c.endpoints.Named("n9:7400") == forgotten {
			t.Error("the server is not forgotten")
		}
		n.mu.Lock()
		n.servers["n8:7400"] = &pipeListener{closed: make(chan struct{}), conns: make(chan net.Conn)}
		late := n.servers["n8:7400"]
		n.mu.Unlock()
		dialing := make(chan error, 1)
		go func() {
			_, err := c.endpoints.Named("n8:7400").sessions.Get(t.Context())
			dialing <- err
		}()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-results; !errors.Is(err, net.ErrClosed) || failure.Of(err).Outcome != failure.Unknown {
				t.Errorf("%v", err)
			}
		}
		conn := <-late.conns // the server answers after Close
		in := newReader(conn)
		if line, err := in.ReadString('\n'); !strings.HasPrefix(line, "GET /belfry.v1/session ") {
			t.Errorf("%q, %v", line, err)
		}
		go func() { _, _ = io.Copy(io.Discard, in) }()
		if _, err := io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+stream.SessionProtocol+
				"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if err := <-dialing; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v", err)
		}
		if c.sessions.Len() != 0 {
			t.Errorf("%d sessions are open", c.sessions.Len())
		}
		if s, err := inUse(c).sessions.Get(t.Context()); s != nil || err != nil {
			t.Errorf("a session after Close: %v", err)
		}
	})
}

// TestBrokenRulesOfServers end the session.
func TestBrokenRulesOfServers(t *testing.T) {
	for name, h := range map[string]stream.Header{
		"call": {Kind: stream.Call}, "kind": {Kind: 99}, "ping with payload": {Kind: stream.Ping},
		"leave with payload": {Kind: stream.Leave},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &sessionServer{Fake: NewFake()}
			c := startSessions(t, newPipeNet(), nil, server)
			s, err := inUse(c).sessions.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			// in order, even if no call waits
			for _, own := range []stream.Header{{Kind: stream.Ping}, {Kind: stream.Pong}, {Kind: stream.Answer, ID: 77}} {
				if err := server.sessions()[0].send(own, nil); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if !s.Takes() {
				t.Fatal("the session has ended")
			}
			if err := server.sessions()[0].send(h, []byte("x")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if s.Takes() || c.sessions.Len() != 0 {
				t.Errorf("%s: the session goes on", name)
			}
		})
	}
}

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReader(r) }

// readSlowly reads a byte.
func readSlowly(r io.Reader) (int, error) { return r.Read(make([]byte, 1)) }

// FuzzSessionAnswers feeds a session any bytes: every call ends when they do.
func FuzzSessionAnswers(f *testing.F) {
	f.Add([]byte("\x03\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x07\x0a\x00"))
	f.Add([]byte("\x04\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x07\x08\x03"))
	f.Add([]byte("\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, theirs := pipedSession(t)
		var calls sync.WaitGroup
		for _, answer := range []session.Answer{&putBatchAnswer{}, &reserveAnswer{}} {
			calls.Go(func() { _ = session.Call(t.Context(), s, stream.PutBatch, nil, answer) })
		}
		var reading sync.WaitGroup
		reading.Go(func() { _, _ = io.Copy(io.Discard, theirs) })
		_, _ = theirs.Write(data) // it may end before all is read
		theirs.Close()
		calls.Wait()
		reading.Wait()
	})
}

// TestSessionsOverTLS: https has them too, and a certificate that is not trusted ends the call at
// once, with nothing sent.
func TestSessionsOverTLS(t *testing.T) {
	fake := &sessionServer{Fake: NewFake()}
	server := httptest.NewUnstartedServer(fake)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	for _, trusted := range []bool{false, true} {
		roots := x509.NewCertPool()
		if trusted {
			roots.AddCert(server.Certificate())
		}
		c, err := New(server.URL, WithTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, err = c.Put(t.Context(), "q", nil)
		if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](err); ok == trusted || (err == nil) != trusted ||
			(fake.count() == 1) != trusted {
			t.Errorf("trusted: %v; %v, %v, %d sessions", trusted, err, untrusted, fake.count())
		}
		if e, ok := errors.AsType[*Error](err); ok && (e.Outcome != OutcomeNotApplied || e.Code != connect.CodeUnavailable) {
			t.Errorf("%+v", e)
		}
	}
}
