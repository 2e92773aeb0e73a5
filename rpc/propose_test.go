package rpc

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// recordingNode notes what is proposed.
type recordingNode struct {
	*backendtest.Node
	mu       sync.Mutex
	proposed []proposal
}

// proposal is one request of one shard.
type proposal struct {
	Shard uint32
	ID    string
	Kinds []fsm.Kind
}

func (r *recordingNode) Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error) {
	p := proposal{Shard: shard, ID: req.ID}
	for _, c := range req.Commands {
		p.Kinds = append(p.Kinds, c.Kind())
	}
	r.mu.Lock()
	r.proposed = append(r.proposed, p)
	r.mu.Unlock()
	return r.Node.Do(ctx, shard, req)
}

// take returns what was proposed since the last call.
func (r *recordingNode) take() []proposal {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.proposed
	r.proposed = nil
	return p
}

// TestWhatIsProposed checks the requests that calls become: one for each shard, with the caller's
// request id.
func TestWhatIsProposed(t *testing.T) {
	r := &recordingNode{Node: backendtest.NewNode(3)}
	s := serve(t, func(c *Config) { c.Node = r })
	a, b := s.queueIn(0, "a"), s.queueIn(2, "b")
	lease := wire.FormatLease(fsm.Ref{Queue: a, Serial: 1, Fence: 1})
	for _, c := range []struct {
		path, body string
		want       []proposal
	}{
		{"/v1/put", `{"queue":"` + a + `","requestId":"r"}`, []proposal{{0, "r", []fsm.Kind{fsm.KindPut}}}},
		{"/v1/put", `{"queue":"` + b + `"}`, []proposal{{2, "", []fsm.Kind{fsm.KindPut}}}},
		{"/v1/put-batch", `{"requestId":"b","jobs":[{"queue":"` + a + `"},{"queue":"` + a + `"},{"queue":"bad queue"}]}`,
			[]proposal{{0, "b#/queue/" + a, []fsm.Kind{fsm.KindPut, fsm.KindPut}}}},
		{"/v1/put-batch", `{"jobs":[{"queue":"bad queue"}]}`, nil},
		{"/v1/put", `{"queue":"` + a + `","dealy":1}`, nil},
		{"/v1/put", `{"queue":"` + a + `","delay":-1}`, nil},
		{"/v1/ack", `{"lease":"` + lease + `","requestId":"k"}`, []proposal{{0, "k", []fsm.Kind{fsm.KindAck}}}},
		{"/v1/ack-batch", `{"leases":["` + lease + `","x","` + lease + `"]}`,
			[]proposal{{0, "", []fsm.Kind{fsm.KindAck, fsm.KindAck}}}},
		{"/v1/nack", `{"lease":"` + lease + `"}`, []proposal{{0, "", []fsm.Kind{fsm.KindNack}}}},
		{"/v1/cancel", `{"queue":"` + b + `","id":"x"}`, []proposal{{2, "", []fsm.Kind{fsm.KindCancel}}}},
		{"/v1/cancel", `{"queue":"` + b + `","id":"5-1"}`, nil},
		{"/v1/get", `{"queue":"` + b + `","id":"x"}`, nil},
		{"/v1/list", `{"queue":"` + b + `"}`, nil},
		{"/v1/purge-queue", `{"queue":"` + b + `","requestId":"p"}`, []proposal{{2, "p", []fsm.Kind{fsm.KindPurge}}}},
		{"/v1/update-queue", `{"queue":"` + b + `","settings":{"ttr":"1m"}}`,
			[]proposal{{2, "", []fsm.Kind{fsm.KindOpen, fsm.KindConfigure}}}},
	} {
		s.post(c.path, c.body)
		if diff := cmp.Diff(c.want, r.take()); diff != "" {
			t.Errorf("%s %s:\n%s", c.path, c.body, diff)
		}
	}
}

