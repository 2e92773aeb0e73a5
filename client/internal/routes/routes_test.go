package routes

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/client/internal/placement"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// learned returns a table that knows a map of two shards, of which n1 leads the first, and n2, which
// did not answer, the second; and of the queues their partitions.
func learned(t *testing.T, partitions map[string]uint32) *Table[string] {
	t.Helper()
	r := &Table[string]{}
	var queues []string
	for queue := range partitions {
		queues = append(queues, queue)
		r.Due(placement.Place{Queue: queue})
	}
	r.Learn(answer(partitions), queues, map[string]string{"n1:7400": "n1"})
	return r
}

func answer(partitions map[string]uint32) *belfryv1.GetRoutingResponse {
	return &belfryv1.GetRoutingResponse{
		HashVersion: placement.HashVersion, Shards: 2, Leaders: []string{"n1:7400", "n2:7400"}, Partitions: partitions,
	}
}

// TestLeader: only a place whose shard is certain, and whose leader has answered, has a leader.
func TestLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := learned(t, map[string]uint32{"one": 1, "many": 8})
		leaders := []string{"n1", ""} // by shard
		for i := range 64 {
			id := fmt.Sprint("job-", i)
			at := placement.ShardOf("many", placement.PartitionOf(id, 8), 2)
			if got := r.Leader(placement.Place{Queue: "many", ID: id}); got != leaders[at] {
				t.Errorf("%s is of shard %d, and goes to %q", id, at, got)
			}
		}
		for i := range 64 { // the id does not count, and a key of digits is a key like others
			key := fmt.Sprintf("%d-%d", i, i)
			at := placement.ShardOf("many", placement.PartitionOfKey(key, 8), 2)
			for _, id := range []string{"", "job-1", "3-7"} {
				if got := r.Leader(placement.Place{Queue: "many", ID: id, Key: key}); got != leaders[at] {
					t.Errorf("%s of key %s is of shard %d, and goes to %q", id, key, at, got)
				}
			}
		}
		for _, p := range []placement.Place{{}, {Queue: "many"}, {Queue: "unknown", ID: "1"}} {
			if got := r.Leader(p); got != "" {
				t.Errorf("%+v goes to %q, want any server", p, got)
			}
		}
		if got, want := r.Leader(placement.Place{Queue: "one"}), leaders[placement.ShardOf("one", 0, 2)]; got != want {
			t.Errorf("a put without an id into a queue of one partition goes to %q, want %q", got, want)
		}
		known := placement.Place{Queue: "many", Partition: 3, Known: true}
		if got, want := r.Leader(known), leaders[placement.ShardOf("many", 3, 2)]; got != want {
			t.Errorf("a lease of partition 3 goes to %q, want %q", got, want)
		}
	})
}

// TestDoubt: a server at which a call failed leads nothing any more, and the map is asked for at once.
func TestDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := learned(t, map[string]uint32{"q": 8})
		r.Doubt("n1")
		for partition := range uint32(8) {
			if got := r.Leader(placement.Place{Queue: "q", Partition: partition, Known: true}); got != "" {
				t.Errorf("partition %d goes to %q", partition, got)
			}
		}
		if !r.Due(placement.Place{Queue: "q"}) {
			t.Error("the map is not asked for")
		}
		if r.Due(placement.Place{Queue: "q"}) {
			t.Error("the map is asked for twice at one time")
		}
	})
}

// TestWhenToAsk: for a new queue a moment after the last question, for known ones when the map is
// old, and after a failure only when its pause is over.
func TestWhenToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, q := learned(t, map[string]uint32{"q": 1}), placement.Place{Queue: "q"}
		expect := func(after time.Duration, p placement.Place) {
			t.Helper()
			time.Sleep(after - time.Nanosecond)
			if r.Due(p) {
				t.Errorf("the map is asked for less than %v after", after)
			}
			time.Sleep(time.Nanosecond)
			if !r.Due(p) {
				t.Errorf("the map is not asked for %v after", after)
			}
		}
		expect(Fresh, q)
		r.Learn(answer(map[string]uint32{"q": 1}), []string{"q"}, nil)
		unknown := placement.Place{Queue: "new"}
		expect(Gap, unknown)
		r.Failed(errors.New("no answer"))
		if asked := r.Questions(); len(asked) != 0 {
			t.Errorf("after a failure %v are asked for again although nobody uses them", asked)
		}
		expect(Pause, unknown)
		r.Failed(connect.NewError(connect.CodeUnimplemented, errors.New("no such method")))
		expect(shun, q)
		r.Learn(&belfryv1.GetRoutingResponse{HashVersion: placement.HashVersion + 1, Shards: 1, Leaders: []string{"n1:7400"}},
			nil, map[string]string{"n1:7400": "n1"})
		if got := r.Leader(q); got != "" {
			t.Errorf("by a map of another hash function a call goes to %q", got)
		}
		expect(shun, q)
		if r.Due(placement.Place{}) {
			t.Error("a call about no queue asks for a map")
		}
	})
}

// TestQuestionsAreBounded: one request asks for no more queues than servers take, and a table does
// not grow with the queues that a client once used.
func TestQuestionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Table[string]{}
		for i := range 6 * queuesMax {
			r.Due(placement.Place{Queue: fmt.Sprint("q", i)})
			if i%(2*AskMax) == 0 { // half of them find no room
				asked := r.Questions()
				if len(asked) > AskMax {
					t.Fatalf("%d queues in one request", len(asked))
				}
				r.Learn(answer(nil), asked, nil)
			}
		}
		if n := len(r.queues) + len(r.older); n > 2*queuesMax+AskMax {
			t.Errorf("%d queues are remembered", n)
		}
		if asked := r.Questions(); !slices.IsSorted(asked) {
			t.Errorf("%v are not in order", asked)
		}
	})
}
