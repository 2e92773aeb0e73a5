package rpc

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// queueIn returns a queue's name whose home is a shard.
func (s *served) queueIn(shard uint32, stem string) string {
	return s.node.QueueIn(shard, stem)
}

func TestLongPollGetsJobWhenDue(t *testing.T) {
	s := serve(t)
	started := time.Now()
	if got := s.post("/v1/put", `{"queue":"a","text":"x","delay":"150ms"}`); got.status != 200 {
		t.Fatal(got.body)
	}
	got := s.post("/v1/reserve", `{"queues":["a"],"wait":"60s"}`)
	if waited := time.Since(started); !strings.Contains(got.body, `"text":"x"`) || waited < 150*time.Millisecond ||
		waited >= time.Minute {
		t.Errorf("after %v: %s", waited, got.body)
	}
}

func TestLongPollEndsEmpty(t *testing.T) {
	s := serve(t)
	started := time.Now()
	got := s.post("/v1/reserve", `{"queues":["a"],"wait":"50ms"}`)
	if got.status != 200 || !strings.HasPrefix(got.body, `{"jobs":[],"witnesses":[`) ||
		time.Since(started) < 50*time.Millisecond {
		t.Errorf("%d after %v: %s", got.status, time.Since(started), got.body)
	}
}

// TestQueuesInSeveralShards: the order given counts, whichever shards the queues live in.
func TestQueuesInSeveralShards(t *testing.T) {
	s := serve(t)
	c := belfryv1connect.NewQueueServiceClient(http.DefaultClient, s.url)
	queues := []string{s.queueIn(2, "x"), s.queueIn(0, "y"), s.queueIn(2, "z"), s.queueIn(1, "w")}
	for _, queue := range slices.Backward(queues) {
		if _, err := c.Put(t.Context(), &belfryv1.PutRequest{Queue: queue}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range queues {
		got, err := c.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: queues})
		if err != nil || len(got.GetJobs()) != 1 || got.GetJobs()[0].GetQueue() != want {
			t.Fatalf("%v, %v; want a job of %s", got, err, want)
		}
	}
	empty, err := c.Reserve(t.Context(), &belfryv1.ReserveRequest{
		Queues: queues, Wait: durationpb.New(30 * time.Millisecond),
	})
	if err != nil || len(empty.GetJobs()) != 0 || len(empty.GetWitnesses()) == 0 {
		t.Errorf("%v, %v", empty, err)
	}
}

// TestPollAcrossShardsWakes parks a poll in three shards and puts a job in each of them in turn.
func TestPollAcrossShardsWakes(t *testing.T) {
	s := serve(t)
	c := belfryv1connect.NewQueueServiceClient(http.DefaultClient, s.url)
	queues := []string{s.queueIn(0, "x"), s.queueIn(1, "y"), s.queueIn(2, "z")}
	for _, queue := range queues {
		got := make(chan *belfryv1.ReserveResponse, 1)
		go func() {
			res, err := c.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: queues, Wait: durationpb.New(time.Minute)})
			if err != nil {
				t.Error(err)
			}
			got <- res
		}()
		s.await("a poll in three shards", func() bool { return s.node.ParkedPolls() == 3 })
		if _, err := c.Put(t.Context(), &belfryv1.PutRequest{Queue: queue}); err != nil {
			t.Fatal(err)
		}
		if res := <-got; len(res.GetJobs()) != 1 || res.GetJobs()[0].GetQueue() != queue {
			t.Errorf("%v", res)
		}
		s.await("no poll", func() bool { return s.node.ParkedPolls() == 0 })
	}
}

// TestRepeatedReserveCollectsGrants: a reserve whose answer was lost is repeated with its request
// id.
func TestRepeatedReserveCollectsGrants(t *testing.T) {
	s := serve(t)
	c := belfryv1connect.NewQueueServiceClient(http.DefaultClient, s.url)
	for name, queues := range map[string][]string{
		"one shard": {s.queueIn(1, "a")}, "three shards": {s.queueIn(0, "x"), s.queueIn(1, "y"), s.queueIn(2, "z")},
	} {
		for range 3 {
			if _, err := c.Put(t.Context(), &belfryv1.PutRequest{Queue: queues[len(queues)-1]}); err != nil {
				t.Fatal(err)
			}
		}
		req := &belfryv1.ReserveRequest{Queues: queues, MaxJobs: 2, RequestId: name}
		first, err := c.Reserve(t.Context(), req)
		if err != nil || len(first.GetJobs()) != 2 {
			t.Fatalf("%s: %v, %v", name, first, err)
		}
		// A job in a queue that comes first must not tempt the repeat.
		if _, err := c.Put(t.Context(), &belfryv1.PutRequest{Queue: queues[0]}); err != nil {
			t.Fatal(err)
		}
		again, err := c.Reserve(t.Context(), req)
		if err != nil || len(again.GetJobs()) != 2 || again.GetJobs()[0].GetLease() != first.GetJobs()[0].GetLease() {
			t.Fatalf("%s: the repeat got %v, %v", name, again, err)
		}
		for _, job := range first.GetJobs() {
			if _, err := c.Ack(t.Context(), &belfryv1.AckRequest{Lease: job.GetLease()}); err != nil {
				t.Fatal(err)
			}
		}
		if third, err := c.Reserve(t.Context(), req); err != nil || len(third.GetJobs()) == 0 ||
			third.GetJobs()[0].GetLease() == first.GetJobs()[0].GetLease() {
			t.Errorf("%s: with nothing held the repeat got %v, %v", name, third, err)
		}
	}
}

