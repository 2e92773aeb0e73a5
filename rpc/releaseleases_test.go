package rpc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// withHolders is a cluster in which jobs note who holds them.
func withHolders(cfg *Config) {
	cluster := healthyCluster()
	cluster.format = fsm.LatestFormat
	cfg.Cluster = cluster
}

// held is a server with a queue of three partitions, and its clients.
type held struct {
	*served
	q belfryv1connect.QueueServiceClient
	a belfryv1connect.AdminServiceClient
	// puts counts the jobs that were put.
	puts int
}

func newHeld(t *testing.T, change ...func(*Config)) *held {
	s := serve(t, append([]func(*Config){withHolders}, change...)...)
	s.node.Format = fsm.LatestFormat
	h := &held{served: s}
	h.q, h.a = s.bothClients()
	s.call("create-queue", `{"queue":"q","partitions":3}`)
	return h
}

// put puts jobs that are due, into all partitions.
func (h *held) put(n int) {
	h.t.Helper()
	for from := 0; from < n; from += 1000 {
		batch := &belfryv1.PutBatchRequest{}
		for range min(n-from, 1000) {
			h.puts++
			batch.Jobs = append(batch.Jobs, &belfryv1.PutRequest{Queue: "q", Id: fmt.Sprintf("job/%d", h.puts)})
		}
		if _, err := h.q.PutBatch(h.t.Context(), batch); err != nil {
			h.t.Fatal(err)
		}
	}
}

// reserve has a consumer take jobs, as many as there are up to n, and returns them.
func (h *held) reserve(consumer string, n uint32) (jobs []*belfryv1.Job) {
	h.t.Helper()
	for uint32(len(jobs)) < n {
		ctx, info := connect.NewClientContext(h.t.Context())
		info.RequestHeader().Set("Belfry-Client", consumer)
		res, err := h.q.Reserve(ctx, &belfryv1.ReserveRequest{
			Queues: []string{"q"}, MaxJobs: min(n-uint32(len(jobs)), 1000), Ttr: durationpb.New(time.Hour),
		})
		if err != nil {
			h.t.Fatal(err)
		}
		if len(res.Jobs) == 0 {
			break
		}
		jobs = append(jobs, res.Jobs...)
	}
	return jobs
}

// releases makes a call, whose answer must have these numbers. It returns the answer.
func (h *held) releases(req *belfryv1.ReleaseLeasesRequest, released, skipped uint32) *belfryv1.ReleaseLeasesResponse {
	h.t.Helper()
	req.Queue = "q"
	res, err := h.a.ReleaseLeases(h.t.Context(), req)
	if err != nil || res.Released != released || res.Skipped != skipped {
		h.t.Errorf("%v: %v, %v; want %d released, %d skipped", req, res, err, released, skipped)
	}
	return res
}

// TestReleaseLeases: the jobs of a consumer are ready at once, with the attempt given back, in all
// partitions; its leases are stale, and those of others are not touched.
func TestReleaseLeases(t *testing.T) {
	h := newHeld(t)
	h.put(12)
	gone, stays := h.reserve("worker-1", 7), h.reserve("worker-2", 5)
	if len(gone) != 7 || len(stays) != 5 {
		t.Fatalf("%d and %d jobs are reserved", len(gone), len(stays))
	}
	res := h.releases(&belfryv1.ReleaseLeasesRequest{Client: "worker-1@127.0.0.1"}, 7, 0)
	if res.NextPageToken != "" || len(res.Witnesses) == 0 {
		t.Errorf("the answer is %v", res)
	}
	if got := h.counts("q"); got != "0 7 5 0" {
		t.Errorf("delayed, ready, reserved and dead: %s", got)
	}
	for i, lease := range []string{gone[0].Lease, stays[0].Lease} {
		_, err := h.q.Ack(t.Context(), &belfryv1.AckRequest{Lease: lease})
		if i == 0 && reasonOf(t, err) != belfryv1.Reason_REASON_STALE_LEASE || i == 1 && err != nil {
			t.Errorf("ack %d: %v", i, err)
		}
	}
	for _, job := range h.reserve("worker-3", 7) {
		if job.Attempt != 1 {
			t.Errorf("the attempt counted: %v", job)
		}
	}
	if got := h.counts("q"); got != "0 0 11 0" {
		t.Errorf("taken again: %s", got)
	}
	h.releases(&belfryv1.ReleaseLeasesRequest{Client: "worker-1@127.0.0.1"}, 0, 0)
	h.releases(&belfryv1.ReleaseLeasesRequest{Client: "worker-1"}, 0, 0)
}

// TestReleasedJobsOfAPausedQueue: they wait for its end.
func TestReleasedJobsOfAPausedQueue(t *testing.T) {
	h := newHeld(t)
	h.put(2)
	h.reserve("w", 2)
	h.call("update-queue", `{"queue":"q","settings":{"paused":true}}`)
	h.releases(&belfryv1.ReleaseLeasesRequest{Client: "w@127.0.0.1"}, 2, 0)
	if jobs := h.reserve("other", 1); len(jobs) != 0 {
		t.Errorf("the paused queue handed out %v", jobs)
	}
	h.call("update-queue", `{"queue":"q","settings":{"paused":false}}`)
	if jobs := h.reserve("other", 2); len(jobs) != 2 {
		t.Errorf("after the pause it handed out %v", jobs)
	}
}

