package queue

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestPollHearsOfNewPartitions: a poll may wait for a queue before it is created, or at a node that
// does not know it yet. It gets a job that is put into any of its partitions at once. Polls for
// other queues go on waiting.
func TestPollHearsOfNewPartitions(t *testing.T) {
	for name, queues := range map[string][]string{"one queue": {"new"}, "one of two": {"another", "new"}} {
		for _, id := range []string{"", "r-1"} {
			t.Run(name+id, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { pollHearsOfNewPartitions(t, queues, id) })
			})
		}
	}
}

func pollHearsOfNewPartitions(t *testing.T, queues []string, id string) {
	service := newService(t, backendtest.NewNode(4))
	poll := func(queues ...string) *attempt {
		a := &attempt{ended: make(chan struct{})}
		go func() {
			defer close(a.ended)
			start := time.Now()
			a.response, a.err = service.Reserve(t.Context(), &belfryv1.ReserveRequest{
				Queues: queues, Wait: durationpb.New(time.Minute), RequestId: id,
			})
			a.after = time.Since(start)
		}()
		return a
	}
	first, other := poll(queues...), poll("other")
	parked := time.NewTimer(10 * time.Second)
	<-parked.C
	if _, err := service.router.Catalog.CreateQueue(t.Context(), "new", 4, fsm.Settings{}); err != nil {
		t.Fatal(err)
	}
	home := service.router.Shard("new", 0)
	for partition := range uint32(4) {
		shard := service.router.Shard("new", partition)
		if shard == home {
			continue
		}
		put := &fsm.Put{Queue: "new", Partition: partition, Partitions: 4, ID: "x"}
		open := &fsm.Open{Queue: "new", Partition: partition, Partitions: 4}
		for _, a := range service.router.ProposeAll(t.Context(), shard, "", []fsm.Command{open, put}) {
			if a.Fault != nil || a.Result.Code != fsm.OK {
				t.Fatalf("%+v", a)
			}
		}
		break
	}
	<-first.ended
	if first.err != nil || len(first.response.GetJobs()) != 1 || first.after != 10*time.Second {
		t.Errorf("after %v: %v, %v", first.after, first.response, first.err)
	}
	<-other.ended
	if other.err != nil || len(other.response.GetJobs()) != 0 || other.after != time.Minute {
		t.Errorf("the other, after %v: %v, %v", other.after, other.response, other.err)
	}
}
