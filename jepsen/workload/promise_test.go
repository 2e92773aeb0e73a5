package workload

import (
	"context"
	"fmt"
	"slices"
	"testing"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// role returns what the clients of a role do.
func role(t *testing.T, w Workload, name string) func(context.Context, *Client) {
	i := slices.IndexFunc(w.Roles, func(r Role) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("%s has no %s", w.Name, name)
	}
	return w.Roles[i].Round
}

// TestBatchesAckStaleLeases: leases that were acked in an earlier batch are among those of a later
// one.
func TestBatchesAckStaleLeases(t *testing.T) {
	f := newFake(t, "n1")
	for i := range 2000 {
		f.jobs = append(f.jobs, fmt.Sprint("lease-", i))
	}
	c, err := NewClient(f.target(), "batches", "batches-consumer-1", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	consume := role(t, batches(), "consumer")
	for range 20 {
		consume(t.Context(), c)
	}
	acked := map[string]int{}
	for _, o := range f.history.Ops() {
		r, ok := o.Request.(*belfryv1.AckBatchRequest)
		if !ok {
			continue
		}
		for _, lease := range r.GetLeases() {
			acked[lease]++
		}
	}
	twice := 0
	for _, n := range acked {
		if n > 1 {
			twice++
		}
	}
	if twice == 0 {
		t.Errorf("of %d leases none was acked again", len(acked))
	}
}

// TestRepeatsAreRepeats: each put of the workload can be repeated, and an ack is repeated as it
// was.
func TestRepeatsAreRepeats(t *testing.T) {
	f := newFake(t, "n1")
	f.answer = func(context.Context, *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
		return &belfryv1.PutResponse{}, nil
	}
	c, err := NewClient(f.target(), "repeats", "repeats-1", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	produce, consume := role(t, repeats(), "producer"), role(t, repeats(), "consumer")
	f.attempt = 2
	for i := range 50 {
		produce(t.Context(), c)
		f.jobs = []string{fmt.Sprint("lease-", i)}
		consume(t.Context(), c)
	}
	acks := map[string]int{}
	for _, o := range f.history.Ops() {
		switch r := o.Request.(type) {
		case *belfryv1.PutRequest:
			if r.GetId() == "" && r.GetRequestId() == "" {
				t.Fatalf("a put that cannot be repeated: %v", r)
			}
		case *belfryv1.AckRequest:
			acks[r.GetRequestId()]++
		}
	}
	again := 0
	for id, n := range acks {
		if id == "" {
			t.Errorf("%d acks cannot be repeated as they were", n)
		} else if n > 1 {
			again++
		}
	}
	if again == 0 {
		t.Errorf("of %d acks none was repeated as it was", len(acks))
	}
}