// TestReleaseLeasesOfBefore: a consumer that has come back under the same name keeps what it has
// reserved since.
func TestReleaseLeasesOfBefore(t *testing.T) {
	h := newHeld(t)
	h.put(4)
	h.reserve("w", 3)
	between := time.Now()
	h.node.Now = func() time.Time { return between.Add(time.Second) }
	last := h.reserve("w", 1)
	req := &belfryv1.ReleaseLeasesRequest{Client: "w@127.0.0.1", ReservedBefore: timestamppb.New(between.Add(time.Second))}
	h.releases(req, 3, 0)
	if _, err := h.q.Ack(t.Context(), &belfryv1.AckRequest{Lease: last[0].Lease}); err != nil {
		t.Error(err)
	}
}

// TestReleaseLeasesByPages: a call releases no more than its max, and its token goes on behind it. So
// the end is reached although the consumer lives, and takes its jobs again and again. More held jobs
// of others than one query reads are passed over.
func TestReleaseLeasesByPages(t *testing.T) {
	h := newHeld(t)
	h.put(7)
	if got := len(h.reserve("w", 7)); got != 7 {
		t.Fatalf("%d", got)
	}
	req := &belfryv1.ReleaseLeasesRequest{Client: "w@127.0.0.1", Max: 2, RequestId: "r"}
	for _, want := range []uint32{2, 2, 2, 1} {
		res := h.releases(req, want, 0)
		if got := len(h.reserve("w", want)); got != int(want) {
			t.Errorf("%d jobs are ready again, want %d", got, want)
		}
		if last := want == 1; last != (res.NextPageToken == "") {
			t.Errorf("after %d: %v", want, res)
		}
		req.PageToken = res.NextPageToken
	}

	h.call("purge-queue", `{"queue":"q","states":["RESERVED"]}`)
	h.put(4000)
	if got := len(h.reserve("others", 3990)); got != 3990 {
		t.Fatal(got)
	}
	h.reserve("w", 10)
	h.releases(&belfryv1.ReleaseLeasesRequest{Client: "w@127.0.0.1", RequestId: "s"}, 10, 0)
	res := h.releases(&belfryv1.ReleaseLeasesRequest{Client: "others@127.0.0.1", RequestId: "s"}, 1000, 0)
	if got := h.counts("q"); got != "0 1010 2990 0" || res.NextPageToken == "" {
		t.Errorf("%s, %v", got, res)
	}
}

// racing is a node on which something happens before the next request to a shard.
type racing struct {
	backend.Node
	before func()
}

func (n *racing) Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error) {
	if before := n.before; before != nil && req.Commands[0].Kind() == fsm.KindRelease {
		n.before = nil
		before()
	}
	return n.Node.Do(ctx, shard, req)
}

// TestReleaseLeasesSkips: a job that was acked, or that another consumer has, by the time that its turn
// comes is not touched.
func TestReleaseLeasesSkips(t *testing.T) {
	race := &racing{}
	h := newHeld(t, func(cfg *Config) { race.Node, cfg.Node = cfg.Node, race })
	h.put(30)
	var jobs []*belfryv1.Job // of the partition that is first
	for _, job := range h.reserve("w", 30) {
		if ref, err := wire.ParseLease(job.Lease); err != nil || ref.Partition == 0 {
			jobs = append(jobs, job)
		}
	}
	race.before = func() {
		if _, err := h.q.Ack(t.Context(), &belfryv1.AckRequest{Lease: jobs[0].Lease}); err != nil {
			t.Error(err)
		}
		nack := &belfryv1.NackRequest{Lease: jobs[1].Lease, Delay: durationpb.New(0)}
		if _, err := h.q.Nack(t.Context(), nack); err != nil {
			t.Error(err)
		}
		if got := h.reserve("other", 1); len(got) != 1 || got[0].Id != jobs[1].Id {
			t.Errorf("another has %v", got)
		}
		// This one stays under the same lease, so it is released all the same.
		if _, err := h.q.Extend(t.Context(), &belfryv1.ExtendRequest{Lease: jobs[2].Lease}); err != nil {
			t.Error(err)
		}
	}
	h.releases(&belfryv1.ReleaseLeasesRequest{Client: "w@127.0.0.1"}, 28, 2)
	if got := h.counts("q"); got != "0 28 1 0" {
		t.Errorf("delayed, ready, reserved and dead: %s", got)
	}
}

