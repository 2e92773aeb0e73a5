package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/access/certs"
	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/client"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
)

// connection is the way to a server.
type connection struct {
	url    string
	http   *http.Client
	queues belfryv1connect.QueueServiceClient
	admin  belfryv1connect.AdminServiceClient
}

// connect returns the way to the server that the flags name. Nothing is sent yet.
func (a *app) connect() (*connection, error) {
	base, err := a.serverURL()
	if err != nil {
		return nil, err
	}
	secure, err := a.clientTLS()
	if err != nil {
		return nil, err
	}
	token, err := a.token()
	if err != nil {
		return nil, err
	}
	caller := &http.Client{Transport: &bearerTransport{token, &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     secure,
		DialContext:         (&net.Dialer{Timeout: a.timeout}).DialContext,
		MaxIdleConnsPerHost: 4,
	}}, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // what it leads to has no business with the token
	}}
	retry := connect.WithInterceptors(retryInterceptor(100*time.Millisecond, 2*time.Second))
	return &connection{
		url:    base,
		http:   caller,
		queues: belfryv1connect.NewQueueServiceClient(caller, base, retry),
		admin:  belfryv1connect.NewAdminServiceClient(caller, base, retry),
	}, nil
}

// token reads the token that calls carry; empty for none.
func (a *app) token() (string, error) {
	if a.tokenFile == "" {
		return "", nil
	}
	data, err := os.ReadFile(a.tokenFile)
	if err != nil {
		return "", usagef("--token-file: %s", err)
	}
	text := strings.TrimSpace(string(data))
	if _, _, err := tokens.Parse(text); err != nil {
		return "", usagef("--token-file: in %s %s", a.tokenFile, err)
	}
	return text, nil
}

// bearerTransport has each request carry a token, if there is one.
type bearerTransport struct {
	token string
	inner http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	return t.inner.RoundTrip(r)
}

// clientTLS returns the settings for https; nil for the system's.
func (a *app) clientTLS() (*tls.Config, error) {
	if a.tlsCA == "" {
		return nil, nil
	}
	authorities, err := certs.ReadAuthorities(a.tlsCA)
	if err != nil {
		return nil, usagef("--tls-ca: %s", err)
	}
	return &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS13}, nil
}

// sdk returns a client of the SDK for servers, which must be closed.
func (a *app) sdk(servers string) (*client.Client, error) {
	secure, err := a.clientTLS()
	if err != nil {
		return nil, err
	}
	options := []client.Option{client.WithTLS(secure)}
	if a.tokenFile != "" {
		if _, err := a.token(); err != nil {
			return nil, err
		}
		options = append(options, client.WithTokenFile(a.tokenFile))
	}
	c, err := client.New(servers, options...)
	if err != nil {
		return nil, usagef("--server: %s", err)
	}
	return c, nil
}

// serverURL completes what a person wrote in --server: host:port means http, or https with --tls-ca.
func (a *app) serverURL() (string, error) {
	text := a.server
	switch {
	case strings.Contains(text, "://"):
	case a.tlsCA != "" || a.tokenFile != "" && !onLoopback(text):
		text = "https://" + text
	default:
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", usagef("--server: %s", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", usagef("--server: want http://HOST:PORT, have %q", text)
	}
	if a.tokenFile != "" && u.Scheme == "http" && !onLoopback(u.Host) {
		return "", usagef("--server: %s would have the token of --token-file for everybody on the way to read; want https", text)
	}
	return strings.TrimSuffix(u.String(), "/"), nil
}

// onLoopback reports whether what is sent to HOST or HOST:PORT stays on this machine.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// command returns a command's work as cobra wants it: connected, and with a context that ends after --timeout, and later by
// what extra returns if the call itself is meant to wait.
func (a *app) command(extra func() time.Duration, work func(context.Context, *connection, []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		conn, err := a.connect()
		if err != nil {
			return err
		}
		limit := a.timeout
		if extra != nil {
			limit += extra()
		}
		return a.withinLimit(c.Context(), limit, func(ctx context.Context) error { return work(ctx, conn, args) })
	}
}

// within lets calls take --timeout.
func (a *app) within(ctx context.Context, calls func(context.Context) error) error {
	return a.withinLimit(ctx, a.timeout, calls)
}

func (a *app) withinLimit(ctx context.Context, limit time.Duration, calls func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &timeoutError{limit})
	defer cancel()
	return a.describe(ctx, calls(ctx))
}

// timeoutError is the cause of a context that --timeout ended.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string { return fmt.Sprintf("no answer within %v", e.after) }

// Is makes the error a context.DeadlineExceeded, as which contexts report it.
func (e *timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// describe says in words what the way to the server made of a call.
func (a *app) describe(ctx context.Context, err error) error {
	if _, stopped := errors.AsType[interruption](context.Cause(ctx)); err == nil || stopped {
		return err
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return &codedError{codeUnavailable, fmt.Sprintf(
			"no server answers at %s (%s); start one with 'belfry serve', or name another with --server or BELFRY_SERVER", a.server, dial.Err)}
	}
	if why := misdirected(err); why != "" {
		return &codedError{codeUnavailable, fmt.Sprintf("nothing was sent to %s, because %s", a.server, why)}
	}
	if text := a.elsewhere(ctx, err); text != "" {
		return &codedError{codeUnavailable, text}
	}
	if late, ok := errors.AsType[*timeoutError](context.Cause(ctx)); ok && !refused(err) {
		return &codedError{codeUnknown, late.Error() + " from " + a.server + unknownHint(err)}
	}
	if fault, ok := fault.FromConnect(err); ok && fault.Reason == belfryv1.Reason_REASON_REQUEST_EXPIRED {
		return &codedError{codeUnknown, errRequestExpired.Error() + "; look whether an earlier call was done, then make it without --request-id"}
	}
	if connect.CodeOf(err) == connect.CodeUnauthenticated && a.tokenFile == "" {
		return &codedError{codeForbidden, explain(err) + "; the token's file is named with --token-file or BELFRY_TOKEN_FILE"}
	}
	if outcomeUnknown(err) {
		return &codedError{codeUnknown, explain(err) + unknownHint(err)}
	}
	return err
}

// unknownHint tells how to find out what became of a call.
func unknownHint(err error) string {
	var request *requestError
	if !errors.As(err, &request) || request.id == "" {
		return ""
	}
	return "; whether it was done is unknown: repeat it within 5 minutes with --request-id " + request.id
}

// requestError is the error of a call together with the request id that makes its repeat safe.
type requestError struct {
	id  string
	err error
}

func (e *requestError) Error() string { return e.err.Error() }

func (e *requestError) Unwrap() error { return e.err }

// withRequest remembers under which id a call failed.
func withRequest(id string, err error) error {
	if err == nil {
		return nil
	}
	return &requestError{id, err}
}
