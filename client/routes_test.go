package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/client/internal/placement"
	"github.com/belfrydb/belfry/client/internal/routes"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// hosts are servers by their addresses. A call to a missing one is refused.
type hosts struct {
	mu    sync.Mutex
	all   map[string]*mapped
	calls map[string]int // of other methods than GetRouting, by address
}

// mapped is a fake that has a map of the shards.
type mapped struct {
	*Fake
	routing *belfryv1.GetRoutingResponse
	asked   chan int // takes how many queues each question is about; may be nil
	refuse  string   // the queue of which it will not hear
	refused atomic.Int32

	mu      sync.Mutex
	batches [][]string // the queues of each batch of puts or acks
}

func (m *mapped) GetRouting(_ context.Context, req *belfryv1.GetRoutingRequest) (*belfryv1.GetRoutingResponse, error) {
	if m.asked != nil {
		m.asked <- len(req.GetQueues())
	}
	if m.refuse != "" && slices.Contains(req.GetQueues(), m.refuse) {
		m.refused.Add(1)
		return nil, refusal(connect.CodeInvalidArgument, "INVALID", "NOT_APPLIED", 0)
	}
	return m.routing, nil
}

// Do implements connect.HTTPClient.
func (h *hosts) Do(req *http.Request) (*http.Response, error) {
	h.mu.Lock()
	server := h.all[req.URL.Host]
	if server != nil && !strings.HasSuffix(req.URL.Path, "/GetRouting") {
		h.calls[req.URL.Host]++
	}
	h.mu.Unlock()
	if server == nil {
		return nil, &net.OpError{Op: "dial", Err: errors.New("nobody is there")}
	}
	_, handler := belfryv1connect.NewQueueServiceHandler(server)
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, req)
	return answer.Result(), nil
}

// take returns how many calls each server had, and forgets them.
func (h *hosts) take() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.calls
	h.calls = map[string]int{}
	return calls
}

// remove ends a server.
func (h *hosts) remove(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, address)
}

// newHosts makes a client of a:1. Each address serves the same jobs and the map that spoil left of
// one in which b:2 leads both shards.
func newHosts(t *testing.T, spoil func(address string, m *belfryv1.GetRoutingResponse)) (*hosts, *Client) {
	t.Helper()
	h, fake := &hosts{all: map[string]*mapped{}, calls: map[string]int{}}, NewFake()
	for _, address := range []string{"a:1", "b:2"} {
		m := &belfryv1.GetRoutingResponse{
			HashVersion: placement.HashVersion, Shards: 2, Leaders: []string{"b:2", "b:2"}, ClusterId: "c1",
		}
		spoil(address, m)
		h.all[address] = &mapped{Fake: fake, routing: m}
	}
	c, err := New("a:1", WithHTTPClient(h))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return h, c
}

// use makes one call of each kind and leaves no job.
func use(t *testing.T, c *Client) {
	t.Helper()
	if _, err := c.Put(t.Context(), "q", []byte("x")); err != nil {
		t.Fatal(err)
	}
	jobs, err := c.Reserve(t.Context(), ReserveOptions{Queues: []string{"q"}, Max: 2})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%v, %v", jobs, err)
	}
	if err := jobs[0].Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// TestCallsGoToTheLeader once the client knows it, and to any server where it does not, or where
// the leader makes no sense.
func TestCallsGoToTheLeader(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(address string, m *belfryv1.GetRoutingResponse)
		want  string
	}{
		{"a leader", func(string, *belfryv1.GetRoutingResponse) {}, "b:2"},
		{"no leader", func(_ string, m *belfryv1.GetRoutingResponse) { m.Leaders = []string{"", ""} }, "a:1"},
		{"nobody there", func(_ string, m *belfryv1.GetRoutingResponse) { m.Leaders = []string{"c:3", "c:3"} }, "a:1"},
		{"another cluster's", func(address string, m *belfryv1.GetRoutingResponse) { m.ClusterId = address }, "a:1"},
		{"no address", func(_ string, m *belfryv1.GetRoutingResponse) { m.Leaders = []string{"0.0.0.0:7400", "x"} }, "a:1"},
		{"another hash", func(_ string, m *belfryv1.GetRoutingResponse) { m.HashVersion = 2 }, "a:1"},
		{"no sense", func(_ string, m *belfryv1.GetRoutingResponse) { m.Shards = 3 }, "a:1"},
		{"several partitions", func(_ string, m *belfryv1.GetRoutingResponse) {
			m.Partitions = map[string]uint32{"q": 2}
		}, "a:1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, c := newHosts(t, tt.spoil)
				use(t, c)
				if calls := h.take(); calls["a:1"] == 0 {
					t.Errorf("the first calls: %v", calls)
				}
				use(t, c)
				if calls := h.take(); calls[tt.want] < 2 || tt.want == "a:1" && len(calls) > 1 {
					t.Errorf("the next calls: %v", calls)
				}
			})
		})
	}
}

