package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/requestid"
	"github.com/belfrydb/belfry/client/internal/session"
	"github.com/belfrydb/belfry/client/internal/transport"
	"github.com/belfrydb/belfry/stream"
)

// byConnect counts the calls of a server's hot path that come by Connect.
type byConnect struct {
	http.Handler
	mu    sync.Mutex
	calls int
}

// ServeHTTP implements http.Handler.
func (h *byConnect) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if slices.ContainsFunc([]string{"/PutBatch", "/AckBatch", "/Reserve"}, func(method string) bool {
		return strings.HasSuffix(r.URL.Path, method)
	}) {
		h.mu.Lock()
		h.calls++
		h.mu.Unlock()
	}
	h.Handler.ServeHTTP(w, r)
}

func (h *byConnect) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls
}

// inUse returns the server that calls go to.
func inUse(c *Client) *endpoint {
	ep, _ := c.endpoints.Pick()
	return ep
}

// useAll puts, reserves and acks three jobs, by calls of each form.
func useAll(t *testing.T, c *Client) {
	t.Helper()
	ctx := t.Context()
	_, err := c.Put(ctx, "q", []byte("one"))
	_, err2 := c.PutBatch(ctx, []Put{{Queue: "q", Body: []byte("two")}, {Queue: "q", Body: []byte("three")}})
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	one, err := c.Reserve(ctx, ReserveOptions{Queues: []string{"q"}, Wait: time.Second})
	two, err2 := c.Reserve(ctx, ReserveOptions{Queues: []string{"q"}, Max: 2})
	if err := errors.Join(err, err2); err != nil || len(one) != 1 || len(two) != 2 || string(two[1].Body) != "three" {
		t.Fatalf("%v, %v, %v", one, two, err)
	}
	if err := one[0].Ack(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AckBatch(ctx, []string{two[0].Lease, two[1].Lease}); err != nil {
		t.Fatal(err)
	}
}

// TestHotCallsShareASession: one connection has them all, and another what goes by Connect.
func TestHotCallsShareASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, server := newPipeNet(), &sessionServer{Fake: NewFake()}
		plain := &byConnect{Handler: server}
		c := startSessions(t, n, nil, plain)
		useAll(t, c)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if _, err := c.PutBatch(t.Context(), []Put{{Queue: "q"}}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		synctest.Wait() // the map of the shards is asked for meanwhile
		if n.dialed() != 2 || server.count() != 1 || plain.count() != 0 {
			t.Errorf("%d connections, %d sessions, %d calls by Connect", n.dialed(), server.count(), plain.count())
		}
	})
}

// TestWithoutSessions: calls go by Connect where a server, or what is before it, has no sessions.
// It is asked again, ever more seldom.
func TestWithoutSessions(t *testing.T) {
	for _, status := range []int{http.StatusUpgradeRequired, http.StatusNotFound, http.StatusServiceUnavailable,
		http.StatusOK} {
		synctest.Test(t, func(t *testing.T) {
			server := &sessionServer{Fake: NewFake(), refuse: status}
			plain := &byConnect{Handler: server}
			c := startSessions(t, newPipeNet(), nil, plain)
			useAll(t, c)
			if server.count() != 1 || plain.count() == 0 {
				t.Errorf("%d: asked %d times, %d calls by Connect", status, server.count(), plain.count())
			}
			began, asked := time.Now(), []time.Duration{}
			for server.count() < 5 {
				before := server.count()
				time.Sleep(time.Second)
				if err := c.Ack(t.Context(), "none"); !errors.Is(err, ErrStaleLease) {
					t.Fatal(err)
				}
				if server.count() > before {
					asked = append(asked, time.Since(began))
				}
			}
			if want := []time.Duration{10 * time.Second, 30 * time.Second, 70 * time.Second,
				150 * time.Second}; !slices.Equal(asked, want) {
				t.Errorf("%d: asked again after %v, want %v", status, asked, want)
			}
			server.set(func(s *sessionServer) { s.refuse = 0 })
			time.Sleep(session.BarMax)
			before := plain.count()
			if useAll(t, c); plain.count() != before || server.count() != 6 {
				t.Errorf("%d: once there are sessions, %d calls went by Connect, asked %d times", status, plain.count()-before,
					server.count())
			}
		})
	}
}

