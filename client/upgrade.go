package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/client/internal/requestid"
	"github.com/belfrydb/belfry/rpc/frame"
	"github.com/belfrydb/belfry/rpc/portcheck"
)

// sessions makes and keeps the session with one server. It is nil where sessions are not possible:
// with the caller's own transport, or with a proxy on the way.
type sessions struct {
	target    *url.URL
	transport *http.Transport
	tls       *tls.Config // not the transport's, which the transport changes
	token     *heldToken
	clock     *requestid.Clock
	open      *openSessions
	dialing   chan struct{} // holds one value while a call dials

	mu       sync.Mutex
	current  *session
	carries  string        // the token of current
	barred   time.Time     // no session is requested with barredTo before this time
	barredTo string        // the token with which the server, or a middlebox, refused
	bar      time.Duration // the length of the last bar
	failure  error         // the error of the last attempt to connect; nil if it did not fail
	failedAt time.Time
}

const (
	// sessionBarMin is how long the client asks for no session after a server, or a middlebox,
	// refused one. It doubles with each further refusal, up to sessionBarMax, because calls wait
	// while a request for a session goes unanswered.
	sessionBarMin = 10 * time.Second
	sessionBarMax = 10 * time.Minute
)

// newSessions returns the sessions of the server at a base URL. secure is the TLS configuration for
// https, nil for the system's. Without a token calls carry none.
func newSessions(base string, transport *http.Transport, secure *tls.Config, token *heldToken, clock *requestid.Clock,
	open *openSessions) *sessions {
	if transport == nil {
		return nil
	}
	target, err := url.Parse(base + frame.Path)
	if err != nil {
		return nil
	}
	if transport.Proxy != nil {
		if proxy, err := transport.Proxy(&http.Request{URL: target}); err != nil || proxy != nil {
			return nil
		}
	}
	return &sessions{
		target: target, transport: transport, tls: secure, token: token, clock: clock, open: open,
		dialing: make(chan struct{}, 1),
	}
}

// get returns the session, and makes one if there is none. Nil without an error means that calls
// use Connect.
func (p *sessions) get(ctx context.Context) (*session, error) {
	if p == nil {
		return nil, nil
	}
	if s, known := p.now(); known {
		return s, nil
	}
	asked := time.Now()
	select {
	case p.dialing <- struct{}{}:
		defer func() { <-p.dialing }()
	case <-ctx.Done():
		return nil, notSent(context.Cause(ctx))
	}
	if s, known := p.now(); known {
		return s, nil // another call was faster
	}
	if err := p.failedSince(asked); err != nil {
		return nil, err
	}
	token := p.token.get()
	s, err := p.dial(ctx, token)
	return s, p.dialed(ctx, s, token, err)
}

// now returns the present session, nil if there can be none. known is false if get should make one.
func (p *sessions) now() (s *session, known bool) {
	token := p.token.get()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil && p.carries == token && p.current.takes() { // the session of an earlier token ends by being idle
		return p.current, true
	}
	return nil, p.barredTo == token && time.Now().Before(p.barred) || p.open.isClosed()
}

// failedSince returns the error with which another caller has found since asked that the server is
// out of reach. Callers that waited for that attempt do not try again one after the other.
func (p *sessions) failedSince(asked time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failedAt.After(asked) {
		return p.failure
	}
	return nil
}

// dialed records how an attempt ended. It returns the error for the call that made the attempt.
// Without an error and without a session, calls use Connect.
func (p *sessions) dialed(ctx context.Context, s *session, token string, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.current, p.carries, p.failure, p.bar = s, token, nil, 0
	case ctx.Err() != nil:
		return notSent(err) // the error does not concern the server
	case unsent(err):
		p.failure, p.failedAt = notSent(err), time.Now()
	default:
		p.failure = nil
		p.barLocked(token)
	}
	return p.failure
}

// barLocked stops requests for a session with a token for a while: calls use Connect. Called with
// mu held.
func (p *sessions) barLocked(token string) {
	p.bar = min(max(2*p.bar, sessionBarMin), sessionBarMax)
	p.barred, p.barredTo = time.Now().Add(p.bar), token
}

