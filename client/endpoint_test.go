package client

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A crowd of callers on a cold client must not open a connection each.
func TestCallersShareConnections(t *testing.T) {
	fake := NewFake()
	var mu sync.Mutex
	peers := make(map[string]int)
	handler := fake.Handler()
	c := serveSocket(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/Reserve") {
			mu.Lock()
			peers[r.RemoteAddr]++
			mu.Unlock()
		}
		if r.ProtoMajor != 2 {
			t.Errorf("a request over %s", r.Proto)
		}
		handler.ServeHTTP(w, r)
	}))
	const callers = 300
	var all sync.WaitGroup
	for range callers {
		all.Go(func() { // two jobs each, so that each call is a poll of its own that waits
			o := ReserveOptions{Queues: []string{"q"}, Max: 2, Wait: 300 * time.Millisecond}
			if jobs, err := c.Reserve(t.Context(), o); err != nil || len(jobs) > 0 {
				t.Errorf("%v, %v", jobs, err)
			}
		})
	}
	all.Wait()
	calls := 0
	for _, n := range peers {
		calls += n
	}
	if len(peers) > 3 || calls != callers {
		t.Errorf("%d calls came over %d connections", calls, len(peers))
	}
}