// TestManyPollsOnOneConnection parks 2,000 polls of one client and serves them all.
func TestManyPollsOnOneConnection(t *testing.T) {
	const polls = 2000
	s := serve(t)
	var dials atomic.Int32
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			var d net.Dialer
			return d.DialContext(ctx, network, addr)
		}}
	defer transport.CloseIdleConnections()
	c := belfryv1connect.NewQueueServiceClient(&http.Client{Transport: transport}, s.url)
	if _, err := c.Put(t.Context(), &belfryv1.PutRequest{Queue: "warm"}); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	var jobs atomic.Int32
	for i := range polls {
		group.Go(func() {
			res, err := c.Reserve(t.Context(), &belfryv1.ReserveRequest{
				Queues: []string{"q" + strconv.Itoa(i)}, Wait: durationpb.New(time.Minute),
			})
			if err != nil {
				t.Error(err)
			}
			jobs.Add(int32(len(res.GetJobs())))
		})
	}
	s.await("2,000 parked polls", func() bool { return s.node.ParkedPolls() == polls })
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	var all []*belfryv1.PutRequest
	for i := range polls {
		all = append(all, &belfryv1.PutRequest{Queue: "q" + strconv.Itoa(i)})
	}
	for puts := range slices.Chunk(all, 1000) { // one by one they would come too late on a busy machine
		if _, err := c.PutBatch(t.Context(), &belfryv1.PutBatchRequest{Jobs: puts}); err != nil {
			t.Fatal(err)
		}
	}
	group.Wait()
	if jobs.Load() != polls || dials.Load() != 1 {
		t.Errorf("%d jobs over %d connections", jobs.Load(), dials.Load())
	}
}

// TestDrainEndsPolls: polls that wait are answered at once when the server stops, so that Shutdown
// is quick.
func TestDrainEndsPolls(t *testing.T) {
	s := serve(t)
	two := belfryv1connect.NewQueueServiceClient(h2c(t), s.url)
	one := belfryv1connect.NewQueueServiceClient(http.DefaultClient, s.url)
	var group sync.WaitGroup
	for i, c := range []belfryv1connect.QueueServiceClient{one, two, one, two} {
		queues := []string{"a"}
		if i > 1 {
			queues = []string{s.queueIn(0, "x"), s.queueIn(1, "y")}
		}
		group.Go(func() {
			res, err := c.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: queues, Wait: durationpb.New(time.Minute)})
			if err != nil || len(res.GetJobs()) != 0 {
				t.Errorf("poll %d: %v, %v", i, res, err)
			}
		})
	}
	s.await("parked polls", func() bool { return s.node.ParkedPolls() == 6 })
	s.server.Drain()
	group.Wait()
	if _, err := one.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: []string{"a"}}); reasonOf(t,
		err) != belfryv1.Reason_REASON_SHUTTING_DOWN {
		t.Errorf("a new poll: %v", err)
	}
	if _, err := one.Put(t.Context(), &belfryv1.PutRequest{Queue: "a"}); err != nil {
		t.Errorf("a put while draining: %v", err)
	}
	if got := s.send(http.MethodGet, "/readyz", ""); got.status != http.StatusServiceUnavailable ||
		!strings.Contains(got.body, "[-]serving failed: the server is stopping") {
		t.Errorf("%d %s", got.status, got.body)
	}
	ctx, cancel := context.WithTimeout(t.Context(), awaitMax)
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// TestGrantForNobodyIsGivenBack: the client left after its job was granted and before it was
// answered.
func TestGrantForNobodyIsGivenBack(t *testing.T) {
	s := serve(t)
	q := s.server.handler.queues
	for id, want := range map[string]int{"": 1, "r-1": 0} {
		if got := s.post("/v1/put", `{"queue":"gone`+id+`"}`); got.status != 200 {
			t.Fatal(got.body)
		}
		ctx, leave := context.WithCancel(t.Context())
		s.node.Fail = func(uint32) error {
			leave()
			return nil
		}
		req := &belfryv1.ReserveRequest{Queues: []string{"gone" + id}, RequestId: id}
		if _, err := q.Reserve(ctx, req); (err != nil) != (id == "") {
			t.Errorf("%q: %v", id, err)
		}
		s.node.Fail = nil
		res, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: req.GetQueues()})
		if err != nil || len(res.GetJobs()) != want {
			t.Errorf("%q: %v, %v", id, res, err)
		}
		leave()
	}
}

// TestAReserveIsBoundedInBytes: large jobs come in several answers, each at least one.
func TestAReserveIsBoundedInBytes(t *testing.T) {
	s := serve(t)
	q, _ := s.bothClients()
	for range 6 {
		if _, err := q.Put(t.Context(), &belfryv1.PutRequest{
			Queue: "a", Body: &belfryv1.PutRequest_Data{Data: make([]byte, 1<<20)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []int{4, 2, 0} {
		res, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: []string{"a"}, MaxJobs: 100})
		if err != nil || len(res.GetJobs()) != want {
			t.Errorf("answer %d: %d jobs, %v; want %d", i, len(res.GetJobs()), err, want)
		}
	}
}
