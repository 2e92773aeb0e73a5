package rpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/belfrydb/belfry/rpc/auth"
	"github.com/belfrydb/belfry/rpc/beanstalkd"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
)

// Beanstalkd configures a front door for programs that speak beanstalkd's protocol.
type Beanstalkd struct {
	// JobBytesMax bounds the body of a job, at most by the limit for bodies.
	JobBytesMax int
	// ConnectionsMax bounds the connections; 0 is no bound.
	ConnectionsMax int
	// TokenFile has the token under which connections act that show no certificate. It is read at each
	// connection. Empty is none.
	TokenFile string
	// Version is the version that statistics show.
	Version string
}

// FrontDoor serves another protocol.
type FrontDoor interface {
	// Serve accepts connections until Shutdown, or an error of the listener. On a listener of crypto/tls
	// it carries out the handshakes itself.
	Serve(l net.Listener) error
	// Shutdown stops listening and ends the connections once their commands are answered, or when ctx
	// ends. It may be called once.
	Shutdown(ctx context.Context) error
}

// NewBeanstalkd returns a front door that carries out what its connections ask for as this server
// does. Shut it down before the server.
func (s *Server) NewBeanstalkd(cfg Beanstalkd) FrontDoor {
	h := s.handler
	return beanstalkd.New(beanstalkd.Config{
		Queues: h.queues, Router: h.router, Drain: h.drain,
		CreateQueue: audited(h, belfryv1connect.AdminServiceCreateQueueProcedure, h.administration.CreateQueue),
		UpdateQueue: audited(h, belfryv1connect.AdminServiceUpdateQueueProcedure, h.administration.UpdateQueue),
		Succeeded:   h.interceptor.traffic.successes, Failed: h.interceptor.failed,
		Identify: func(c net.Conn) (context.Context, error) { return h.identifyConnection(c, cfg.TokenFile) },
		Logger:   h.logger, JobBytesMax: min(cfg.JobBytesMax, h.limits.BodyBytesMax), ConnectionsMax: cfg.ConnectionsMax,
		DelayMax: h.limits.DelayMax, TTRMax: h.limits.TTRMax, SendWait: h.limits.BodyWait, Version: cfg.Version,
	})
}

// handshakeMax is how long the TLS handshake of a connection may take.
const handshakeMax = 10 * time.Second

// identifyConnection returns the context for the calls of a connection whose protocol carries no
// token: of the token that its certificate names, else of the token in a file.
func (h *handler) identifyConnection(c net.Conn, tokenFile string) (context.Context, error) {
	ctx := auth.Connected(context.Background(), c.RemoteAddr())
	if secure, ok := c.(*tls.Conn); ok {
		handshake, cancel := context.WithTimeout(ctx, handshakeMax)
		defer cancel()
		if err := secure.HandshakeContext(handshake); err != nil {
			return nil, fmt.Errorf("the TLS handshake: %w", err)
		}
		if shown := secure.ConnectionState().PeerCertificates; len(shown) > 0 {
			return auth.WithTokenID(ctx, shown[0].Subject.CommonName, c.RemoteAddr()), nil
		}
	}
	if open, f := h.authorizer.OpenAccess(); open || f == nil && tokenFile == "" {
		return ctx, nil
	}
	text, err := os.ReadFile(tokenFile) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("reading the token of a front door: %w", err)
	}
	ctx, f := auth.WithToken(ctx, strings.TrimSpace(string(text)), c.RemoteAddr())
	if f != nil {
		return nil, f
	}
	return ctx, nil
}

// audited returns a method of an administrator for a front door: its calls are authorized, measured
// and audited. Its errors are faults.
func audited[Q, A any](h *handler, procedure string,
	method func(context.Context, *Q) (*A, error)) func(context.Context, *Q) error {
	return func(ctx context.Context, req *Q) (err error) {
		c := &auth.Call{Procedure: procedure, Address: auth.ClientOf(ctx), Request: req}
		if refused := h.interceptor.run(ctx, c, func() error {
			_, err = method(ctx, req)
			return err
		}); refused != nil && err == nil {
			err = fault.New(belfryv1.Reason_REASON_UNAUTHENTICATED)
		}
		return err
	}
}

// failed measures and audits a call that did not go through run, and failed.
func (e *interceptor) failed(ctx context.Context, c *auth.Call, err error, took time.Duration) {
	err = e.wire(c, err)
	e.traffic.observe(c.Procedure, err, took)
	e.auditor.CallEnded(ctx, c, err, took)
}
