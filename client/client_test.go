package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
)

// start makes a client for fakes at n1, n2, … over a network in memory.
func start(t testing.TB, n *pipeNet, opts []Option, fakes ...*Fake) *Client {
	t.Helper()
	var addrs []string
	for i, fake := range fakes {
		host := fmt.Sprintf("n%d:7400", i+1)
		addrs = append(addrs, "http://"+host)
		if fake != nil {
			n.serve(t, host, fake.Handler())
		}
	}
	c, err := New(strings.Join(addrs, ","), append(opts, WithHTTPClient(n.httpClient(t)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// sizes gives the sizes of the calls of one method, in order of arrival.
func (f *Fake) sizes(method string) []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	var sizes []int
	for _, call := range f.calls {
		if call.method == method {
			sizes = append(sizes, call.size)
		}
	}
	return sizes
}

func TestLifeOfAJob(t *testing.T) {
	for _, mode := range []Coalescing{{}, {Off: true}, {MaxDelay: 3 * time.Millisecond}} {
		t.Run(fmt.Sprintf("%+v", mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				c := start(t, newPipeNet(), []Option{mode}, NewFake())
				began := time.Now()
				put, err := c.Put(ctx, "orders", []byte("close order 42"), ID("order-42"), In(30*time.Minute), Header("k", "v"))
				if err != nil || put.ID != "order-42" || !put.Created || put.State != "DELAYED" {
					t.Fatalf("put: %+v, %v", put, err)
				}
				jobs, err := c.Reserve(ctx, ReserveOptions{Queues: []string{"orders"}})
				if err != nil || len(jobs) != 0 {
					t.Fatalf("reserve before the job is due: %v, %v", jobs, err)
				}
				for len(jobs) == 0 {
					jobs, err = c.Reserve(ctx, ReserveOptions{Queues: []string{"orders"}, Wait: 20 * time.Second})
					if err != nil {
						t.Fatal(err)
					}
				}
				if late := time.Since(began) - 30*time.Minute; late < 0 || late > 10*time.Millisecond {
					t.Errorf("the job came %v after it was due", late)
				}
				job := jobs[0]
				if job.ID != "order-42" || string(job.Body) != "close order 42" || job.Headers["k"] != "v" || job.Attempt != 1 ||
					job.Fence == 0 {
					t.Errorf("reserved %+v", job)
				}
				if err := job.Ack(ctx); err != nil {
					t.Fatal(err)
				}
				if err := c.Ack(ctx, "lease-0-0"); !errors.Is(err, ErrStaleLease) {
					t.Errorf("ack with another lease: %v", err)
				}
				if _, err := c.Get(ctx, "orders", "order-42"); !errors.Is(err, ErrJobNotFound) {
					t.Errorf("get after the ack: %v", err)
				}
			})
		})
	}
}

func TestPutsShareRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		fake.failBefore(func(context.Context, string, proto.Message) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		c := start(t, newPipeNet(), nil, fake)
		var wg sync.WaitGroup
		ids := make([]string, 2500)
		for i := range ids {
			wg.Go(func() {
				put, err := c.Put(t.Context(), "q", []byte(fmt.Sprint(i)))
				if err != nil {
					t.Error(err)
				}
				job, err := c.Get(t.Context(), "q", put.ID)
				if err != nil || string(job.Body) != fmt.Sprint(i) {
					t.Errorf("put %d was answered with the id of %v, %v", i, job, err)
				}
			})
		}
		wg.Wait()
		sizes := fake.sizes("PutBatch")
		if len(sizes) > 6 {
			t.Errorf("2,500 concurrent puts took %d round trips: %v", len(sizes), sizes)
		}
		for _, size := range sizes {
			if size > batchJobsMax {
				t.Errorf("a batch has %d puts", size)
			}
		}
	})
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	for name, try := range map[string]struct {
		addrs string
		opt   Option
		want  string
	}{
		"scheme":   {"ftp://n1", nil, "ftp://n1"},
		"query":    {"http://n1?a=b", nil, "http://n1?a=b"},
		"no host":  {"http://", nil, "http:"},
		"nothing":  {"", nil, "http://127.0.0.1:7400"},
		"mixed":    {"http://n1:7400,https://n2:7400", nil, "http and https"},
		"unsaid":   {"https://n1:7400,n2:7400", nil, "http://n2:7400"},
		"token":    {"https://n1:7400", WithToken("hello"), "belfry_"},
		"file":     {"https://n1:7400", WithTokenFile("/nowhere/token"), "/nowhere/token"},
		"inflight": {"n1:7400", Coalescing{InFlight: 65}, "InFlight"},
		"jobs":     {"n1:7400", Coalescing{MaxJobs: 1001}, "MaxJobs"},
		"delay":    {"n1:7400", Coalescing{MaxDelay: -1}, "MaxDelay"},
	} {
		t.Run(name, func(t *testing.T) {
			var opts []Option
			if try.opt != nil {
				opts = append(opts, try.opt)
			}
			_, err := New(try.addrs, opts...)
			if err == nil || !strings.Contains(err.Error(), try.want) {
				t.Errorf("error %v, want one that names %s", err, try.want)
			}
		})
	}
	if c, err := New("HTTPS://n1:7400,https://n2:7400"); err != nil {
		t.Error(err)
	} else if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestClosedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		hold := make(chan struct{}) // no answer comes before the client is closed
		defer close(hold)
		fake.failBefore(func(_ context.Context, method string, _ proto.Message) error {
			if method == "PutBatch" {
				<-hold
			}
			return nil
		})
		c := start(t, newPipeNet(), nil, fake)
		results := make(chan error)
		go func() {
			_, err := c.Put(t.Context(), "q", nil)
			results <- err
		}()
		go func() {
			_, err := c.Reserve(t.Context(), ReserveOptions{Queues: []string{"q"}, Wait: time.Minute})
			results <- err
		}()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-results; !errors.Is(err, net.ErrClosed) {
				t.Errorf("a call that was on its way ended with %v", err)
			}
		}
		for name, call := range map[string]func() error{
			"put":         func() error { _, err := c.Put(t.Context(), "q", nil); return err },
			"put batch":   func() error { _, err := c.PutBatch(t.Context(), []Put{{Queue: "q"}}); return err },
			"ack":         func() error { return c.Ack(t.Context(), "x") },
			"reserve one": func() error { _, err := c.Reserve(t.Context(), ReserveOptions{Queues: []string{"q"}}); return err },
			"reserve two": func() error {
				_, err := c.Reserve(t.Context(), ReserveOptions{Queues: []string{"q"}, Max: 2})
				return err
			},
			"get": func() error { _, err := c.Get(t.Context(), "q", "1"); return err },
		} {
			if err := call(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s after Close: %v", name, err)
			}
		}
	})
}