// TestReleaseLeasesPartly: if a shard has no leader, the error names it and says what was done. A
// repeat does the rest, and takes nothing that was reserved since.
func TestReleaseLeasesPartly(t *testing.T) {
	h := newHeld(t)
	start := time.Now()
	h.node.Now = func() time.Time { return start }
	h.put(30)
	h.reserve("w", 30)
	last := node.ShardOf("q", 2, 3)
	h.node.Fail = func(shard uint32) error {
		if shard == last {
			return node.ErrNoLeader
		}
		return nil
	}
	req := &belfryv1.ReleaseLeasesRequest{Queue: "q", Client: "w@127.0.0.1", RequestId: "r-1",
		ReservedBefore: timestamppb.New(start.Add(time.Millisecond))}
	_, err := h.a.ReleaseLeases(t.Context(), req)
	f, ok := fault.FromConnect(err)
	if !ok || f.Reason != belfryv1.Reason_REASON_UNKNOWN_OUTCOME || f.Count == nil || *f.Count == 0 || f.Shard == nil ||
		*f.Shard != last || !strings.Contains(f.Message, "no leader") {
		t.Fatalf("%v: %+v", err, f)
	}
	h.node.Fail = nil
	h.node.Now = func() time.Time { return start.Add(time.Second) }
	done := uint32(*f.Count)
	if got := len(h.reserve("w", done)); got != int(done) {
		t.Fatalf("%d jobs are ready again, want %d", got, done)
	}
	h.releases(req, 30-done, 0)
	h.releases(req, 0, 0)
	req.ReservedBefore = nil
	h.releases(req, done, 0)

	first := node.ShardOf("q", 0, 3)
	h.node.Fail = func(shard uint32) error {
		if shard == first {
			return node.ErrNoLeader
		}
		return nil
	}
	if _, err := h.a.ReleaseLeases(t.Context(), req); reasonOf(t, err) != belfryv1.Reason_REASON_NO_LEADER {
		t.Errorf("nothing was done, and yet: %v", err)
	}
}

// TestReleaseLeasesRefusals: what a call cannot be, with the field.
func TestReleaseLeasesRefusals(t *testing.T) {
	h := newHeld(t)
	h.put(3)
	h.reserve("w", 3)
	token := h.releases(&belfryv1.ReleaseLeasesRequest{Client: "w@127.0.0.1", Max: 1}, 1, 0).NextPageToken
	const invalid, tooLarge = belfryv1.Reason_REASON_INVALID, belfryv1.Reason_REASON_TOO_LARGE
	type asked = belfryv1.ReleaseLeasesRequest
	for name, tc := range map[string]struct {
		req    *asked
		reason belfryv1.Reason
		field  string
	}{
		"no consumer":        {&asked{}, invalid, "client"},
		"a long consumer":    {&asked{Client: strings.Repeat("c", 257)}, tooLarge, "client"},
		"a name of no queue": {&asked{Queue: "a b", Client: "w"}, invalid, "queue"},
		"too many":           {&asked{Client: "w", Max: 1001}, invalid, "max"},
		"a time that is none": {&asked{Client: "w", ReservedBefore: &timestamppb.Timestamp{Nanos: -1}}, invalid,
			"reservedBefore"},
		"a long request id":             {&asked{Client: "w", RequestId: strings.Repeat("r", 65)}, tooLarge, "requestId"},
		"the token of another consumer": {&asked{Client: "x", PageToken: token}, invalid, "pageToken"},
		"the token of another time": {&asked{Client: "w@127.0.0.1", PageToken: token, ReservedBefore: timestamppb.Now()},
			invalid, "pageToken"},
	} {
		if tc.req.Queue == "" {
			tc.req.Queue = "q"
		}
		_, err := h.a.ReleaseLeases(t.Context(), tc.req)
		t.Run(name, func(t *testing.T) { checkRefusal(t, err, tc.reason, tc.field) })
	}
	_, err := h.a.ReleaseLeases(t.Context(), &belfryv1.ReleaseLeasesRequest{Queue: "none", Client: "w"})
	if reasonOf(t, err) != belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
		t.Errorf("of no queue: %v", err)
	}
	if got := h.counts("q"); got != "0 1 2 0" {
		t.Errorf("a refusal released: %s", got)
	}
}

// TestReleaseLeasesWhileUpgrading: it is said that it is not known yet who holds jobs.
func TestReleaseLeasesWhileUpgrading(t *testing.T) {
	h := newHeld(t, func(cfg *Config) { cfg.Cluster = healthyCluster() })
	_, err := h.a.ReleaseLeases(t.Context(), &belfryv1.ReleaseLeasesRequest{Queue: "q", Client: "w"})
	if reasonOf(t, err) != belfryv1.Reason_REASON_UNIMPLEMENTED || !strings.Contains(err.Error(), "is at format 2") {
		t.Errorf("%v", err)
	}
}

// TestReleaseLeasesIsAudited: with the queue and the consumer.
func TestReleaseLeasesIsAudited(t *testing.T) {
	h := newHeld(t)
	h.put(1)
	h.call("release-leases", `{"queue":"q","client":"w@10.0.0.7"}`)
	log := h.log.String()
	if !strings.Contains(log, "AdminService/ReleaseLeases") || !strings.Contains(log, "w@10.0.0.7") {
		t.Errorf("the audit log: %s", log)
	}
}
