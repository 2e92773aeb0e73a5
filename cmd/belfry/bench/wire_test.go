package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// wireTo starts a server and returns a wire to it, and how many connections the server has seen.
func wireTo(t *testing.T, handler http.HandlerFunc) (*wire, string, *atomic.Int64) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	seen := &atomic.Int64{}
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			seen.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{server: address}
	t.Cleanup(w.close)
	return w, server.URL, seen
}

// TestWireIsOneConnection: calls of all sizes, refused ones among them, follow each other on one
// connection.
func TestWireIsOneConnection(t *testing.T) {
	w, address, seen := wireTo(t, func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if len(body) == 0 {
			rw.WriteHeader(http.StatusTeapot)
		}
		fmt.Fprintf(rw, "%s %s", r.URL.Path, body)
	})
	for i, size := range []int{1, 0, 100_000, 3} {
		text := strings.Repeat("x", size)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/call", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		response, err := w.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		if err != nil || string(got) != "/call "+text || (response.StatusCode == http.StatusOK) != (size > 0) {
			t.Errorf("call %d: status %d, %d bytes, %v", i, response.StatusCode, len(got), err)
		}
	}
	if got := seen.Load(); got != 1 {
		t.Errorf("%d connections", got)
	}
}

// TestBrokenWire: a server that hangs up is an error of the call, and so is one that is not there.
func TestBrokenWire(t *testing.T) {
	w, address, _ := wireTo(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Do(request); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a server that hung up: %v", err)
	}
	if _, err := (&wire{server: w.server, closed: true}).Do(request); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a wire that was closed before its first call: %v", err)
	}
}

// TestInterruptedRun: the end of the context ends a call that the server does not answer.
func TestInterruptedRun(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil { // else the server does not look whether the client is there
			t.Error(err)
		}
		interrupt()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	_, err := Run(ctx, Config{
		URL: server.URL, Workload: "put", Connections: 1, Callers: 1, Batch: 1, Jobs: 1, RatePerSecond: 1, BodyBytes: 8,
		Queues: 1,
	})
	if connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("got %v", err)
	}
}

// TestWireCarriesConnect: what the server refuses arrives as an error of Connect.
func TestWireCarriesConnect(t *testing.T) {
	w, address, _ := wireTo(t, func(rw http.ResponseWriter, r *http.Request) {
		if err := connect.NewErrorWriter().Write(rw, r,
			connect.NewError(connect.CodeResourceExhausted, errors.New("full"))); err != nil {
			t.Error(err)
		}
	})
	calls := connect.NewClient[belfryv1.PutRequest, belfryv1.PutResponse](w, address+"/put", withoutGzip())
	for range 2 {
		_, err := calls.CallUnary(t.Context(), connect.NewRequest(&belfryv1.PutRequest{Queue: "q"}))
		if connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("got %v", err)
		}
	}
}
