package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// unreachable is an address at which no server answers. A port that was free a moment ago may be
// another test's now.
const unreachable = "127.0.0.1:1"

// TestFirstReachableServer: a request goes to the first server that can be reached, with its whole
// body, and so does the next one.
func TestFirstReachableServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", r.URL.Path, body)
	}))
	t.Cleanup(server.Close)
	a := &App{Server: unreachable + ", " + server.Listener.Addr().String() + "," + unreachable, Timeout: time.Minute}
	conn, err := a.Connect()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		body := &closings{Reader: io.MultiReader(strings.NewReader("all "), strings.NewReader("of it"))}
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, conn.URL+"/echo", body)
		response, err := conn.HTTP.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if string(got) != "/echo all of it" || body.closed != 1 {
			t.Errorf("it was sent %q, and the body was closed %d times", got, body.closed)
		}
	}
	if at, _ := a.directAddress(); at != server.Listener.Addr().String() || conn.InUse() != server.URL {
		t.Errorf("%s and %s are in use", at, conn.InUse())
	}
}

// closings counts how often a body is closed.
type closings struct {
	io.Reader
	closed int
}

// Close implements io.Closer.
func (c *closings) Close() error { c.closed++; return nil }

// TestNoReachableServer: each server is tried once, and all are named.
func TestNoReachableServer(t *testing.T) {
	a := &App{Server: unreachable + ",127.0.0.1:2", Timeout: time.Minute, System: &System{}}
	conn, err := a.Connect()
	if err != nil {
		t.Fatal(err)
	}
	err = a.Within(t.Context(), func(ctx context.Context) error {
		_, err := conn.Queues.Put(ctx, &belfryv1.PutRequest{})
		return err
	})
	if ExitCode(t.Context(), err) != CodeUnavailable ||
		!strings.HasPrefix(err.Error(), "no server answers at 127.0.0.1:1, 127.0.0.1:2 (connect: ") {
		t.Errorf("%v", err)
	}
}

// TestMessageNamesThePort that was tried, where the command line does not.
func TestMessageNamesThePort(t *testing.T) {
	for server, want := range map[string]string{
		"127.0.0.1": "127.0.0.1:7400", "http://localhost:1": "http://localhost:1",
		"127.0.0.1, 127.0.0.1:1": "127.0.0.1:7400, 127.0.0.1:1",
	} {
		if got := (&App{Server: server}).serverNames(); got != want {
			t.Errorf("%q is named %q, want %q", server, got, want)
		}
	}
}

// TestRepeatAtAnotherServer: what one server refuses for a moment, another one may do.
func TestRepeatAtAnotherServer(t *testing.T) {
	for _, reason := range []string{"NO_LEADER", "SHUTTING_DOWN"} {
		t.Run(reason, func(t *testing.T) {
			a := &App{Server: "n1,n2"}
			urls, err := a.serverURLs()
			if err != nil {
				t.Fatal(err)
			}
			servers := &serverList{urls: urls}
			call := retryInterceptor(0, 0, servers)(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
				if at, _ := servers.pick(); at.Hostname() == "n1" {
					return nil, refusalOf(connect.CodeUnavailable, reason, "not here")
				}
				return connect.NewResponse(&belfryv1.PutResponse{}), nil
			})
			if _, err := call(t.Context(), connect.NewRequest(&belfryv1.PutRequest{})); err != nil {
				t.Error(err)
			}
		})
	}
}
