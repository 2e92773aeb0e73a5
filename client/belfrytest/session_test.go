package belfrytest_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
)

// A relay passes connections on to a server, and keeps the first line of each.
type relay struct {
	net.Listener
	target string

	mu    sync.Mutex
	lines []string
}

// relayTo runs a relay until the test ends.
func relayTo(t *testing.T, target string) *relay {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l, target: target}
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			passing.Go(func() { r.pass(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		passing.Wait()
	})
	return r
}

func (r *relay) pass(conn net.Conn) {
	defer conn.Close()
	onward, err := net.Dial("tcp", r.target) //nolint:noctx // it ends with the server
	if err != nil {
		return
	}
	defer onward.Close()
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil {
		return
	}
	r.mu.Lock()
	r.lines = append(r.lines, strings.TrimSpace(line))
	r.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(conn, onward)
		_ = conn.Close()
	})
	_, _ = io.Copy(onward, io.MultiReader(strings.NewReader(line), in))
	_ = onward.Close()
	back.Wait()
}

// TestSessionsOfAServer: a client's hot calls share one connection to a real server, which stops
// although a poll waits and the client is there.
func TestSessionsOfAServer(t *testing.T) {
	server, err := belfrytest.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := relayTo(t, strings.TrimPrefix(server.URL, "http://"))
	c, err := client.New(r.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, err := c.PutBatch(t.Context(), []client.Put{{Queue: "orders"}, {Queue: "orders"}}); err != nil {
				t.Error(err)
			}
			jobs, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{"orders"}, Max: 2, Wait: time.Minute})
			if err != nil {
				t.Error(err)
			}
			for _, job := range jobs {
				if err := job.Ack(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	r.mu.Lock()
	sessions := 0
	for _, line := range r.lines {
		if line == "GET /belfry.v1/session HTTP/1.1" {
			sessions++
		}
	}
	if sessions != 1 || len(r.lines) > 3 {
		t.Errorf("%d sessions, connections began with %q", sessions, r.lines)
	}
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	all.Go(func() {
		_, _ = c.Reserve(ctx, client.ReserveOptions{Queues: []string{"none"}, Max: 2, Wait: time.Minute})
	})
	// by now the poll may be on its way
	if _, err := c.PutBatch(t.Context(), []client.Put{{Queue: "orders"}}); err != nil {
		t.Error(err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	cancel()
	all.Wait()
}

// TestAServerNotesTheName: the jobs that come by a session and to a worker are held by the client's
// name.
func TestAServerNotesTheName(t *testing.T) {
	server, err := belfrytest.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c, err := client.New(server.URL, client.WithName("mailer-7"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	heldBy := func(way string) {
		job, err := c.Get(t.Context(), "mail", way)
		if err != nil || job.Client != "mailer-7@127.0.0.1" {
			t.Errorf("%s: the job is held by %+v, %v", way, job, err)
		}
	}
	put := func(way string) {
		if _, err := c.Put(t.Context(), "mail", nil, client.ID(way)); err != nil {
			t.Fatal(err)
		}
	}
	put("session")
	jobs, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{"mail"}, Wait: time.Minute})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	heldBy("session")
	ctx, stop := context.WithCancel(t.Context())
	put("worker")
	if err := (client.Worker{Queues: []string{"mail"}}).Run(ctx, c, func(context.Context, *client.Job) error {
		heldBy("worker")
		stop()
		return nil
	}); err != nil && ctx.Err() == nil {
		t.Error(err)
	}
}
