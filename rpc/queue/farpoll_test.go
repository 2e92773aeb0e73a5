package queue

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// farNode is a node whose shards are all on other nodes: each call takes a while to get there, and
// as long to return.
type farNode struct {
	*backendtest.Node
	oneWay time.Duration
	// leaderless are shards without a leader.
	leaderless map[uint32]bool
}

// travel waits for the time of one way.
func (n *farNode) travel(ctx context.Context, shard uint32) error {
	trip := time.NewTimer(n.oneWay)
	defer trip.Stop()
	select {
	case <-trip.C:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", node.ErrCanceled, context.Cause(ctx))
	}
	if n.leaderless[shard] {
		return nodeNoLeader()
	}
	return nil
}

func (n *farNode) Reserve(ctx context.Context, shard uint32, req *fsm.Request, wait node.Wait) (node.Reply, error) {
	if err := n.travel(ctx, shard); err != nil {
		return node.Reply{}, err
	}
	reply, err := n.Node.Reserve(ctx, shard, req, wait)
	if err == nil {
		err = n.travel(ctx, shard)
	}
	return reply, err
}

func (n *farNode) Query(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	if err := n.travel(ctx, shard); err != nil {
		return fsm.Reading{}, node.Witness{}, err
	}
	r, w, err := n.Node.Query(ctx, shard, q)
	if err == nil {
		err = n.travel(ctx, shard)
	}
	return r, w, err
}

func (n *farNode) Offers(ctx context.Context, shard uint32, queues []string) (bool, error) {
	if err := n.travel(ctx, shard); err != nil {
		return false, err
	}
	some, _ := n.Available(shard, queues, make(chan struct{}))
	return some, n.travel(ctx, shard)
}

const (
	farShards = 6
	farOneWay = 25 * time.Millisecond
	farQueue  = "wide"
	// otherQueue is a second queue with as many partitions.
	otherQueue = "other"
)

// serveFar returns a service with two queues, each with a partition in each of six distant shards.
func serveFar(t *testing.T) (*farNode, *Service) {
	t.Helper()
	n, catalog := &farNode{
		Node: backendtest.NewNode(farShards), oneWay: farOneWay, leaderless: map[uint32]bool{},
	}, backendtest.NewCatalog()
	s := newService(t, n, func(cfg *Config) { cfg.Router.Catalog = catalog })
	for _, queue := range []string{farQueue, otherQueue} {
		config, err := catalog.CreateQueue(t.Context(), queue, farShards, fsm.Settings{})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.router.Configure(t.Context(), config.Name); err != nil {
			t.Fatal(err)
		}
	}
	return n, s
}

// do applies a command to a partition of the queue, at its shard.
func (n *farNode) do(t *testing.T, partition uint32, c fsm.Command) fsm.Result {
	t.Helper()
	reply, err := n.Node.Do(t.Context(), node.ShardOf(farQueue, partition, farShards),
		&fsm.Request{Commands: []fsm.Command{c}})
	if err != nil || reply.Results[0].Code != fsm.OK {
		t.Fatalf("%v: %+v", err, reply)
	}
	return reply.Results[0]
}

// TestPollOverShardsFarAway: a job that is put while a poll is about to wait is handed out soon,
// whatever the number of shards, because the poll asks them at the same time. If it asked one after
// the other, a poll with a request id would take eighteen round trips before it waits.
func TestPollOverShardsFarAway(t *testing.T) {
	for _, id := range []string{"", "r-1"} {
		for _, after := range []time.Duration{0, 60 * time.Millisecond, 110 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprint(id, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n, queues := serveFar(t)
					var came time.Time
					time.AfterFunc(after, func() {
						came = time.Now()
						n.do(t, 3, &fsm.Put{Queue: farQueue, Partition: 3, Partitions: farShards})
					})
					res, err := queues.Reserve(t.Context(), &belfryv1.ReserveRequest{
						Queues: []string{farQueue}, Wait: durationpb.New(time.Minute), RequestId: id,
					})
					// Of the three rounds (recall, offers, wait) the job may have missed two, and the answer takes
					// its time.
					if late := time.Since(came); err != nil || len(res.GetJobs()) != 1 || late > 6*farOneWay {
						t.Errorf("after %v: %v, %v", late, res, err)
					}
				})
			})
		}
	}
}

// TestPollWithOneShardLeaderless: the poll goes on in the other shards.
func TestPollWithOneShardLeaderless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, queues := serveFar(t)
		n.leaderless[node.ShardOf(farQueue, 0, farShards)] = true
		time.AfterFunc(10*time.Second, func() { n.do(t, 3, &fsm.Put{Queue: farQueue, Partition: 3, Partitions: farShards}) })
		began := time.Now()
		res, err := queues.Reserve(t.Context(), &belfryv1.ReserveRequest{
			Queues: []string{farQueue}, Wait: durationpb.New(time.Minute),
		})
		if took := time.Since(began); err != nil || len(res.GetJobs()) != 1 || took < 10*time.Second ||
			took > 11*time.Second {
			t.Errorf("after %v: %v, %v", took, res, err)
		}
		// No shard has a job, but an answer without jobs would claim that all were asked.
		for _, wait := range []time.Duration{0, time.Second} {
			res, err = queues.Reserve(t.Context(), &belfryv1.ReserveRequest{
				Queues: []string{farQueue}, Wait: durationpb.New(wait),
			})
			if fault.Of(err).Reason != belfryv1.Reason_REASON_NO_LEADER {
				t.Errorf("with a wait of %v: %v, %v", wait, res, err)
			}
		}
	})
}

// TestPollsRotatePartitions: the first job of each partition is handed out within as many polls as
// there are partitions, however full one partition is, and whatever else the node does between
// polls.
func TestPollsRotatePartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, queues := serveFar(t)
		for p := range uint32(farShards) {
			for range 1 + 30*p {
				n.do(t, p, &fsm.Put{Queue: farQueue, Partition: p, Partitions: farShards})
			}
		}
		seen := map[string]int{}
		for range farShards {
			res, err := queues.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: []string{farQueue}})
			if err != nil || len(res.GetJobs()) != 1 {
				t.Fatalf("%v, %v", res, err)
			}
			seen[string(res.GetJobs()[0].GetId()[0])]++
			// Puts without an id rotate as well, and so do the polls of other queues.
			for range farShards - 1 {
				if _, err := queues.Put(t.Context(), &belfryv1.PutRequest{Queue: otherQueue}); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if _, err := queues.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: []string{otherQueue}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(seen) != farShards {
			t.Errorf("jobs by partition: %v", seen)
		}
	})
}
