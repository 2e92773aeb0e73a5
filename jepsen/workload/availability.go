package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Availability is the name in the history of the calls that try, all through a run, whether each
// shard takes puts and reserves through each node.
const Availability = "availability"

const (
	// probeCallMax is how long one of these calls may take. A call that takes longer does not count as
	// served.
	probeCallMax = 1500 * time.Millisecond
	// probeReserveWait is how long a reserve waits for the job of the put before it.
	probeReserveWait = 500 * time.Millisecond
	// probePause is the time between two rounds of a prober, statusPause between two questions how the
	// cluster is.
	probePause  = 250 * time.Millisecond
	statusPause = 500 * time.Millisecond
	// statusMax is how long an answer to that question may take.
	statusMax = 4 * time.Second
	// probeTries is how many names of queues are tried for each shard.
	probeTries = 64
)

// Prober tries a cluster all through a run: each node is asked to put a job into each shard and to
// hand it out again, and how the cluster is.
type Prober struct {
	target Target
	seed   uint64
	nodes  []string
	// queues are those of one node, one for each shard, each used by one client only.
	queues map[string][]string
	tried  []string
}

// NewProber finds queues for a prober: for each of some nodes one in each shard. It is for the
// beginning of a run.
func NewProber(ctx context.Context, target Target, shards int, seed uint64) (*Prober, error) {
	p := &Prober{target: target, seed: seed, nodes: target.Nodes(), queues: map[string][]string{}}
	c, err := NewClient(target, Probe, Availability+"-prepare", seed) // its calls try no node
	if err != nil {
		return nil, err
	}
	defer c.Close()
	taken := map[string]map[uint32]bool{}
	missing := shards * len(p.nodes)
	for i := 0; missing > 0; i++ {
		if i == probeTries*shards*len(p.nodes) {
			return nil, fmt.Errorf("no queues were found for %d pairs of a node and a shard", missing)
		}
		queue := fmt.Sprintf("availability-%d", i)
		shard, err := c.shardOf(ctx, queue)
		if err != nil {
			return nil, err
		}
		p.tried = append(p.tried, queue)
		for _, node := range p.nodes {
			if taken[node] == nil {
				taken[node] = map[uint32]bool{}
			}
			if !taken[node][shard] {
				taken[node][shard] = true
				p.queues[node] = append(p.queues[node], queue)
				missing--
				break
			}
		}
	}
	return p, nil
}

// shardOf puts a job into a queue and returns the shard that took it.
func (c *Client) shardOf(ctx context.Context, queue string) (uint32, error) {
	r := &belfryv1.PutRequest{Queue: queue, Body: &belfryv1.PutRequest_Text{Text: "probe"}, RequestId: c.requestID()}
	for {
		answer, o := c.put(ctx, r)
		if c.err != nil {
			return 0, c.err
		}
		if o.OK() {
			return answer.GetWitness().GetShard(), nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return 0, fmt.Errorf("finding the shard of %s: %w; its put: %s", queue, context.Cause(ctx), o.Message)
		}
	}
}

// Queues returns all queues that may hold jobs of the prober.
func (p *Prober) Queues() []string { return p.tried }

// Run tries the cluster until ctx ends. An error means that a client could not be made, or found no
// way to a node.
func (p *Prober) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	var mu sync.Mutex
	var failed error
	start := func(name string, round func(context.Context, *Client)) {
		running.Go(func() {
			c, err := NewClient(p.target, Availability, name, p.seed)
			if err == nil {
				defer c.Close()
				for c.err == nil && ctx.Err() == nil {
					round(ctx, c)
				}
				err = c.err
			}
			if err != nil {
				cancel()
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, err)
			}
		})
	}
	for _, node := range p.nodes {
		for i, queue := range p.queues[node] {
			start(fmt.Sprintf("%s-%s-%d", Availability, node, i), func(ctx context.Context, c *Client) {
				c.tryQueue(ctx, node, queue)
				pause(ctx, probePause)
			})
		}
		start(fmt.Sprintf("%s-%s-status", Availability, node), func(ctx context.Context, c *Client) {
			c.askStatus(ctx, node)
			pause(ctx, statusPause)
		})
	}
	running.Wait()
	return failed
}

// tryQueue puts one job through a node, takes one through it and acks it. Each call is made also if
// the one before it failed.
func (c *Client) tryQueue(ctx context.Context, node, queue string) {
	within := func(call func(context.Context)) {
		c.Ask(node)
		short, cancel := context.WithTimeout(ctx, probeCallMax)
		defer cancel()
		if c.err == nil {
			call(short)
		}
	}
	within(func(ctx context.Context) {
		c.put(ctx, &belfryv1.PutRequest{Queue: queue, Body: &belfryv1.PutRequest_Text{Text: "probe"},
			RequestId: c.requestID()})
	})
	var jobs []*belfryv1.Job
	within(func(ctx context.Context) {
		answer, _ := c.reserve(ctx, &belfryv1.ReserveRequest{Queues: []string{queue}, Wait: durationpb.New(probeReserveWait),
			RequestId: c.requestID()})
		jobs = answer.GetJobs()
	})
	for _, j := range jobs {
		within(func(ctx context.Context) { c.ack(ctx, j.GetLease()) })
	}
}

// askStatus asks a node how the cluster is, and writes the answer down.
func (c *Client) askStatus(ctx context.Context, node string) {
	c.Ask(node)
	if c.err != nil {
		return
	}
	c.carries = c.carried()
	limited, cancel := context.WithTimeout(ctx, statusMax)
	defer cancel()
	s := history.Status{Node: node, Asked: c.history.Now()}
	answer, err := c.admin().GetCluster(limited, &belfryv1.GetClusterRequest{})
	s.Answered = c.history.Now()
	switch {
	case ctx.Err() != nil:
		return // the end of the run did not wait for it
	case err != nil:
		s.Failure = err.Error()
	default:
		s.Problems = answer.GetProblems()
	}
	c.history.AddStatus(s)
}
