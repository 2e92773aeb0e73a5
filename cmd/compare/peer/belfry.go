package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/client"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

func belfryPeers() []Queue {
	one := func(name, keeps string, nodes int) Queue {
		return Queue{Name: name, Keeps: keeps, Belfry: true, Start: func(ctx context.Context, s *Site) (*Running, error) {
			return startBelfry(ctx, s, nodes)
		}}
	}
	const keepsThree = "the put, on two of three"
	return []Queue{
		one("belfry-one", "the put", 1),
		one("belfry-three", keepsThree, 3),
		throughBeanstalkd(one("belfry-one-beanstalkd", "the put", 1)),
		throughBeanstalkd(one("belfry-three-beanstalkd", keepsThree, 3)),
	}
}

// throughBeanstalkd returns Belfry with callers that speak beanstalkd's protocol.
func throughBeanstalkd(p Queue) Queue {
	start := p.Start
	p.Belfry = false // its works are those of beanstalkd
	p.Cannot = map[string]string{"pendingids": errNames.Error()}
	p.Start = func(ctx context.Context, s *Site) (*Running, error) {
		r, err := start(ctx, s)
		if err != nil {
			return r, err
		}
		next := 0
		r.Caller = func(ctx context.Context, _ Kind) (Caller, error) {
			next++
			return dialBeanstalkd(ctx, r.beanstalkd[next%len(r.beanstalkd)])
		}
		r.SDK, r.URLs = nil, nil
		return r, nil
	}
	return p
}

// startBelfry runs a cluster with the settings that it has by itself, and returns once every node
// votes in all shards.
func startBelfry(ctx context.Context, s *Site, nodes int) (*Running, error) {
	r := &Running{}
	var urls, gossip []string
	var args [][]string
	for n := range nodes {
		var addresses [4]string
		for i := range addresses {
			var err error
			if addresses[i], err = s.Addresses.Free(); err != nil {
				return r, err
			}
		}
		urls, gossip = append(urls, "http://"+addresses[0]), append(gossip, addresses[2])
		args = append(args, []string{
			"serve", "--node-id", fmt.Sprintf("n%d", n+1), "--listen", addresses[0], "--peer-listen", addresses[1],
			"--gossip-listen", addresses[2],
			"--beanstalkd-listen", addresses[3], "--log-format", "text",
		})
		r.beanstalkd = append(r.beanstalkd, addresses[3])
	}
	dir := s.NewDir("belfry")
	for n := range nodes {
		at := filepath.Join(dir, fmt.Sprintf("n%d", n+1))
		args[n] = append(args[n], "--data", filepath.Join(at, "data"))
		if nodes > 1 {
			args[n] = append(args[n], "--bootstrap-expect", fmt.Sprint(nodes), "--join", strings.Join(gossip, ","))
		}
		p, err := start(at, s.Program, args[n]...)
		if err != nil {
			return r, err
		}
		r.Processes = append(r.Processes, p)
	}
	all, err := client.New(strings.Join(urls, ",")) //nolint:contextcheck // its life is its own, until Close
	if err != nil {
		return r, err
	}
	r.SDK, r.URLs, r.Close = all, urls, func() { _ = all.Close() } // it is no longer in use
	err = r.Processes[0].await(ctx, func(ctx context.Context) (err error) {
		r.Version, err = belfryForms(ctx, all, nodes)
		return err
	})
	next := 0
	r.Caller = func(_ context.Context, k Kind) (Caller, error) {
		if k != Own {
			return &belfrySDK{all}, nil
		}
		next++
		return newBelfryUnary(urls[next%nodes]), nil
	}
	return r, err
}

// belfryForms returns the version once all nodes vote in each shard, nothing is moved any more, and the
// cluster writes the format of its nodes.
func belfryForms(ctx context.Context, c *client.Client, nodes int) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	state, err := c.Admin().Cluster(ctx)
	if err != nil {
		return "", err
	}
	for i := range state.Shards {
		if shard := &state.Shards[i]; len(shard.Voters) != nodes || shard.Leader == "" {
			return "", fmt.Errorf("shard %d has %d voters, and the leader %q", shard.Number, len(shard.Voters), shard.Leader)
		}
	}
	if len(state.Moves) > 0 {
		return "", fmt.Errorf("shard %d is not where it should be: %s", state.Moves[0].Shard, state.Moves[0].Text)
	}
	if latest := state.Nodes[0].Format; state.Format != latest {
		return "", fmt.Errorf("the cluster writes format %d, not yet %d", state.Format, latest)
	}
	return fmt.Sprintf("Belfry %s, %d shards", state.Nodes[0].Version, len(state.Shards)), nil
}

