package client

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/client/internal/transport"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/stream"
)

// TestCallsCarryTheName: calls by Connect and requests for sessions say who calls.
func TestCallsCarryTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &sessionServer{Fake: NewFake()}
		var mu sync.Mutex
		names := map[string]string{}
		n := newPipeNet()
		n.serve(t, "127.0.0.1:7400", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			names[r.URL.Path] = r.Header.Get("Belfry-Client")
			mu.Unlock()
			fake.ServeHTTP(w, r)
		}))
		for name, want := range map[string]string{"": transport.DefaultName(), "mailer-7": "mailer-7"} {
			c, err := New("http://127.0.0.1:7400", WithDialer(n.dial), WithName(name))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Put(t.Context(), "q", nil); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Get(t.Context(), "q", "nobody"); err == nil {
				t.Error("there is a job of nobody's")
			}
			mu.Lock()
			for _, path := range []string{stream.SessionPath, belfryv1connect.QueueServiceGetProcedure} {
				if names[path] != want {
					t.Errorf("%s came from %q, want %q", path, names[path], want)
				}
			}
			mu.Unlock()
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestNames: the default name is valid, and a name that servers would refuse is refused at once.
func TestNames(t *testing.T) {
	name := transport.DefaultName()
	if transport.CheckName(name) != nil || !strings.HasSuffix(name, fmt.Sprintf("-%d", os.Getpid())) {
		t.Errorf("the default is %q", name)
	}
	for name, want := range map[string]string{
		strings.Repeat("n", 65): "WithName: 65 bytes; the limit is 64", "a\nb": "cannot be printed",
		"\xff": "cannot be printed",
	} {
		if _, err := New("http://127.0.0.1:7400", WithName(name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
}
