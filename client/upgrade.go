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
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/client/internal/bearer"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/requestid"
	"github.com/belfrydb/belfry/rpc/portcheck"
	"github.com/belfrydb/belfry/stream"
)

// sessions makes and keeps the session with one server. It is nil where sessions are not possible:
// with the caller's own transport, or with a proxy on the way.
type sessions struct {
	target    *url.URL
	transport *http.Transport
	tls       *tls.Config // not the transport's, which the transport changes
	token     *bearer.Token
	clock     *requestid.Clock
	open      *openSessions
	dialer    *stream.Dialer
}

const (
	// sessionBarMin is how long the client asks for no session after a server, or a middlebox,
	// refused one. It doubles with each further refusal, up to sessionBarMax.
	sessionBarMin = 10 * time.Second
	sessionBarMax = 10 * time.Minute
)

// newSessions returns the sessions of the server at a base URL. secure is the TLS configuration for
// https, nil for the system's. Without a token calls carry none.
func newSessions(
	base string, transport *http.Transport, secure *tls.Config, token *bearer.Token, clock *requestid.Clock,
	open *openSessions,
) *sessions {
	if transport == nil {
		return nil
	}
	target, err := url.Parse(base + stream.SessionPath)
	if err != nil {
		return nil
	}
	if transport.Proxy != nil {
		if proxy, err := transport.Proxy(&http.Request{URL: target}); err != nil || proxy != nil {
			return nil
		}
	}
	p := &sessions{target: target, transport: transport, tls: secure, token: token, clock: clock, open: open}
	p.dialer = stream.NewDialer(&open.Callers, stream.DialerConfig{
		Dial: p.dial, Key: token.Get, BarMin: sessionBarMin, BarMax: sessionBarMax,
	})
	return p
}

// get returns the session, and makes one if there is none. Nil without an error means that calls
// use Connect.
func (p *sessions) get(ctx context.Context) (*stream.Caller, error) {
	if p == nil {
		return nil, nil
	}
	s, err := p.dialer.Get(ctx)
	if err != nil {
		return nil, failure.NotSent(lost(err))
	}
	return s, nil
}

// An askError is the failure of a request for a session on a connection that was made.
type askError struct {
	host  string
	cause error
}

func (e *askError) Error() string { return fmt.Sprintf("asking %s for a session: %s", e.host, e.cause) }
func (e *askError) Unwrap() error { return e.cause }

// dial connects to the server and asks for a session.
func (p *sessions) dial(ctx context.Context, token string) (*stream.Caller, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	plain, err := p.connect(ctx)
	if err == nil {
		var s *stream.Caller
		s, err = p.open.Open(ctx, plain, sessionConfig(p.clock), func(conn net.Conn, in *bufio.Reader) error {
			return p.ask(conn, in, token)
		})
		switch {
		case err == nil:
			return s, nil
		case errors.Is(err, net.ErrClosed): // by the client
			return nil, err
		}
		err = &askError{host: p.target.Host, cause: err}
	}
	if failure.Unsent(err) {
		return nil, err
	}
	return nil, &stream.RefusedError{Cause: err}
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
	req := stream.NewUpgrade(p.target, stream.SessionProtocol)
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
	if err := stream.Upgraded(res, stream.SessionProtocol); err != nil {
		return err
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
}](ctx context.Context, ep *endpoint, method stream.Method, byConnect *connect.Client[rawRequest, A],
	request *[]byte) (*A, error) {
	s, err := ep.sessions.get(ctx)
	if err != nil {
		return nil, err
	}
	if s != nil {
		answer := P(new(A))
		err := callInSession(ctx, s, method, *request, answer)
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
