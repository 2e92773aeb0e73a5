package propose

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/google/go-cmp/cmp"
)

// put queues a request of puts into a queue.
func (b *bench) put(t *testing.T, queue string, puts, bytes int) error {
	t.Helper()
	req := &fsm.Request{}
	for range puts {
		req.Commands = append(req.Commands, &fsm.Put{Queue: queue, Partitions: 1, Body: make([]byte, bytes)})
	}
	pr := &Proposal{
		Request: req, Encoded: codec.AppendRequest(nil, req), Format: b.format, Complete: func(Reply, error) {},
	}
	return b.Enqueue(pr)
}

// queuesOf returns the queues of an entry's requests, in order.
func queuesOf(t *testing.T, f *fakeFuture) (names []string) {
	t.Helper()
	_, requests, err := codec.DecodeEntry(f.entry)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		names = append(names, fsm.QueueOf(r.Commands[0]))
	}
	return names
}

func (b *bench) mustPut(t *testing.T, queue string, puts, bytes int) {
	t.Helper()
	if err := b.put(t, queue, puts, bytes); err != nil {
		t.Fatal(err)
	}
}

// TestTenantsAreServedRoundRobin has one tenant fill the line before another comes: the other's
// request is in the next entry, and soon in it.
func TestTenantsAreServedRoundRobin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProposer(t, Config{EntriesInFlight: 1})
		b.mustPut(t, "first", 1, 0)
		held := b.next(t)
		for range 1000 {
			b.mustPut(t, "loud/a", 100, 100)
			b.mustPut(t, "loud/b", 1, 0)
		}
		b.mustPut(t, "quiet/q", 1, 0)
		b.mustPut(t, "plain", 1, 0)
		held.apply(t, 1)
		second := b.next(t)
		got := queuesOf(t, second)
		if len(got) > 8 {
			t.Errorf("an entry of several tenants has %d requests, %v: those of the quiet ones wait for all of them",
				len(got), got)
			got = got[:8]
		}
		want := []string{"loud/a", "quiet/q", "plain", "loud/b", "loud/a", "loud/b"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the second entry (-want +got):\n%s", diff)
		}
		b.refuseRest(second)
	})
}

// refuseRest ends what is in flight and what waits.
func (b *bench) refuseRest(f *fakeFuture) {
	b.Close(outcome.ErrNoLeader)
	f.fail(errors.New("enough"))
}

// TestOneOwnerHasWholeEntries: a tenant that is alone is not held back.
func TestOneOwnerHasWholeEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProposer(t, Config{EntriesInFlight: 1})
		b.mustPut(t, "alone/first", 1, 0)
		held := b.next(t)
		for range 3000 {
			b.mustPut(t, "alone/q", 1, 0)
		}
		held.apply(t, 1)
		second := b.next(t)
		if got := len(queuesOf(t, second)); got != 3000 {
			t.Errorf("an entry of one tenant has %d requests, want all 3000", got)
		}
		b.refuseRest(second)
	})
}

// TestOneTenantLeavesRoom has one tenant fill all the room there is: others get in, but not without
// end.
func TestOneTenantLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProposer(t, Config{EntriesInFlight: 1, QueueRequestsMax: 80})
		b.mustPut(t, "first", 1, 0)
		held := b.next(t)
		for range 80 {
			b.mustPut(t, "loud/a", 1, 0)
		}
		if err := b.put(t, "loud/b", 1, 0); !errors.Is(err, outcome.ErrOverloaded) {
			t.Errorf("more of who filled the room got %v, want ErrOverloaded", err)
		}
		let := 0
		for i := range 200 {
			if b.put(t, fmt.Sprintf("n%d/q", i/20), 1, 0) == nil {
				let++
			}
		}
		if let != 80 {
			t.Errorf("%d requests of ten others got in, want 10 of each up to 80", let)
		}
		b.refuseRest(held)
	})
}

// TestEntriesTakeWhatTheyMay: a batch ends only when it is full, or when each tenant is at its
// limit or has no request left. It takes no more of a tenant than that limit, or one request.
func TestEntriesTakeWhatTheyMay(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		p := New(Config{}.withDefaults())
		p.Open()
		left := map[string][]uint64{} // the cost of the requests of each tenant
		for range 1 + random.IntN(300) {
			tenant := fmt.Sprintf("n%d/q", random.IntN(1+random.IntN(8)))
			req := &fsm.Request{}
			for range 1 + random.IntN(400)*random.IntN(2) {
				req.Commands = append(req.Commands, &fsm.Ack{Ref: fsm.Ref{Queue: tenant}})
			}
			if err := p.Enqueue(&Proposal{Request: req, Encoded: make([]byte, 1)}); err != nil {
				t.Fatal(err)
			}
			left[tenant] = append(left[tenant], uint64(len(req.Commands)))
		}
		for len(left) > 0 {
			most := 1 + random.Uint64N(3000)
			had, total := map[string]uint64{}, uint64(0)
			waiting := len(left)
			batch := p.takeLocked(1<<20, most, true)
			for _, pr := range batch {
				tenant := fsm.QueueOf(pr.Request.Commands[0])
				if cost := left[tenant][0]; had[tenant] > 0 && had[tenant]+cost > tenantCostMax || cost != pr.cost {
					t.Fatalf("seed %d: %s has had %d, and gets %d more", seed, tenant, had[tenant], pr.cost)
				}
				had[tenant] += pr.cost
				total += pr.cost
				if left[tenant] = left[tenant][1:]; len(left[tenant]) == 0 {
					delete(left, tenant)
				}
			}
			var next *Proposal // the first request that was passed over although its tenant was below its limit
			for range len(left) {
				l := p.queue.next
				if cost := had[l.tenant+"/q"]; cost == 0 || cost+l.head.cost <= tenantCostMax {
					next = l.head
					break
				}
				p.queue.next = l.next
			}
			if len(batch) == 0 || next != nil && total+next.cost <= most {
				t.Fatalf("seed %d: an entry of %d tenants has %d requests at a cost of %d of %d, and leaves one of %d", seed,
					waiting, len(batch), total, most, next.cost)
			}
		}
	}
}
