package client

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/rpc/portcheck"
)

// answering answers all calls with a page, as a proxy or some other server does, and counts them.
type answering struct {
	status  int
	content string
	calls   int
}

func (a *answering) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.calls++
	w.Header().Set("Content-Type", a.content)
	w.Header().Set("Location", "/elsewhere")
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, "<h1>no</h1>")
}

// TestForeignResponses: after a temporary one the call is repeated until the context ends, and the
// error names the response. Any other one fails the first attempt.
func TestForeignResponses(t *testing.T) {
	const html, json = "text/html; charset=utf-8", "application/json"
	for _, try := range []struct {
		status    int
		content   string
		temporary bool
		code      connect.Code
		unknown   bool
	}{
		{500, html, true, connect.CodeUnavailable, true},
		{502, html, true, connect.CodeUnavailable, true},
		{503, html, true, connect.CodeUnavailable, true},
		{504, "", true, connect.CodeUnavailable, true},
		{522, html, true, connect.CodeUnavailable, true},
		{408, html, true, connect.CodeUnavailable, true},
		{429, html, true, connect.CodeUnavailable, false},
		{501, html, false, connect.CodeUnimplemented, false},
		{505, html, false, connect.CodeUnimplemented, false},
		{404, "text/plain", false, connect.CodeUnimplemented, false},
		{405, html, false, connect.CodeUnimplemented, false},
		{401, html, false, connect.CodeUnauthenticated, false},
		{403, html, false, connect.CodePermissionDenied, true},
		{413, html, false, connect.CodeResourceExhausted, false},
		{200, html, false, connect.CodeUnimplemented, true},
		{201, html, false, connect.CodeUnimplemented, true},
		{202, "text/plain", false, connect.CodeUnimplemented, true},
		{206, html, false, connect.CodeUnimplemented, true},
		{302, html, false, connect.CodeUnimplemented, false},
		{499, html, false, connect.CodeUnimplemented, true},
		{400, json, false, connect.CodeUnimplemented, false},
		{401, json, false, connect.CodeUnauthenticated, false},
		{403, json, false, connect.CodePermissionDenied, true},
		{404, json, false, connect.CodeUnimplemented, false},
		{409, json, false, connect.CodeUnimplemented, true},
		{429, json, true, connect.CodeUnavailable, false},
		{503, json, true, connect.CodeUnavailable, true},
	} {
		t.Run(fmt.Sprint(try.status, try.content), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, server := newPipeNet(), &answering{status: try.status, content: try.content}
				c := start(t, n, []Option{Coalescing{Off: true}}, nil)
				n.serve(t, "n1:7400", server)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := c.Put(ctx, "q", nil)
				if ended := errors.Is(err, context.DeadlineExceeded); ended != try.temporary ||
					(server.calls == 1) == try.temporary {
					t.Errorf("after %d calls: %v", server.calls, err)
				}
				typed, ok := errors.AsType[*portcheck.ForeignResponse](err)
				if !ok || typed.Status != try.status || !strings.Contains(err.Error(), "HTTP "+typed.What) {
					t.Fatalf("the error does not name the answer: %v", err)
				}
				if errors.Is(err, ErrUnknownOutcome) != try.unknown {
					t.Errorf("unknown is %v: %v", !try.unknown, err)
				}
				if e := failure.Of(typed); e.Code != try.code {
					t.Errorf("code %v, want %v", e.Code, try.code)
				}
				if advice := strings.Contains(err.Error(), "not that of a Belfry server"); advice == try.temporary {
					t.Errorf("says that the address is wrong: %v; %v", advice, err)
				}
			})
		})
	}
}

// TestReadsMeetForeignResponses: a call that changes nothing has no unknown outcome.
func TestReadsMeetForeignResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newPipeNet()
		c := start(t, n, nil, nil)
		n.serve(t, "n1:7400", &answering{status: 502, content: "text/html"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Get(ctx, "q", "x")
		var typed *Error
		if !errors.As(err, &typed) || typed.Outcome != OutcomeNotApplied ||
			!strings.Contains(err.Error(), "HTTP 502 Bad Gateway text/html") {
			t.Errorf("%v", err)
		}
	})
}

// TestFailedHandshakeSendsNothing: without TLS on both sides no call leaves, and none is tried
// again.
func TestFailedHandshakeSendsNothing(t *testing.T) {
	plain := httptest.NewServer(NewFake().Handler())
	t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(NewFake().Handler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it is told that its certificate is refused
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)
	for name, url := range map[string]string{
		"no TLS": strings.Replace(plain.URL, "http:", "https:", 1), "unknown certificate": secure.URL,
	} {
		t.Run(name, func(t *testing.T) {
			c, err := New(url, Coalescing{Off: true})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			_, err = c.Put(ctx, "q", nil)
			var typed *Error
			if !errors.As(err, &typed) || ctx.Err() != nil || typed.Outcome != OutcomeNotApplied ||
				errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestErrorsInJSON: what a gateway says in JSON is no refusal of Belfry's, since it may have been
// said after the call was carried out.
func TestErrorsInJSON(t *testing.T) {
	detail := func(domain string) string {
		info, err := proto.Marshal(&errdetails.ErrorInfo{
			Domain: domain, Reason: "FORBIDDEN", Metadata: map[string]string{"outcome": "NOT_APPLIED"},
		})
		if err != nil {
			t.Fatal(err)
		}
		return `{"code":"permission_denied","message":"no","details":[{"type":"google.rpc.RetryInfo","value":""},` +
			`{"type":"google.rpc.ErrorInfo","value":"` + base64.StdEncoding.EncodeToString(info) + `"}]}`
	}
	for body, unknown := range map[string]bool{
		`{"message":"Forbidden"}`: true, `"Forbidden"`: true, ``: true, `{"code":"permission_denied"}`: true,
		detail("gateway"): true,
		`{"code":"permission_denied","details":[{"type":"google.rpc.ErrorInfo","value":"?"}]}`: true,
		detail("belfry"): false,
	} {
		t.Run(body, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newPipeNet()
				c := start(t, n, []Option{Coalescing{Off: true}}, nil)
				n.serve(t, "n1:7400", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusForbidden)
					_, _ = io.WriteString(w, body)
				}))
				_, err := c.Put(t.Context(), "q", nil)
				if err == nil || errors.Is(err, ErrUnknownOutcome) != unknown ||
					errors.Is(err, Reason(failure.Forbidden)) == unknown {
					t.Errorf("unknown is %v: %v", !unknown, err)
				}
			})
		})
	}
}