// TestALeaderThatFails is left at once, for any server, and goes unused until it answers again.
func TestALeaderThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, c := newHosts(t, func(string, *belfryv1.GetRoutingResponse) {})
		use(t, c)
		use(t, c)
		gone := h.all["b:2"]
		h.remove("b:2")
		h.take()
		began := time.Now()
		use(t, c)
		if took, calls := time.Since(began), h.take(); took > time.Second || calls["a:1"] != 3 {
			t.Errorf("after %v: %v", took, calls)
		}
		h.mu.Lock()
		h.all["b:2"] = gone
		h.mu.Unlock()
		pause := time.NewTimer(routes.Fresh + time.Second)
		<-pause.C
		use(t, c) // has it found again
		h.take()
		use(t, c)
		if calls := h.take(); calls["b:2"] != 2 { // the fake's leases tell no shard
			t.Errorf("when it is back: %v", calls)
		}
	})
}

// TestManyQueues are asked for a few at a time, once in a while, and meanwhile calls go where they
// went before.
func TestManyQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, c := newHosts(t, func(string, *belfryv1.GetRoutingResponse) {})
		asked := make(chan int, 1000)
		h.all["a:1"].asked = asked
		round := func() (questions, queues int) {
			for i := range 5 * routes.AskMax {
				if _, err := c.Put(t.Context(), fmt.Sprint("q", i), []byte("x")); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			for len(asked) > 0 {
				n := <-asked
				if n > routes.AskMax {
					t.Errorf("a question is about %d queues", n)
				}
				questions, queues = questions+1, queues+n
			}
			return questions, queues
		}
		learn := func() {
			for range 6 {
				if questions, _ := round(); questions > 1 {
					t.Errorf("%d questions at a time", questions)
				}
				<-time.NewTimer(routes.Gap).C
			}
		}
		learn()
		h.take()
		if questions, _ := round(); questions > 0 {
			t.Errorf("%d questions about what is known", questions)
		}
		if calls := h.take(); calls["a:1"] > 0 {
			t.Errorf("once all are known: %v", calls)
		}
		<-time.NewTimer(routes.Fresh).C
		learn() // anew
		if calls := h.take(); calls["a:1"] > 0 {
			t.Errorf("while they are asked for again: %v", calls)
		}
		if _, queues := round(); queues > 0 {
			t.Errorf("%d queues asked for, which were a moment ago", queues)
		}
	})
}

// TestTheMapOutlivesItsServer: while no map comes, calls go where the last one said, and another
// server is asked.
func TestTheMapOutlivesItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, c := newHosts(t, func(string, *belfryv1.GetRoutingResponse) {})
		use(t, c)
		h.remove("a:1")
		ctx, cancel := context.WithTimeout(t.Context(), 10*routes.Fresh)
		defer cancel()
		for range 10 {
			<-time.NewTimer(routes.Fresh / 2).C
			h.take()
			if _, err := c.Put(ctx, "q", []byte("x")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if calls := h.take(); calls["b:2"] != 1 {
				t.Fatalf("the calls of a put: %v", calls)
			}
		}
	})
}

// TestAQueueThatIsRefused keeps no map away from the others: it is asked for once at most.
func TestAQueueThatIsRefused(t *testing.T) {
	for _, byPut := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h, c := newHosts(t, func(string, *belfryv1.GetRoutingResponse) {})
			h.all["a:1"].refuse = "bad"
			h.all["a:1"].entryFault = func(queue string, _ int) *belfryv1.EntryError {
				if byPut && queue == "bad" {
					return entryOf(refusal(connect.CodeInvalidArgument, "INVALID", "NOT_APPLIED", 0))
				}
				return nil
			}
			if _, err := c.Put(t.Context(), "bad", []byte("x")); (err != nil) != byPut {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := h.all["a:1"].refused.Load(); got > 0 == byPut {
				t.Errorf("a queue that a put was refused for: %v, %d questions about it", byPut, got)
			}
			<-time.NewTimer(routes.Pause).C
			use(t, c)
			h.take()
			use(t, c)
			if calls := h.take(); calls["b:2"] != 2 {
				t.Errorf("calls about another queue: %v", calls)
			}
		})
	}
}