// TestOtherWaysHaveNoSessions: a transport of the caller's, and a proxy, carry all calls.
func TestOtherWaysHaveNoSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, server := newPipeNet(), &sessionServer{Fake: NewFake()}
		n.serve(t, "n1:7400", server)
		c := start(t, n, nil, nil)
		if useAll(t, c); server.count() != 0 {
			t.Error("a session beside the caller's transport")
		}
	})
	own := transport.New(nil)
	for name, proxy := range map[string]func(*http.Request) (*url.URL, error){
		"proxy":  func(*http.Request) (*url.URL, error) { return &url.URL{Scheme: "http", Host: "proxy:3128"}, nil },
		"broken": func(*http.Request) (*url.URL, error) { return nil, errors.New("broken") },
	} {
		own.Proxy = proxy
		if session.New("http://n1:7400", session.Config{Transport: own, Set: &session.Set{}}) != nil {
			t.Error(name)
		}
	}
	own.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	if session.New("http://n1:7400", session.Config{Transport: own, Set: &session.Set{}}) == nil {
		t.Error("no session without a proxy")
	}
}

// TestSessionsAfterARestart: the next call makes another.
func TestSessionsAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, server := newPipeNet(), &sessionServer{Fake: NewFake()}
		c := startSessions(t, n, nil, nil)
		for round := range 3 {
			stop := n.serve(t, "n1:7400", server)
			useAll(t, c)
			if server.count() != round+1 {
				t.Errorf("%d sessions in round %d", server.count(), round)
			}
			stop()
			for _, s := range server.sessions() {
				_ = s.conn.Close()
			}
			synctest.Wait()
		}
	})
}

// holding has a server keep its answers to PutBatch until the returned function is called.
func holding(server *sessionServer) (release func()) {
	hold := make(chan struct{})
	server.failAfter(func(_ context.Context, method string, _ proto.Message) error {
		if method == "PutBatch" {
			<-hold
		}
		return nil
	})
	return sync.OnceFunc(func() { close(hold) })
}

// TestAServerThatLeaves answers what it has, and other calls go by another session.
func TestAServerThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &sessionServer{Fake: NewFake()}
		c := startSessions(t, newPipeNet(), nil, server)
		release := holding(server)
		results := make(chan error, 1)
		put := func() {
			_, err := c.PutBatch(t.Context(), []Put{{Queue: "q"}})
			results <- err
		}
		go put()
		synctest.Wait()
		old := server.sessions()[0]
		if err := old.send(stream.Header{Kind: stream.Leave}, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(25 * time.Second) // signs of life go on
		if err := c.Ack(t.Context(), "none"); !errors.Is(err, ErrStaleLease) {
			t.Error(err)
		}
		if len(results) > 0 || server.count() != 2 {
			t.Errorf("%d results, %d sessions", len(results), server.count())
		}
		release()
		if err := <-results; err != nil {
			t.Error(err)
		}
		if sizes := server.sizes("PutBatch"); len(sizes) != 1 {
			t.Errorf("the call was made %d times", len(sizes))
		}
		if err := old.send(stream.Header{Kind: stream.Bye}, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := old.conn.Write([]byte("x")); err == nil {
			t.Error("the session is still open")
		}
	})
}

// TestWhatBecameOfCalls: those that were out when a connection broke may have been applied, those
// before Bye were not read. Both are repeated as they were.
func TestWhatBecameOfCalls(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(s *serverSession)
		want failure.Outcome
	}{
		"broken": {func(s *serverSession) { _ = s.conn.Close() }, failure.Unknown},
		"bye":    {func(s *serverSession) { _ = s.send(stream.Header{Kind: stream.Bye}, nil) }, failure.NotApplied},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &sessionServer{Fake: NewFake()}
				c := startSessions(t, newPipeNet(), nil, server)
				release := holding(server)
				defer release()
				s, err := inUse(c).sessions.Get(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				lost, puts := make(chan error, 1), make(chan error, 1)
				go func() { lost <- session.Call(t.Context(), s, stream.PutBatch, nil, &putBatchAnswer{}) }()
				go func() {
					_, err := c.PutBatch(t.Context(), []Put{{Queue: "q"}})
					puts <- err
				}()
				synctest.Wait()
				server.failAfter(nil)
				tt.end(server.sessions()[0])
				if e := failure.Of(<-lost); e.Outcome != tt.want || e.Code != connect.CodeUnavailable || !failure.Retryable(e) ||
					!failure.Leaves(e) {
					t.Errorf("%+v", e)
				}
				if err := <-puts; err != nil {
					t.Error(err)
				}
				ids := slices.DeleteFunc(server.ids("PutBatch"), func(id string) bool { return id == "" })
				if len(ids) != 2 || ids[0] != ids[1] || len(server.jobs) != 1 || server.count() != 2 {
					t.Errorf("request ids %v, %d jobs, %d sessions", ids, len(server.jobs), server.count())
				}
			})
		})
	}
}

