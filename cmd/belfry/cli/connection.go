package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/belfrydb/belfry/rpc/fault"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/access/certs"
	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/client"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/utf8field"
)

// Connection is the way to a server, or to the first of several that can be reached.
type Connection struct {
	// URL is the base of the first server, without a slash at its end. A request for it that HTTP sends
	// may go to another one.
	URL string
	// HTTP carries the token and believes the authorities that the flags name. It follows no redirect.
	HTTP      *http.Client
	Queues    belfryv1connect.QueueServiceClient
	Admin     belfryv1connect.AdminServiceClient
	Schedules belfryv1connect.ScheduleServiceClient

	servers *serverList
}

// InUse returns the base URL of the server that the last request went to.
func (c *Connection) InUse() string {
	u, _ := c.servers.pick()
	return u.String()
}

// dialTimeoutOfSeveral is how long a connection to one of several servers may take.
const dialTimeoutOfSeveral = 3 * time.Second

// Connect returns the way to the server that the flags name. Nothing is sent yet.
func (a *App) Connect() (*Connection, error) {
	urls, err := a.serverURLs()
	if err != nil {
		return nil, err
	}
	servers := &serverList{urls: urls}
	a.servers = servers
	secure, err := a.ClientTLS()
	if err != nil {
		return nil, err
	}
	token, err := a.Token()
	if err != nil {
		return nil, err
	}
	dialTimeout := a.Timeout
	if len(urls) > 1 { // there must be time for the others
		dialTimeout = min(dialTimeout/time.Duration(len(urls)), dialTimeoutOfSeveral)
	}
	caller := &http.Client{Transport: WithToken(token, &failover{servers, &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     secure,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConnsPerHost: 4,
	}}), CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // what it leads to has no business with the token
	}}
	base := urls[0].String()
	calls := connect.WithInterceptors(utf8field.Interceptor(notUTF8),
		retryInterceptor(100*time.Millisecond, 2*time.Second, servers))
	return &Connection{
		URL:       base,
		HTTP:      caller,
		Queues:    belfryv1connect.NewQueueServiceClient(caller, base, calls),
		Admin:     belfryv1connect.NewAdminServiceClient(caller, base, calls),
		Schedules: belfryv1connect.NewScheduleServiceClient(caller, base, calls),

		servers: servers,
	}, nil
}

// notUTF8 is the refusal of a call with a text that cannot be sent, as a server would write it.
func notUTF8(field string) error { return fault.Invalid(field, "not valid UTF-8").Wire() }

// Token reads the token that calls carry; empty for none.
func (a *App) Token() (string, error) {
	if a.tokenFile == "" {
		return "", nil
	}
	data, err := os.ReadFile(a.tokenFile)
	if err != nil {
		return "", Usagef("--token-file: %s", err)
	}
	text := strings.TrimSpace(string(data))
	if _, _, err := tokens.Parse(text); err != nil {
		return "", Usagef("--token-file: in %s %s", a.tokenFile, err)
	}
	return text, nil
}

// WithToken returns a transport whose requests carry a token, unless that is empty.
func WithToken(token string, inner http.RoundTripper) http.RoundTripper {
	return &bearerTransport{token, inner}
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

// ClientTLS returns the settings for https; nil for the system's.
func (a *App) ClientTLS() (*tls.Config, error) {
	if a.tlsCA == "" {
		return nil, nil
	}
	authorities, err := certs.ReadAuthorities(a.tlsCA)
	if err != nil {
		return nil, Usagef("--tls-ca: %s", err)
	}
	return &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS13}, nil
}

// SDK returns a client of the SDK for servers, which must be closed.
func (a *App) SDK(servers string) (*client.Client, error) {
	secure, err := a.ClientTLS()
	if err != nil {
		return nil, err
	}
	options := []client.Option{client.WithTLS(secure)}
	if a.tokenFile != "" {
		if _, err := a.Token(); err != nil {
			return nil, err
		}
		options = append(options, client.WithTokenFile(a.tokenFile))
	}
	c, err := client.New(servers, options...)
	if err != nil {
		return nil, Usagef("--server: %s", err)
	}
	return c, nil
}

// OnLoopback reports whether what is sent to HOST or HOST:PORT stays on this machine.
func OnLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Command returns a command's work as cobra wants it: connected, and with a context that ends after
// --timeout, and later by what extra returns if the call itself is meant to wait.
func (a *App) Command(extra func() time.Duration,
	work func(context.Context, *Connection, []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		conn, err := a.Connect()
		if err != nil {
			return err
		}
		limit := a.Timeout
		if extra != nil {
			limit += extra()
		}
		return a.WithinLimit(c.Context(), limit, func(ctx context.Context) error { return work(ctx, conn, args) })
	}
}

// Within lets calls take --timeout.
func (a *App) Within(ctx context.Context, calls func(context.Context) error) error {
	return a.WithinLimit(ctx, a.Timeout, calls)
}

// WithinLimit is Within with a limit of its own instead of --timeout.
func (a *App) WithinLimit(ctx context.Context, limit time.Duration, calls func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, NoAnswer(limit))
	defer cancel()
	return a.Describe(ctx, calls(ctx))
}

// NoAnswer returns the cause of a context that ends because a server did not answer in time. It is
// a context.DeadlineExceeded.
func NoAnswer(within time.Duration) error { return &TimeoutError{within} }

// TimeoutError is the cause of a context that --timeout ended.
type TimeoutError struct{ after time.Duration }

func (e *TimeoutError) Error() string { return fmt.Sprintf("no answer within %v", e.after) }

// Is makes the error a context.DeadlineExceeded, as which contexts report it.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// Describe says in words what the way to the server made of a call.
func (a *App) Describe(ctx context.Context, err error) error {
	if _, stopped := errors.AsType[Interruption](context.Cause(ctx)); err == nil || stopped {
		return err
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		names, why := a.serverNames(), dial.Err.Error()
		if dial.Addr != nil && !strings.Contains(names, dial.Addr.String()) {
			why = dial.Addr.String() + ": " + why
		}
		return ExitWith(CodeUnavailable, fmt.Sprintf(
			"no server answers at %s (%s); start one with 'belfry serve', or name another with --server or BELFRY_SERVER",
			names, why))
	}
	if why := Misdirected(err); why != "" {
		return ExitWith(CodeUnavailable, fmt.Sprintf("nothing was sent to %s, because %s", a.serverNames(), why))
	}
	if text := a.elsewhere(ctx, err); text != "" {
		return ExitWith(CodeUnavailable, text)
	}
	if late, ok := errors.AsType[*TimeoutError](context.Cause(ctx)); ok && !refused(err) {
		return ExitWith(CodeUnknown, late.Error()+" from "+a.serverNames()+unknownHint(err))
	}
	if fault, ok := fault.FromConnect(err); ok && fault.Reason == belfryv1.Reason_REASON_REQUEST_EXPIRED {
		return ExitWith(CodeUnknown,
			ErrRequestExpired.Error()+"; look whether an earlier call was done, then make it without --request-id")
	}
	if connect.CodeOf(err) == connect.CodeUnauthenticated && a.tokenFile == "" {
		return ExitWith(CodeForbidden, Explain(err)+"; the token's file is named with --token-file or BELFRY_TOKEN_FILE")
	}
	if OutcomeUnknown(err) {
		return ExitWith(CodeUnknown, Explain(err)+unknownHint(err))
	}
	return err
}