// swallowed records that a request for a session went unanswered. Only the request's caller can
// tell that from its own departure.
func (p *sessions) swallowed() {
	token := p.token.get()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.barLocked(token)
}

// An askError is the failure of a request for a session on a connection that was made.
type askError struct {
	host  string
	cause error
}

func (e *askError) Error() string { return fmt.Sprintf("asking %s for a session: %s", e.host, e.cause) }
func (e *askError) Unwrap() error { return e.cause }

// dial connects to the server and asks for a session.
func (p *sessions) dial(ctx context.Context, token string) (_ *session, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	plain, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	conn := &activityConn{Conn: plain, began: time.Now()}
	defer func() {
		if err != nil {
			_ = conn.Close() // it leads nowhere
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // one that takes none has ended
	in := bufio.NewReaderSize(conn, sessionBuffer)
	err = p.ask(conn, in, token)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, &askError{host: p.target.Host, cause: err}
	}
	s := p.open.start(conn, in, p.clock)
	if s == nil {
		return nil, notSent(net.ErrClosed)
	}
	return s, nil
}

// connect makes the connection, with TLS for https.
func (p *sessions) connect(ctx context.Context) (net.Conn, error) {
	host, port := p.target.Hostname(), p.target.Port()
	if port == "" {
		port = p.target.Scheme // a name that every system knows
	}
	conn, err := p.transport.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil || p.target.Scheme != "https" {
		return conn, err
	}
	config := p.tls.Clone()
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if config.ServerName == "" {
		config.ServerName = host
	}
	config.NextProtos = []string{"http/1.1"}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secure, nil
}

// ask sends the request for an upgrade and reads the answer.
func (p *sessions) ask(conn net.Conn, in *bufio.Reader, token string) error {
	req := &http.Request{
		Method: http.MethodGet, URL: p.target, Host: p.target.Host, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {frame.Protocol}},
	}
	authorize(req.Header, token)
	sent := time.Now()
	if err := req.Write(conn); err != nil {
		return portcheck.RefusesStrangers(err)
	}
	plain := p.target.Scheme == "http"
	if plain {
		if err := portcheck.BeginsWithAlert(in); err != nil {
			return err
		}
	}
	res, err := http.ReadResponse(in, req)
	if err != nil {
		return portcheck.RefusesStrangers(err)
	}
	if plain {
		if err := portcheck.RefusesPlain(res); err != nil {
			return err
		}
	}
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != frame.Protocol {
		_ = res.Body.Close() // the connection is not used any more
		return fmt.Errorf("the answer is %s", res.Status)
	}
	p.clock.Observe(sent, res.Header)
	return nil
}

// A rawRequest is a request that is already encoded.
type rawRequest []byte

// request returns memory for a request of hot, with room for size bytes.
func (p *sessions) request(size int) *[]byte {
	request := new([]byte)
	if p != nil {
		if used, ok := p.open.requests.Get().(*[]byte); ok {
			request = used
		}
	}
	*request = slices.Grow((*request)[:0], size)
	return request
}

// free lets another request reuse the memory. It drops a large piece.
func (p *sessions) free(request *[]byte) {
	if cap(*request) <= requestBytesKept {
		p.open.requests.Put(request)
	}
}

// requestBytesKept is the size up to which the memory of a request is reused.
const requestBytesKept = 256 << 10

// hot makes one of the calls of the hot path: in a session, or by Connect where there is none. The
// caller must not use the request afterwards.
func hot[A any, P interface {
	*A
	wireDecoder
}](ctx context.Context, ep *endpoint, method frame.Method, byConnect *connect.Client[rawRequest, A],
	request *[]byte) (*A, error) {
	s, err := ep.sessions.get(ctx)
	if err != nil {
		return nil, err
	}
	if s != nil {
		answer := P(new(A))
		err := s.call(ctx, method, *request, answer)
		ep.sessions.free(request) // by Connect it may be read for longer
		if err != nil {
			return nil, err
		}
		return (*A)(answer), nil
	}
	raw := rawRequest(*request)
	res, err := byConnect.CallUnary(ctx, connect.NewRequest(&raw))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}
