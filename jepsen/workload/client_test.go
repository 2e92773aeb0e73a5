package workload

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// bothProtocols calls do with a client of each protocol.
func bothProtocols(t *testing.T, f *fake, do func(t *testing.T, c *Client)) {
	seen := map[string]bool{}
	for seed := uint64(1); len(seen) < 2; seed++ {
		c, err := NewClient(f.target(), "test", "client", seed)
		if err != nil {
			t.Fatal(err)
		}
		protocol := "connect"
		if c.grpc {
			protocol = "grpc"
		}
		if !seen[protocol] {
			seen[protocol] = true
			t.Run(protocol, func(t *testing.T) { do(t, c) })
		}
		c.Close()
	}
}

// TestOutcomes has a call end in each way: what the client then believes is what it may believe.
func TestOutcomes(t *testing.T) {
	stale := map[string]string{"outcome": "NOT_APPLIED", "shard": "2", "term": "3", "index": "44", "entry": "5",
		"time": "2026-01-02T03:04:05.000000006Z"}
	witness := &belfryv1.Witness{Shard: 2, Term: 3, Index: 44, Entry: 5,
		Time: timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))}
	info := func(domain, reason string, metadata map[string]string) func(context.Context,
		*belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
		return func(context.Context, *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
			return nil, refusal(t, &errdetails.ErrorInfo{Domain: domain, Reason: reason, Metadata: metadata})
		}
	}
	for name, one := range map[string]struct {
		answer func(context.Context, *belfryv1.PutRequest) (*belfryv1.PutResponse, error)
		want   history.Op
	}{
		"answered": {
			func(context.Context, *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
				return &belfryv1.PutResponse{Id: "7"}, nil
			},
			history.Op{Outcome: belfryv1.Outcome_OUTCOME_APPLIED, Response: &belfryv1.PutResponse{Id: "7"}},
		},
		"cut": {
			func(context.Context, *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
				panic(http.ErrAbortHandler)
			},
			history.Op{Outcome: belfryv1.Outcome_OUTCOME_UNKNOWN},
		},
		"refused": {
			info("belfry", "STALE_LEASE", stale),
			history.Op{Outcome: belfryv1.Outcome_OUTCOME_NOT_APPLIED, Reason: belfryv1.Reason_REASON_STALE_LEASE,
				Witness: witness},
		},
		"refused without a witness": {
			info("belfry", "OVERLOADED", map[string]string{"outcome": "NOT_APPLIED"}),
			history.Op{Outcome: belfryv1.Outcome_OUTCOME_NOT_APPLIED, Reason: belfryv1.Reason_REASON_OVERLOADED},
		},
		"said to be unknown": {
			info("belfry", "UNKNOWN_OUTCOME", map[string]string{"outcome": "UNKNOWN"}),
			history.Op{Outcome: belfryv1.Outcome_OUTCOME_UNKNOWN, Reason: belfryv1.Reason_REASON_UNKNOWN_OUTCOME},
		},
		"of another domain": {info("elsewhere", "STALE_LEASE", stale),
			history.Op{Outcome: belfryv1.Outcome_OUTCOME_UNKNOWN}},
		"without an outcome":  {info("belfry", "STALE_LEASE", nil), history.Op{Outcome: belfryv1.Outcome_OUTCOME_UNKNOWN}},
		"for no known reason": {info("belfry", "BAD_LUCK", stale), history.Op{Outcome: belfryv1.Outcome_OUTCOME_UNKNOWN}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, "n1")
			f.answer = one.answer
			bothProtocols(t, f, func(t *testing.T, c *Client) {
				_, o := c.put(t.Context(), &belfryv1.PutRequest{Queue: "q"})
				got := history.Op{Outcome: o.Outcome, Reason: o.Reason, Witness: o.Witness, Response: o.Response}
				if diff := cmp.Diff(one.want, got, protocmp.Transform()); diff != "" {
					t.Errorf("%s\n%s", o.Message, diff)
				}
				if o.Node != "n1" || o.Client != "client" || o.Workload != "test" || o.Returned < o.Invoked {
					t.Errorf("it is written down as %+v", o)
				}
			})
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.history.Len() != 2 || f.calls != 2 {
				t.Errorf("%d calls came, %d were written down", f.calls, f.history.Len())
			}
		})
	}
}