// belfrySDK is the client library, which all callers share.
type belfrySDK struct{ client *client.Client }

// Put implements Caller.
func (c *belfrySDK) Put(ctx context.Context, all Batch) error {
	puts, queue := make([]client.Put, len(all.Bodies)), QueueName(all.Queue)
	for n, body := range all.Bodies {
		puts[n] = client.Put{Queue: queue, Body: body, Options: []client.PutOption{client.In(all.Delay)}}
		if all.IDs != nil {
			puts[n].Options = append(puts[n].Options, client.ID(all.IDs[n]))
		}
	}
	if len(puts) == 1 {
		_, err := c.client.Put(ctx, puts[0].Queue, puts[0].Body, puts[0].Options...)
		return err
	}
	results, err := c.client.PutBatch(ctx, puts)
	for _, result := range results {
		err = errors.Join(err, result.Err)
	}
	return err
}

// Take implements Caller.
func (c *belfrySDK) Take(ctx context.Context, what Wanted, seen func([]byte)) (int, error) {
	jobs, err := c.client.Reserve(ctx, client.ReserveOptions{Queues: []string{QueueName(what.Queue)}, Max: what.Most,
		Wait: what.Wait})
	if err != nil || len(jobs) == 0 {
		return 0, err
	}
	leases := make([]string, len(jobs))
	for n, job := range jobs {
		seen(job.Body)
		leases[n] = job.Lease
	}
	if len(jobs) == 1 {
		return 1, jobs[0].Ack(ctx)
	}
	errs, err := c.client.AckBatch(ctx, leases)
	return len(jobs), errors.Join(err, errors.Join(errs...))
}

// Close implements Caller.
func (c *belfrySDK) Close() error { return nil }

// belfryUnary is a connection of one caller that makes plain Connect calls over HTTP/1.1, to one of
// the nodes whatever it leads.
type belfryUnary struct {
	transport *http.Transport
	queue     belfryv1connect.QueueServiceClient
}

func newBelfryUnary(url string) *belfryUnary {
	t := &http.Transport{DialContext: (&net.Dialer{}).DialContext, MaxIdleConnsPerHost: 1, DisableCompression: true}
	return &belfryUnary{t, belfryv1connect.NewQueueServiceClient(&http.Client{Transport: t},
		url, connect.WithAcceptCompression("gzip", nil, nil))}
}

// Put implements Caller.
func (c *belfryUnary) Put(ctx context.Context, all Batch) error {
	requests, queue := make([]*belfryv1.PutRequest, len(all.Bodies)), QueueName(all.Queue)
	for n, body := range all.Bodies {
		requests[n] = &belfryv1.PutRequest{Queue: queue, Body: &belfryv1.PutRequest_Data{Data: body}}
		if all.IDs != nil {
			requests[n].Id = all.IDs[n]
		}
		if all.Delay > 0 {
			requests[n].When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(all.Delay)}
		}
	}
	if len(requests) == 1 {
		_, err := c.queue.Put(ctx, requests[0])
		return err
	}
	answer, err := c.queue.PutBatch(ctx, &belfryv1.PutBatchRequest{Jobs: requests})
	if err != nil {
		return err
	}
	for _, result := range answer.GetResults() {
		if failure := result.GetError(); failure != nil {
			return fmt.Errorf("%s: %s", failure.GetReason(), failure.GetMessage())
		}
	}
	return nil
}

// Take implements Caller.
func (c *belfryUnary) Take(ctx context.Context, what Wanted, seen func([]byte)) (int, error) {
	answer, err := c.queue.Reserve(ctx, &belfryv1.ReserveRequest{
		//nolint:gosec // at most 1,000
		Queues: []string{QueueName(what.Queue)}, MaxJobs: uint32(what.Most), Wait: durationpb.New(what.Wait),
	})
	if err != nil || len(answer.GetJobs()) == 0 {
		return 0, err
	}
	leases := make([]string, len(answer.GetJobs()))
	for n, job := range answer.GetJobs() {
		seen(job.GetData())
		leases[n] = job.GetLease()
	}
	if len(leases) == 1 {
		_, err := c.queue.Ack(ctx, &belfryv1.AckRequest{Lease: leases[0]})
		return 1, err
	}
	acks, err := c.queue.AckBatch(ctx, &belfryv1.AckBatchRequest{Leases: leases})
	if err != nil {
		return 0, err
	}
	for _, result := range acks.GetResults() {
		if failure := result.GetError(); failure != nil {
			return 0, fmt.Errorf("%s: %s", failure.GetReason(), failure.GetMessage())
		}
	}
	return len(leases), nil
}

// Close implements Caller.
func (c *belfryUnary) Close() error {
	c.transport.CloseIdleConnections()
	return nil
}
