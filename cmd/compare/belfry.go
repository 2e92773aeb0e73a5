package main

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

func belfryPeers() []peer {
	one := func(name, keeps string, nodes int) peer {
		return peer{name: name, keeps: keeps, belfry: true, start: func(ctx context.Context, s *stage) (*running, error) {
			return startBelfry(ctx, s, nodes)
		}}
	}
	return []peer{
		one("belfry-one", "the put", 1),
		one("belfry-three", "the put, on two of three", 3),
	}
}

// startBelfry runs a cluster with the settings that it has by itself, and returns once every node votes in all shards.
func startBelfry(ctx context.Context, s *stage, nodes int) (*running, error) {
	r := &running{}
	var urls, gossip []string
	var args [][]string
	for n := range nodes {
		var addresses [3]string
		for i := range addresses {
			var err error
			if addresses[i], err = s.addresses.Free(); err != nil {
				return r, err
			}
		}
		urls, gossip = append(urls, "http://"+addresses[0]), append(gossip, addresses[2])
		args = append(args, []string{
			"serve", "--node-id", fmt.Sprintf("n%d", n+1), "--listen", addresses[0], "--peer-listen", addresses[1],
			"--gossip-listen", addresses[2],
			"--log-format", "text",
		})
	}
	dir := s.newDir("belfry")
	for n := range nodes {
		at := filepath.Join(dir, fmt.Sprintf("n%d", n+1))
		args[n] = append(args[n], "--data", filepath.Join(at, "data"))
		if nodes > 1 {
			args[n] = append(args[n], "--bootstrap-expect", fmt.Sprint(nodes), "--join", strings.Join(gossip, ","))
		}
		p, err := start(at, s.belfry, args[n]...)
		if err != nil {
			return r, err
		}
		r.processes = append(r.processes, p)
	}
	all, err := client.New(strings.Join(urls, ",")) //nolint:contextcheck // its life is its own, until Close
	if err != nil {
		return r, err
	}
	r.sdk, r.urls, r.close = all, urls, func() { _ = all.Close() } // nobody is left to use it
	err = r.processes[0].await(ctx, func(ctx context.Context) (err error) {
		r.version, err = belfryForms(ctx, all, nodes)
		return err
	})
	next := 0
	r.caller = func(_ context.Context, k kind) (caller, error) {
		if k != own {
			return &belfrySDK{all}, nil
		}
		next++
		return newBelfryUnary(urls[next%nodes]), nil
	}
	return r, err
}

// belfryForms returns the version once all nodes vote in each shard, and nothing is moved any more.
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
	return fmt.Sprintf("Belfry %s, %d shards", state.Nodes[0].Version, len(state.Shards)), nil
}

// belfrySDK is the client library, which all callers share.
type belfrySDK struct{ client *client.Client }

func (c *belfrySDK) put(ctx context.Context, all jobs) error {
	puts, queue := make([]client.Put, len(all.bodies)), queueName(all.queue)
	for n, body := range all.bodies {
		puts[n] = client.Put{Queue: queue, Body: body, Options: []client.PutOption{client.In(all.delay)}}
		if all.ids != nil {
			puts[n].Options = append(puts[n].Options, client.ID(all.ids[n]))
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

func (c *belfrySDK) take(ctx context.Context, what taking, seen func([]byte)) (int, error) {
	jobs, err := c.client.Reserve(ctx, client.ReserveOptions{Queues: []string{queueName(what.queue)}, Max: what.most,
		Wait: what.wait})
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

func (c *belfrySDK) close() error { return nil }

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

func (c *belfryUnary) put(ctx context.Context, all jobs) error {
	requests, queue := make([]*belfryv1.PutRequest, len(all.bodies)), queueName(all.queue)
	for n, body := range all.bodies {
		requests[n] = &belfryv1.PutRequest{Queue: queue, Body: &belfryv1.PutRequest_Data{Data: body}}
		if all.ids != nil {
			requests[n].Id = all.ids[n]
		}
		if all.delay > 0 {
			requests[n].When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(all.delay)}
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

func (c *belfryUnary) take(ctx context.Context, what taking, seen func([]byte)) (int, error) {
	answer, err := c.queue.Reserve(ctx, &belfryv1.ReserveRequest{
		//nolint:gosec // at most 1,000
		Queues: []string{queueName(what.queue)}, MaxJobs: uint32(what.most), Wait: durationpb.New(what.wait),
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

func (c *belfryUnary) close() error {
	c.transport.CloseIdleConnections()
	return nil
}
