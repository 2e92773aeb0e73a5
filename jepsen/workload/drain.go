package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Drain is the name of the workload in the history under which the queues are emptied, and Probe
// that under which the cluster is tried after it was healed.
const (
	Drain = "drain"
	Probe = "probe"
)

// probeQueue has a partition in every shard.
const probeQueue = "probe"

// share is how many jobs of a queue one node hands out before it is the next one's turn.
const share = 20

// DrainAll empties queues through every node in turn, a part of each queue at a time. Then every
// node reports its counts and its dead jobs. DrainAll does the same with the jobs that probes left;
// a failed probe was repeated with other jobs. It returns an error if jobs are left after limit, or
// a node does not answer.
func DrainAll(ctx context.Context, target Target, queues []string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	nodes := target.Nodes()
	clients := map[string]*Client{}
	for _, node := range nodes {
		c, err := NewClient(target, Drain, Drain+"-"+node, 0)
		if err != nil {
			return err
		}
		defer c.Close()
		clients[node] = c
	}
	for _, queue := range queues {
		clients[nodes[0]].resume(ctx, queue)
		clients[nodes[0]].resumeKeys(ctx, queue)
	}
	queues = append(slices.Clone(queues), probeQueue)
	for {
		left := map[string]bool{}
		// the turns of each queue begin at another node: what one round empties, another node has emptied
		for round := range nodes {
			for i, queue := range queues {
				node := nodes[(round+i)%len(nodes)]
				if !clients[node].drain(ctx, node, queue) {
					left[queue] = true
				}
			}
		}
		if len(left) == 0 {
			break
		}
		if !pause(ctx, 20*time.Millisecond) {
			return fmt.Errorf("after %v these queues are not empty, or not every node says so: %v", limit,
				slices.Sorted(maps.Keys(left)))
		}
	}
	for _, node := range nodes {
		for _, queue := range queues {
			if err := clients[node].listDead(ctx, node, queue); err != nil {
				return err
			}
		}
	}
	return nil
}

// resume ends a pause of a queue.
func (c *Client) resume(ctx context.Context, queue string) {
	settings := &belfryv1.QueueSettings{Paused: proto.Bool(false)}
	for range 10 {
		_, o := c.updateQueue(ctx, &belfryv1.UpdateQueueRequest{Queue: queue, Settings: settings, RequestId: c.requestID()})
		if o.OK() || o.Reason == belfryv1.Reason_REASON_QUEUE_NOT_FOUND || !pause(ctx, 200*time.Millisecond) {
			return
		}
	}
}

// drain takes a node's share of what is due from a queue, and reports whether the node then says
// that nothing is left but dead jobs.
func (c *Client) drain(ctx context.Context, node, queue string) bool {
	c.Ask(node)
	answer, o := c.reserve(ctx, &belfryv1.ReserveRequest{Queues: []string{queue}, MaxJobs: share,
		RequestId: c.requestID()})
	if c.err != nil || !o.OK() && o.Reason != belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
		return false
	}
	if len(answer.GetJobs()) > 0 {
		var leases []string
		for _, j := range answer.GetJobs() {
			leases = append(leases, j.GetLease())
		}
		c.Ask(node)
		// what it misses comes again when its lease has lapsed
		c.ackBatch(ctx, &belfryv1.AckBatchRequest{Leases: leases, RequestId: c.requestID()})
	}
	c.Ask(node)
	found, o := c.getQueue(ctx, queue)
	if o.Reason == belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
		return true
	}
	n := found.GetQueue().GetCounts()
	return o.OK() && n.GetDelayed()+n.GetReady()+n.GetReserved() == 0
}

// listDead has a node list all dead jobs of a queue, and asks until it answers.
func (c *Client) listDead(ctx context.Context, node, queue string) error {
	r := &belfryv1.ListRequest{Queue: queue, State: belfryv1.JobState_JOB_STATE_DEAD, PageSize: 1000}
	for {
		c.Ask(node)
		page, o := c.list(ctx, r)
		switch {
		case o.Reason == belfryv1.Reason_REASON_QUEUE_NOT_FOUND:
			return nil
		case !o.OK():
			if !pause(ctx, 200*time.Millisecond) {
				return fmt.Errorf("%s does not list the dead jobs of %s: %s", node, queue, o.Message)
			}
			continue
		case page.GetNextPageToken() == "":
			return nil
		}
		r = proto.CloneOf(r)
		r.PageToken = page.GetNextPageToken()
	}
}

// PrepareProbe makes the queue that ProbeAll uses. It is for the beginning of a run.
func PrepareProbe(ctx context.Context, target Target, shards int) error {
	c, err := NewClient(target, Probe, Probe, 0)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.ensureQueue(ctx, probeQueue, uint32(shards))
}

// ProbeAll has every node take a job through its life in every shard, over and over until it
// succeeds, and returns an error if one does not within limit.
func ProbeAll(ctx context.Context, target Target, shards int, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := target.History.Now()
	for _, node := range target.Nodes() {
		c, err := NewClient(target, Probe, Probe+"-"+node, uint64(began))
		if err != nil {
			return err
		}
		defer c.Close()
		for !c.probe(ctx, node, shards) {
			if !pause(ctx, 100*time.Millisecond) {
				return fmt.Errorf("%v after the last fault jobs of every shard cannot be taken through their lives at %s",
					limit, node)
			}
		}
	}
	return nil
}

// probeDelay is the delay of the jobs that try the cluster after it was healed.
const probeDelay = 300 * time.Millisecond

// probe puts jobs into every shard, waits for them, takes them and acks them, all at one node. They
// are due in a moment, so only their due time wakes the waiting call.
func (c *Client) probe(ctx context.Context, node string, shards int) bool {
	batch := &belfryv1.PutBatchRequest{RequestId: c.requestID()}
	for range 8 * shards { // ids are spread by a hash: so many leave no partition out but once in thousands of runs
		batch.Jobs = append(batch.Jobs, &belfryv1.PutRequest{
			Queue: probeQueue, Id: c.Name + "-" + c.random(), Body: &belfryv1.PutRequest_Text{Text: "probe"},
			When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(probeDelay)},
		})
	}
	c.Ask(node)
	answer, o := c.putBatch(ctx, batch)
	if c.err != nil || !o.OK() {
		return false
	}
	reached := map[uint32]bool{}
	for _, r := range answer.GetResults() {
		if r.GetPut() == nil {
			return false
		}
		reached[r.GetPut().GetWitness().GetShard()] = true
	}
	if len(reached) != shards {
		return false
	}
	for taken := 0; taken < len(batch.GetJobs()); {
		c.Ask(node)
		got, o := c.reserve(ctx, &belfryv1.ReserveRequest{Queues: []string{probeQueue}, MaxJobs: 100,
			Wait: durationpb.New(waitMost), RequestId: c.requestID()})
		if !o.OK() || len(got.GetJobs()) == 0 {
			return false
		}
		for _, j := range got.GetJobs() {
			c.Ask(node)
			if !c.ack(ctx, j.GetLease()).OK() {
				return false
			}
		}
		taken += len(got.GetJobs())
	}
	return true
}
