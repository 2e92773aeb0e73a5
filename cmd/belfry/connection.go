package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/rpc"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
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
	base, err := serverURL(a.server)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: a.timeout}).DialContext,
		MaxIdleConnsPerHost: 4,
	}}
	retry := connect.WithInterceptors(retryInterceptor(100*time.Millisecond, 2*time.Second))
	return &connection{
		url:    base,
		http:   client,
		queues: belfryv1connect.NewQueueServiceClient(client, base, retry),
		admin:  belfryv1connect.NewAdminServiceClient(client, base, retry),
	}, nil
}

// serverURL completes what a person writes: host:port means http.
func serverURL(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", usagef("--server: %s", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", usagef("--server: want http://HOST:PORT, have %q", text)
	}
	return strings.TrimSuffix(u.String(), "/"), nil
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
	if fault, ok := rpc.FaultOf(err); ok && fault.Reason == belfryv1.Reason_REASON_REQUEST_EXPIRED {
		return &codedError{codeUnknown, errRequestExpired.Error() + "; look whether an earlier call was done, then make it without --request-id"}
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