// TestRefusedDial asks a node at which no program listens: nothing was done there.
func TestRefusedDial(t *testing.T) {
	f := newFake(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.names, f.urls["n1"] = []string{"n1"}, "http://"+l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	bothProtocols(t, f, func(t *testing.T, c *Client) {
		if _, o := c.put(t.Context(), &belfryv1.PutRequest{}); o.Outcome != belfryv1.Outcome_OUTCOME_NOT_APPLIED ||
			o.Reason != 0 || o.OK() {
			t.Errorf("it ended as %v, %v: %s", o.Outcome, o.Reason, o.Message)
		}
	})
}

// TestRunKeepsAll ends the load while every client waits for an answer: each call is in the
// history, with an unknown outcome.
func TestRunKeepsAll(t *testing.T) {
	f := newFake(t, "n1", "n2")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	const clients = 6
	var waiting atomic.Int64
	f.answer = func(ctx context.Context, _ *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
		if waiting.Add(1) == clients {
			end()
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	list := []Workload{{Name: "w", Roles: []Role{{"role", clients, func(ctx context.Context, c *Client) {
		c.put(ctx, &belfryv1.PutRequest{})
	}}}}}
	if err := Run(ctx, f.target(), list, Load{Seed: 1, Pace: time.Microsecond}); err != nil {
		t.Fatal(err)
	}
	if f.history.Len() != clients {
		t.Errorf("%d calls were sent, %d are in the history", clients, f.history.Len())
	}
	for _, o := range f.history.Ops() {
		if o.Outcome != belfryv1.Outcome_OUTCOME_UNKNOWN {
			t.Errorf("%s knows the outcome %v", o.Client, o.Outcome)
		}
	}
}

// TestNotSent calls when the time is over: nothing is sent, and nothing is said to have been.
func TestNotSent(t *testing.T) {
	f := newFake(t, "n1")
	ctx, end := context.WithCancel(t.Context())
	end()
	bothProtocols(t, f, func(t *testing.T, c *Client) {
		if answer, o := c.put(ctx, &belfryv1.PutRequest{}); o.Outcome != belfryv1.Outcome_OUTCOME_NOT_APPLIED ||
			answer.GetId() != "" {
			t.Errorf("it ended as %v", o.Outcome)
		}
	})
	if f.history.Len() != 0 || pause(ctx, 0) {
		t.Errorf("%d calls are in the history", f.history.Len())
	}
}

// TestRunFails has a client that cannot find its way: the others are stopped, and the error names
// both ends.
func TestRunFails(t *testing.T) {
	f := newFake(t, "n1")
	f.names = []string{"n1", "n9"}
	f.answer = func(context.Context, *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
		return &belfryv1.PutResponse{}, nil
	}
	list := []Workload{{Name: "w", Roles: []Role{{"role", 20, func(ctx context.Context, c *Client) {
		c.put(ctx, &belfryv1.PutRequest{})
	}}}}}
	if err := Run(t.Context(), f.target(), list, Load{Seed: 1, Pace: time.Microsecond}); err == nil {
		t.Error("nobody says that a node cannot be reached")
	}
}

// TestLearnsNodes has all nodes replaced under a client: it finds the new one.
func TestLearnsNodes(t *testing.T) {
	f := newFake(t, "n1", "n2")
	f.names = []string{"n1"}
	f.answer = func(context.Context, *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
		panic(http.ErrAbortHandler)
	}
	c, err := NewClient(f.target(), "test", "client", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f.names = []string{"n2"}
	_, first := c.put(t.Context(), &belfryv1.PutRequest{})
	_, second := c.put(t.Context(), &belfryv1.PutRequest{})
	if first.Node != "n1" || second.Node != "n2" {
		t.Errorf("it asked %s and then %s", first.Node, second.Node)
	}
}

// TestPick refuses what is no workload.
func TestPick(t *testing.T) {
	if all, err := Pick("all"); err != nil || len(all) != len(Open()) {
		t.Errorf("all are %d: %v", len(all), err)
	}
	if some, err := Pick("herd,puts"); err != nil || !cmp.Equal(Names(some), []string{"herd", "puts"}) {
		t.Errorf("have %v, %v", Names(some), err)
	}
	if _, err := Pick("puts,nothing"); err == nil {
		t.Error("what is no workload is left out silently")
	}
	seen := map[string]string{}
	for _, w := range All() {
		for _, q := range w.Queues {
			if other, ok := seen[q]; ok {
				t.Errorf("%s and %s share the queue %s", other, w.Name, q)
			}
			seen[q] = w.Name
		}
	}
}
