// Package session makes and keeps the sessions of a client: a session is a connection to one server
// that carries many calls at once.
package session

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/client/internal/bearer"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/requestid"
	"github.com/belfrydb/belfry/rpc/portcheck"
	"github.com/belfrydb/belfry/stream"
)

// A Server makes and keeps the session with one server. It is nil where sessions are not possible:
// with the caller's own transport, or with a proxy on the way. Calls then use Connect.
type Server struct {
	cfg    Config
	target *url.URL
	dialer *stream.Dialer
	met    atomic.Bool // Meet has asked for a session, and found no wrong port
}

// Config says how the sessions of a client are made.
type Config struct {
	// Transport makes the connections; nil if there are to be no sessions.
	Transport *http.Transport
	// TLS is the configuration for https, nil for the system's. It is not the transport's, which
	// the transport changes.
	TLS *tls.Config
	// Token is what requests for sessions carry.
	Token *bearer.Token
	// Name is what the client is called, in the header Belfry-Client.
	Name string
	// Clock is set by answers.
	Clock *requestid.Clock
	// Set has the sessions of all servers of the client.
	Set *Set
	// WriteWait is how long the other side may take to read a frame.
	WriteWait time.Duration
}

const (
	// DialTimeout bounds the time to make a connection and ask for a session.
	DialTimeout = 5 * time.Second
	// BarMin is how long the client asks for no session after a server, or a middlebox,
	// refused one. That doubles with each further refusal, up to BarMax.
	BarMin = 10 * time.Second
	// BarMax is the longest such time.
	BarMax = 10 * time.Minute
)

// New returns the sessions of the server at a base URL.
func New(base string, cfg Config) *Server {
	if cfg.Transport == nil {
		return nil
	}
	target, err := url.Parse(base + stream.SessionPath)
	if err != nil {
		return nil
	}
	if cfg.Transport.Proxy != nil {
		if proxy, err := cfg.Transport.Proxy(&http.Request{URL: target}); err != nil || proxy != nil {
			return nil
		}
	}
	p := &Server{cfg: cfg, target: target}
	p.dialer = stream.NewDialer(&cfg.Set.Callers, stream.DialerConfig{
		Dial: p.dial, Key: cfg.Token.Get, BarMin: BarMin, BarMax: BarMax,
	})
	return p
}

// Get returns the session, and makes one if there is none. Nil without an error means that calls
// use Connect.
func (p *Server) Get(ctx context.Context) (*stream.Caller, error) {
	if p == nil {
		return nil, nil
	}
	s, err := p.dialer.Get(ctx)
	if err != nil {
		return nil, failure.NotSent(lost(err))
	}
	return s, nil
}

// Carries returns the token that the present session was asked for with.
func (p *Server) Carries() string { return p.dialer.Carries() }

// An askError is the failure of a request for a session on a connection that was made.
type askError struct {
	host  string
	cause error
}

func (e *askError) Error() string { return fmt.Sprintf("asking %s for a session: %s", e.host, e.cause) }
func (e *askError) Unwrap() error { return e.cause }

// dial connects to the server and asks for a session.
func (p *Server) dial(ctx context.Context, token string) (*stream.Caller, error) {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	plain, err := p.Connect(ctx)
	if err == nil {
		var s *stream.Caller
		s, err = p.cfg.Set.Open(ctx, plain, p.cfg.Callers(), func(conn net.Conn, in *bufio.Reader) error {
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

// Connect makes a connection, with TLS for https.
func (p *Server) Connect(ctx context.Context) (net.Conn, error) {
	host, port := p.target.Hostname(), p.target.Port()
	if port == "" {
		port = p.target.Scheme // a name that every system knows
	}
	conn, err := p.cfg.Transport.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil || p.target.Scheme != "https" {
		return conn, err
	}
	config := p.cfg.TLS.Clone()
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
func (p *Server) ask(conn net.Conn, in *bufio.Reader, token string) error {
	req := stream.NewUpgrade(p.target, stream.SessionProtocol)
	bearer.Authorize(req.Header, token)
	req.Header.Set("Belfry-Client", p.cfg.Name)
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
	p.cfg.Clock.Observe(sent, res.Header)
	return nil
}

// VerifyWait is how long Verify waits for an answer, at most half of the call's time. After that
// the call itself may find out more.
const VerifyWait = time.Second

// Verify asks for a session ahead of the first call to a server, whatever the call is. A wrong port
// answers that request in a way that reveals it. It just drops a request over HTTP/2, whose outcome
// would be unknown.
func (p *Server) Verify(ctx context.Context) error {
	if p == nil || p.met.Load() {
		return nil
	}
	wait := VerifyWait
	if until, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(until)/2)
	}
	asking, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	_, err := p.Get(asking)
	switch {
	case err != nil && asking.Err() != nil && ctx.Err() == nil: // a middlebox may swallow the request
		if _, asked := errors.AsType[*askError](err); asked {
			p.dialer.Swallowed() // this call and later ones do not ask again
		}
		return nil
	case err != nil:
		return err
	}
	p.met.Store(true)
	return nil
}
