package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/client/internal/session"
)

// listenSecure serves a fake with TLS, and returns its host and port, and a pool with its
// certificate.
func listenSecure(t *testing.T, change func(config *tls.Config)) (address string, pool *x509.CertPool) {
	t.Helper()
	server := httptest.NewUnstartedServer(NewFake().Handler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail here
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	change(server.TLS)
	server.StartTLS()
	t.Cleanup(server.Close)
	pool = x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return server.Listener.Addr().String(), pool
}

// listenAlert answers whatever comes with an alert of TLS, as servers do that are not written in
// Go.
func listenAlert(t *testing.T) (address string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1<<10))
			_, _ = conn.Write([]byte("\x15\x03\x01\x00\x02\x02\x46"))
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

// TestWrongPortsEndCallsAtOnce: a mistake in the address that certainly is one fails each kind of
// call at once, unapplied, and says what to do.
func TestWrongPortsEndCallsAtOnce(t *testing.T) {
	secure, pool := listenSecure(t, func(*tls.Config) {})
	mutual, mutualPool := listenSecure(t, func(config *tls.Config) { config.ClientAuth = tls.RequireAnyClientCert })
	plain := httptest.NewServer(NewFake().Handler())
	t.Cleanup(plain.Close)
	for name, try := range map[string]struct {
		url  string
		pool *x509.CertPool
		want []string
	}{
		"http to TLS":           {"http://" + secure, nil, []string{"https://", "WithTLS"}},
		"http to TLS, an alert": {"http://" + listenAlert(t), nil, []string{"https://", "WithTLS"}},
		"http to the peer port": {"http://" + mutual, nil, []string{"https://"}},
		"https to it":           {"https://" + mutual, mutualPool, []string{"certificate", "peer port", "7400"}},
		"https to plain HTTP":   {strings.Replace(plain.URL, "http:", "https:", 1), pool, []string{"http://"}},
		"an unknown authority":  {"https://" + secure, mutualPool.Clone(), []string{"authority", "WithTLS", "RootCAs"}},
	} {
		if name == "an unknown authority" {
			try.pool = x509.NewCertPool()
		}
		for method, call := range map[string]func(ctx context.Context, c *Client) error{
			"Put":     func(ctx context.Context, c *Client) error { _, err := c.Put(ctx, "q", nil); return err },
			"Release": func(ctx context.Context, c *Client) error { _, _, err := c.Release(ctx, "lease", 0); return err },
			"Get":     func(ctx context.Context, c *Client) error { _, err := c.Get(ctx, "q", "x"); return err },
			"Worker": func(ctx context.Context, c *Client) error {
				return Worker{Queues: []string{"q"}}.Run(ctx, c, func(context.Context, *Job) error { return nil })
			},
		} {
			t.Run(name+"/"+method, func(t *testing.T) {
				c, err := New(try.url, WithTLS(&tls.Config{RootCAs: try.pool, MinVersion: tls.VersionTLS13}))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				err = call(ctx, c)
				typed, ok := errors.AsType[*Error](err)
				if !ok || ctx.Err() != nil || typed.Outcome != OutcomeNotApplied || errors.Is(err, ErrUnknownOutcome) {
					t.Fatalf("ended with %v", err)
				}
				for _, want := range try.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q does not say %q", err, want)
					}
				}
			})
		}
	}
}

// TestASwallowedQuestion: something on the way that never answers the question for a session does
// not keep calls from being made, of the hot path neither; and those that follow do not wait for
// it.
func TestASwallowedQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, inner := newPipeNet(), NewFake().Handler()
		network.serve(t, "n1:7400", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				<-r.Context().Done()
				return
			}
			inner.ServeHTTP(w, r)
		}))
		get := func(ctx context.Context, c *Client) error {
			if _, err := c.Get(ctx, "q", "unknown"); !errors.Is(err, ErrJobNotFound) {
				return fmt.Errorf("want that there is no such job: %w", err)
			}
			return nil
		}
		put := func(ctx context.Context, c *Client) error {
			_, err := c.Put(ctx, "q", nil)
			return err
		}
		for name, first := range map[string]struct {
			call    func(context.Context, *Client) error
			timeout time.Duration
		}{
			"get": {get, session.DialTimeout / 2}, "get with little time": {get, session.DialTimeout / 10},
			"put": {put, session.DialTimeout / 2}, // of several callers together, whose deadlines are not known
		} {
			c, err := New("http://n1:7400", WithDialer(network.dial))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), first.timeout)
			if err := first.call(ctx, c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
			began := time.Now()
			if err := errors.Join(get(t.Context(), c), put(t.Context(), c)); err != nil ||
				time.Since(began) >= session.VerifyWait {
				t.Errorf("after %s, in %v: %v", name, time.Since(began), err)
			}
			_ = c.Close()
		}
	})
}