// TestBatchOverShardsKeepsOrder: the parts of a batch go to their shards side by side; the answers
// come back in order.
func TestBatchOverShardsKeepsOrder(t *testing.T) {
	s := serve(t)
	q, _ := s.bothClients()
	queues := []string{s.queueIn(0, "a"), s.queueIn(1, "b"), s.queueIn(2, "c")}
	req := &belfryv1.PutBatchRequest{RequestId: "r"}
	for i := range 60 {
		req.Jobs = append(req.Jobs, &belfryv1.PutRequest{Queue: queues[i%3], Id: "job" + strconv.Itoa(i)})
	}
	for round := range 2 {
		res, err := q.PutBatch(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range res.GetResults() {
			if r.GetPut().GetId() != "job"+strconv.Itoa(i) || r.GetPut().GetWitness().GetShard() != uint32(i%3) ||
				r.GetPut().GetWitness().GetEntry() != uint32(i/3) || !r.GetPut().GetCreated() {
				t.Errorf("round %d, entry %d: %v", round, i, r)
			}
		}
	}
	if res, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{
		Queues: queues[:1], MaxJobs: 1000,
	}); err != nil || len(res.GetJobs()) != 20 {
		t.Errorf("%d jobs, %v", len(res.GetJobs()), err)
	}
}

// TestPollAnswersBeforeItsDeadline: a deadline of the client that is shorter than its wait shortens
// the wait. That nothing was due by then is an answer, not an error. The machine may be busy just
// then, so one of a few answers is enough; one that always comes too late never passes.
func TestPollAnswersBeforeItsDeadline(t *testing.T) {
	const tries = 10
	s := serve(t)
	var polling sync.WaitGroup
	defer polling.Wait()
	for name, c := range s.clients() {
		polling.Go(func() {
			var err error
			for range tries {
				if err = pollUntilDeadline(t.Context(), c); err == nil {
					return
				}
			}
			t.Errorf("%s: %v", name, err)
		})
	}
	var got answered
	for range tries {
		got = s.send(http.MethodPost, "/v1/reserve", `{"queues":["a"],"wait":"20s"}`, "Content-Type", "application/json",
			"Connect-Timeout-Ms", "3000")
		if got.status == 200 && strings.HasPrefix(got.body, `{"jobs":[]`) {
			return
		}
	}
	t.Errorf("HTTP: %d %s, want 200 and no jobs", got.status, got.body)
}

// pollUntilDeadline waits for jobs, of which there are none, for longer than its deadline allows.
func pollUntilDeadline(ctx context.Context, c belfryv1connect.QueueServiceClient) error {
	// So long that the answer has the most time that is kept for it: a busy machine needs some.
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	res, err := c.Reserve(ctx, &belfryv1.ReserveRequest{Queues: []string{"a"}, Wait: durationpb.New(time.Minute)})
	if err == nil && len(res.GetJobs()) > 0 {
		err = fmt.Errorf("it got %v", res)
	}
	return err
}

// TestAClientThatLeftIsNoOverload: a call that its client ended does not count as refused.
func TestAClientThatLeftIsNoOverload(t *testing.T) {
	for _, c := range []struct {
		err  error
		want connect.Code
	}{
		{context.Canceled, connect.CodeCanceled},
		{context.DeadlineExceeded, connect.CodeDeadlineExceeded},
		{fmt.Errorf("%w: %w", node.ErrCanceled, context.Canceled), connect.CodeCanceled},
		{fmt.Errorf("%w: %w", node.ErrCanceled, context.DeadlineExceeded), connect.CodeDeadlineExceeded},
		{node.ErrOverloaded, connect.CodeResourceExhausted},
		{fmt.Errorf("%w: %w", node.ErrUnknownOutcome, context.Canceled), connect.CodeUnavailable},
	} {
		f := fault.Of(c.err)
		if got := connect.CodeOf(f.Wire()); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
		if known, _ := fault.FromConnect(f.Wire()); known.Reason != f.Reason || known.Outcome() != f.Outcome() {
			t.Errorf("%v: %v arrives as %v", c.err, f, known)
		}
	}
}

// refusingNode refuses puts once, as a shard does that knows the queue otherwise.
type refusingNode struct {
	*recordingNode
	refuse bool
}

func (r *refusingNode) Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error) {
	changed := *req
	changed.Commands = slices.Clone(req.Commands)
	for i, c := range req.Commands {
		if put, ok := c.(*fsm.Put); ok && r.refuse {
			misrouted := *put
			misrouted.Partitions = 7
			changed.Commands[i] = &misrouted
		}
	}
	r.refuse = false
	return r.recordingNode.Do(ctx, shard, &changed)
}

