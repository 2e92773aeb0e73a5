package workload

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// fakeShards has a fake cluster take the puts of each queue in a shard that its name decides.
func fakeShards(f *fake, shards int) {
	f.answer = func(_ context.Context, r *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.jobs = append(f.jobs, "lease of "+r.GetRequestId())
		return &belfryv1.PutResponse{Created: true,
			Witness: &belfryv1.Witness{Shard: uint32(r.GetQueue()[len(r.GetQueue())-1]) % uint32(shards)}}, nil
	}
}

// TestProberQueues finds for each node a queue in each shard, which no other node has.
func TestProberQueues(t *testing.T) {
	f := newFake(t, "n1", "n2", "n3")
	fakeShards(f, 3)
	p, err := NewProber(t.Context(), f.target(), 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, node := range f.names {
		shards := map[byte]bool{}
		for _, queue := range p.queues[node] {
			shards[queue[len(queue)-1]%3] = true
			all = append(all, queue)
			if !slices.Contains(p.Queues(), queue) {
				t.Errorf("%s may hold jobs, and is not among %q", queue, p.Queues())
			}
		}
		if len(shards) != 3 || len(p.queues[node]) != 3 {
			t.Errorf("%s has %q", node, p.queues[node])
		}
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != 9 {
		t.Errorf("two nodes share a queue: %q", all)
	}
}

// TestProber tries every node all the time, also one that refuses, and writes down what it heard.
func TestProber(t *testing.T) {
	f := newFake(t, "n1", "n2")
	fakeShards(f, 1)
	p, err := NewProber(t.Context(), f.target(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.refuses = "n2"
	if err := p.Run(f.endAfter(t, "n2", 3)); err != nil {
		t.Fatal(err)
	}
	puts, reserved, refused, acked := map[string]int{}, 0, 0, 0
	for _, o := range f.history.Ops() {
		if o.Workload != Availability {
			continue
		}
		switch o.Request.(type) {
		case *belfryv1.PutRequest:
			puts[o.Node]++
		case *belfryv1.ReserveRequest:
			if o.OK() && o.Node == "n1" {
				reserved++
			} else if !o.OK() && o.Node == "n2" {
				refused++
			}
		case *belfryv1.AckRequest:
			acked++
		}
	}
	if puts["n1"] == 0 || puts["n2"] < 3 || reserved == 0 || refused < 3 || acked == 0 {
		t.Errorf("puts %v, reserves answered by n1 %d, refused by n2 %d, acks %d", puts, reserved, refused, acked)
	}
	answered := func(node string) bool {
		return slices.ContainsFunc(f.history.Statuses(), func(s history.Status) bool {
			return s.Node == node && s.Failure == "" && slices.Equal(s.Problems, []string{"said by " + node}) &&
				s.Answered >= s.Asked
		})
	}
	if !answered("n1") || !answered("n2") {
		t.Errorf("not every node was asked how the cluster is: %+v", f.history.Statuses())
	}
}

// TestProberHasNoWay: a prober that finds no way to a node is the harness's failure.
func TestProberHasNoWay(t *testing.T) {
	f := newFake(t, "n1")
	fakeShards(f, 1)
	p, err := NewProber(t.Context(), f.target(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	lost := errors.New("no way")
	p.target.URL = func(string, string) (string, error) { return "", lost }
	if err := p.Run(t.Context()); !errors.Is(err, lost) {
		t.Errorf("have %v", err)
	}
}

// TestPutWhileFounded puts through every node until it is told to end.
func TestPutWhileFounded(t *testing.T) {
	f := newFake(t, "n1", "n2")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	puts := 0
	f.answer = func(_ context.Context, r *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if puts++; puts == 20 {
			end()
		}
		return &belfryv1.PutResponse{Created: true}, nil
	}
	if err := PutWhileFounded(ctx, f.target(), 1); err != nil {
		t.Fatal(err)
	}
	nodes := map[string]int{}
	for _, o := range f.history.Ops() {
		if o.Workload == Founding && o.Request.(*belfryv1.PutRequest).GetQueue() == Founding {
			nodes[o.Node]++
		}
	}
	if nodes["n1"] == 0 || nodes["n2"] == 0 {
		t.Errorf("puts by node: %v", nodes)
	}
}
