package clustertrial

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/client/admin"
	"github.com/belfrydb/belfry/cmd/belfry/processtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

const (
	// probeWait is how long a plain call may take before it is given up and made anew.
	probeWait = time.Second
	// probePause is the time between two plain calls.
	probePause = 2 * time.Millisecond
	// probeDelay keeps what a probe puts from being delivered.
	probeDelay = 24 * time.Hour
)

// plain returns a client for single calls to one node, each of which is made once: what anybody
// with an HTTP client has.
func plain(m *member) belfryv1connect.QueueServiceClient {
	return belfryv1connect.NewQueueServiceClient(&http.Client{Transport: &http.Transport{}}, m.url)
}

// queues returns the names of queues, one for each shard by its number, all beginning with prefix.
func (c *cluster) queues(prefix string) []string {
	c.t.Helper()
	names := make([]string, len(c.await("the shards", func(s *admin.Cluster) bool { return len(s.Shards) > 0 }).Shards))
	for i, missing := 0, len(names); missing > 0; i++ {
		name := fmt.Sprintf("%s-%d", prefix, i)
		if shard := c.shardOf(name); names[shard] == "" {
			names[shard] = name
			missing--
		}
	}
	return names
}

// shardOf returns the shard of a queue: the answer to a put says which it is. On a busy machine its
// leader may be lost just then.
func (c *cluster) shardOf(queue string) uint32 {
	c.t.Helper()
	first := c.running()[0]
	to := plain(first)
	var put *belfryv1.PutResponse
	var err error
	c.awaitThat("the shard of "+queue, func(ctx context.Context) bool {
		put, err = to.Put(ctx, probe(queue))
		return err == nil
	}, func() { c.t.Log(err) })
	if _, err := first.client.Cancel(c.t.Context(), queue, put.Id); err != nil {
		c.t.Fatalf("taking back a job of %s: %v", queue, err)
	}
	return put.Witness.Shard
}

func probe(queue string) *belfryv1.PutRequest {
	return &belfryv1.PutRequest{Queue: queue, When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(probeDelay)}}
}

// acceptsAgain makes plain calls, one after the other, until a put and then a reserve succeed that
// began after now, and returns how long that took.
func acceptsAgain(ctx context.Context, m *member, queue string) (time.Duration, error) {
	began, to := time.Now(), plain(m)
	pause := time.NewTicker(probePause)
	defer pause.Stop()
	for {
		err := putOnce(ctx, to, queue)
		if err == nil {
			err = reserveOnce(ctx, to, queue)
		}
		if err == nil {
			return time.Since(began), nil
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("%s does not serve %s: %w", m.name, queue, err)
		}
	}
}

func putOnce(ctx context.Context, to belfryv1connect.QueueServiceClient, queue string) error {
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	_, err := to.Put(ctx, probe(queue))
	return err
}

// reserveOnce looks for jobs that are due. There are none.
func reserveOnce(ctx context.Context, to belfryv1connect.QueueServiceClient, queue string) error {
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	_, err := to.Reserve(ctx, &belfryv1.ReserveRequest{Queues: []string{queue}})
	return err
}

// outage is how long shards took no puts, and what it was measured by.
type outage struct {
	mu sync.Mutex
	// plain is until a plain call through a surviving node succeeds, sdk how long a put takes that the
	// SDK is given at once.
	plain, sdk processtest.Durations
	errs       []error
}

// measure measures, from now on, until each of the queues takes puts again, through a node and
// through the SDK.
func (o *outage) measure(c *cluster, through *member, queues []string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), waitMax)
	defer cancel()
	sdk := c.client() // new, so that its first address may be the one that is gone
	var measuring sync.WaitGroup
	for _, queue := range queues {
		measuring.Go(func() {
			took, err := acceptsAgain(ctx, through, queue)
			o.enter(&o.plain, took, err)
		})
		measuring.Go(func() {
			began := time.Now()
			_, err := sdk.Put(ctx, queue, nil, inADay)
			o.enter(&o.sdk, time.Since(began), err)
		})
	}
	measuring.Wait()
	for _, err := range o.errs {
		c.t.Error(err)
	}
	o.errs = nil
}

func (o *outage) enter(into *processtest.Durations, took time.Duration, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.errs = append(o.errs, err)
		return
	}
	*into = append(*into, took)
}

// isReady asks a node as a load balancer does.
func isReady(ctx context.Context, m *member) bool {
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}