// TestAMuteServer is found out, and the call goes to another.
func TestAMuteServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mute, other := &sessionServer{Fake: NewFake()}, &sessionServer{Fake: NewFake()}
		var pings atomic.Int32
		mute.accepts = func(_ *serverSession, h stream.Header) bool {
			if h.Kind == stream.Ping {
				pings.Add(1)
			}
			return true
		}
		c := startSessions(t, newPipeNet(), nil, mute, other)
		began := time.Now()
		if _, err := c.PutBatch(t.Context(), []Put{{Queue: "q"}}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < session.PingAfter+session.PingTimeout ||
			took > session.PingAfter+session.PingTimeout+failure.BackoffMin ||
			pings.Load() != 1 || len(other.jobs) != 1 {
			t.Errorf("after %v and %d pings, %d jobs", took, pings.Load(), len(other.jobs))
		}
	})
}

// TestAClientThatOnlyHears gives signs of life too: a server ends a session that says nothing for
// 45 s, whatever it answers there meanwhile.
func TestAClientThatOnlyHears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls, every, silence = 20, session.PingAfter - time.Second, 45 * time.Second
		server := &sessionServer{Fake: NewFake()}
		c := startSessions(t, newPipeNet(), nil, server)
		began := time.Now()
		var said atomic.Int64 // after began
		server.accepts = func(*serverSession, stream.Header) bool {
			said.Store(int64(time.Since(began)))
			return false
		}
		var asked atomic.Int32
		server.failBefore(func(context.Context, string, proto.Message) error {
			rest := time.NewTimer(time.Duration(asked.Add(1)) * every)
			<-rest.C
			return nil
		})
		s, err := inUse(c).sessions.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, calls)
		for range calls {
			go func() { answered <- session.Call(t.Context(), s, stream.PutBatch, nil, &putBatchAnswer{}) }()
		}
		for range calls {
			if err := <-answered; err != nil {
				t.Error(err)
			}
			if quiet := time.Since(began) - time.Duration(said.Load()); quiet >= silence {
				t.Errorf("the client said nothing for %v", quiet)
			}
		}
	})
}

// TestAServerThatIsSlow is not taken for mute: not while an answer arrives, nor while it takes a
// request.
func TestAServerThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, theirs := pipedSession(t)
		answered := make(chan error, 1)
		request := make([]byte, 100)
		go func() { answered <- session.Call(t.Context(), s, stream.PutBatch, request, &putBatchAnswer{}) }()
		for range 20 + len(request) { // in 24 seconds
			time.Sleep(200 * time.Millisecond)
			if _, err := readSlowly(theirs); err != nil {
				t.Fatal(err)
			}
		}
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		slow := append([]byte{byte(stream.Answer), 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0},
			"\xfa\x01\x03abc"...)
		for _, b := range slow { // in 78 seconds
			time.Sleep(3 * time.Second)
			if _, err := theirs.Write([]byte{b}); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
}

// TestWhoLeavesWhileAnAnswerComes does not wait for the rest of it, and the next call gets its own.
func TestWhoLeavesWhileAnAnswerComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, theirs := pipedSession(t)
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		answer := []byte{byte(stream.Answer), 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 2)
		go func() { left <- session.Call(ctx, s, stream.PutBatch, nil, &putBatchAnswer{}) }()
		synctest.Wait()
		if _, err := theirs.Write(answer[:len(answer)-1]); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) || time.Since(began) > 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		go func() { left <- session.Call(t.Context(), s, stream.PutBatch, nil, &putBatchAnswer{}) }()
		synctest.Wait()
		next := append(answer[len(answer)-1:len(answer):len(answer)], answer...)
		next[8] = 2
		if _, err := theirs.Write(next); err != nil {
			t.Fatal(err)
		}
		if err := <-left; err != nil {
			t.Error(err)
		}
	})
}

// TestAnIdleSessionIsClosed when no call has used it for long, and not while a call waits.
func TestAnIdleSessionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &sessionServer{Fake: NewFake()}
		c := startSessions(t, newPipeNet(), nil, server)
		s, err := inUse(c).sessions.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		hold := holding(server)
		answered := make(chan error, 1)
		go func() { answered <- session.Call(t.Context(), s, stream.PutBatch, nil, &putBatchAnswer{}) }()
		time.Sleep(2 * session.Idle)
		if !s.Takes() {
			t.Error("a session that waits for an answer was closed")
		}
		hold()
		if err := <-answered; err != nil {
			t.Error(err)
		}
		time.Sleep(session.Idle)
		if s.Takes() || c.sessions.Len() != 0 {
			t.Error("the session is still open")
		}
		if useAll(t, c); server.count() != 2 {
			t.Errorf("%d sessions", server.count())
		}
	})
}

// pipedSession returns a session that has been opened, and the server's side of its connection.
func pipedSession(t testing.TB) (s *stream.Caller, theirs net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	var open session.Set
	t.Cleanup(open.Close)
	cfg := session.Config{Clock: &requestid.Clock{}, WriteWait: attemptTimeout}
	s, err := open.Open(t.Context(), ours, cfg.Callers(), func(net.Conn, *bufio.Reader) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return s, theirs
}