// TestPutsRoutedAgainKeepTheirRequest: a repeat of the call finds what the second round has done.
func TestPutsRoutedAgainKeepTheirRequest(t *testing.T) {
	r := &refusingNode{recordingNode: &recordingNode{Node: backendtest.NewNode(3)}}
	s := serve(t, func(c *Config) { c.Node = r })
	queue := s.queueIn(0, "a")
	if _, err := s.catalog.CreateQueue(t.Context(), queue, 1, fsm.Settings{}); err != nil {
		t.Fatal(err)
	}
	r.refuse = true
	q, _ := s.bothClients()
	res, err := q.PutBatch(t.Context(), &belfryv1.PutBatchRequest{
		RequestId: "r", Jobs: []*belfryv1.PutRequest{{Queue: queue, Id: "x"}, {Queue: queue, Id: "y"}},
	})
	if err != nil || !res.GetResults()[0].GetPut().GetCreated() || !res.GetResults()[1].GetPut().GetCreated() {
		t.Errorf("%v, %v", res, err)
	}
	puts := []fsm.Kind{fsm.KindPut, fsm.KindPut}
	want := []proposal{{0, "r", puts}, {0, "", []fsm.Kind{fsm.KindOpen, fsm.KindConfigure}}, {0, "r", puts}}
	if diff := cmp.Diff(want, r.take()); diff != "" {
		t.Error(diff)
	}
}

// TestReadsOverGET: methods without side effects may be called by a URL, by clients as well.
func TestReadsOverGET(t *testing.T) {
	s := serve(t)
	s.post("/v1/put", `{"queue":"a","id":"x","delay":"1h","text":"é"}`)
	c := belfryv1connect.NewQueueServiceClient(http.DefaultClient, s.url, connect.WithHTTPGet())
	got, err := c.Get(t.Context(), &belfryv1.GetRequest{Queue: "a", Id: "x"})
	if err != nil || string(got.GetJob().GetData()) != "é" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := c.Get(t.Context(), &belfryv1.GetRequest{
		Queue: "a", Id: "y",
	}); reasonOf(t, err) != belfryv1.Reason_REASON_JOB_NOT_FOUND {
		t.Errorf("%v", err)
	}
	json := belfryv1connect.NewQueueServiceClient(http.DefaultClient, s.url, connect.WithHTTPGet(),
		connect.WithCodec(codec.JSON()))
	if got, err := json.Get(t.Context(), &belfryv1.GetRequest{
		Queue: "a", Id: "x",
	}); err != nil || got.GetJob().GetText() != "é" {
		t.Errorf("%v, %v", got, err)
	}
}

// TestManyClientsLoseNothing lets producers and consumers of all protocols work at once. Each job
// is had exactly once.
func TestManyClientsLoseNothing(t *testing.T) {
	const each = 100
	s := serve(t)
	queues := []string{s.queueIn(0, "a"), s.queueIn(1, "b"), s.queueIn(2, "c")}
	clients := s.clients()
	want := int64(len(clients) * each)
	var acked atomic.Int64
	var seen sync.Map
	var group sync.WaitGroup
	for name, c := range clients {
		group.Go(func() {
			for i := range each {
				if _, err := c.Put(t.Context(), &belfryv1.PutRequest{
					Queue: queues[i%3], Id: name + strconv.Itoa(i), Body: &belfryv1.PutRequest_Text{Text: name},
				}); err != nil {
					t.Error(err)
				}
			}
		})
		group.Go(func() {
			for acked.Load() < want && t.Context().Err() == nil {
				res, err := c.Reserve(t.Context(), &belfryv1.ReserveRequest{
					Queues: queues, MaxJobs: 7, Wait: durationpb.New(20 * time.Millisecond),
				})
				if err != nil {
					t.Error(err)
					return
				}
				for _, job := range res.GetJobs() {
					if _, twice := seen.LoadOrStore(job.GetQueue()+job.GetId(), true); twice {
						t.Errorf("%s was had twice", job.GetId())
					}
					if _, err := c.Ack(t.Context(), &belfryv1.AckRequest{Lease: job.GetLease()}); err != nil {
						t.Error(err)
					}
					acked.Add(1)
				}
			}
		})
	}
	group.Wait()
	if acked.Load() != want {
		t.Errorf("%d of %d jobs", acked.Load(), want)
	}
}
