package queue

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/wire"
)

// TestGrantsOfSeveralQueuesAreCollected: each job has its own fields and its own queue's defaults.
// A job that is no longer held is left out.
func TestGrantsOfSeveralQueuesAreCollected(t *testing.T) {
	n, catalog := backendtest.NewNode(3), backendtest.NewCatalog()
	q := newService(t, n, func(cfg *Config) { cfg.Router.Catalog = catalog })
	queues := []string{n.QueueIn(1, "a"), n.QueueIn(1, "b")}
	text := func(s string) *belfryv1.PutRequest_Text { return &belfryv1.PutRequest_Text{Text: s} }
	for _, put := range []*belfryv1.PutRequest{
		{
			Queue: queues[0], Body: text("first"), Headers: map[string]string{"k": "v"}, Ttl: durationpb.New(time.Hour),
			Priority: proto.Int64(-3),
		},
		{Queue: queues[0], Id: "gone"},
		{
			Queue: queues[0], Id: "mine", Ttr: durationpb.New(7 * time.Second), MaxAttempts: proto.Uint32(2),
			RetryDelays: []*durationpb.Duration{durationpb.New(3 * time.Second)},
		},
		{Queue: queues[1], Body: text("other")},
	} {
		q.mustPut(t, put)
	}
	for i, ttr := range []time.Duration{2 * time.Minute, 3 * time.Minute} {
		if _, err := catalog.UpdateQueue(t.Context(), queues[i], func(s fsm.Settings) (fsm.Settings, error) {
			s.TTR, s.RetryDelays = ttr, []time.Duration{ttr}
			return s, nil
		}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := q.router.Configure(t.Context(), queues[i]); err != nil {
			t.Fatal(err)
		}
	}
	p := &poll{service: q, queues: queues, jobsMax: 10, ttr: time.Hour}
	reply, err := n.Do(t.Context(), 1, &fsm.Request{Commands: []fsm.Command{
		&fsm.Reserve{Queues: queues[:1], Max: 10, TTR: time.Hour}, &fsm.Reserve{Queues: queues[1:], Max: 10, TTR: time.Hour},
	}})
	if err != nil {
		t.Fatal(err)
	}
	grants := append(reply.Results[0].Grants, reply.Results[1].Grants...)
	reply.Results = reply.Results[:1]
	reply.Results[0].Grants = grants
	granted := n.WithJobs(1, reply).Jobs
	if _, err := q.Ack(t.Context(), &belfryv1.AckRequest{Lease: wire.FormatLease(wire.Ref(&granted[1]))}); err != nil {
		t.Fatal(err)
	}
	if err := p.collect(1, n.WithJobs(1, reply)); err != nil || len(p.jobs) != 3 {
		t.Fatalf("%d jobs, %v", len(p.jobs), err)
	}
	var ttrs []time.Duration
	for i, job := range wire.Granted(p.jobs) {
		ref, err := wire.ParseLease(job.GetLease())
		if want := granted[[]int{0, 2, 3}[i]]; err != nil || ref != wire.Ref(&want) || job.GetFence() != want.Fence ||
			job.GetWitness().GetIndex() != reply.Witness.Index {
			t.Errorf("job %d is %v, %v", i, job, err)
		}
		got, err := q.Get(t.Context(), &belfryv1.GetRequest{Queue: job.GetQueue(), Id: job.GetId()})
		if err != nil {
			t.Fatal(err)
		}
		same := proto.CloneOf(job)
		same.Lease, same.Witness, same.LeaseSince = "", nil, got.GetJob().GetLeaseSince()
		if diff := cmp.Diff(got.GetJob(), same, protocmp.Transform(),
			protocmp.IgnoreFields(&belfryv1.Job{}, "witness")); diff != "" {
			t.Errorf("job %d (-got by Get +handed out):\n%s", i, diff)
		}
		ttrs = append(ttrs, job.GetTtr().AsDuration())
	}
	if diff := cmp.Diff([]time.Duration{2 * time.Minute, 7 * time.Second, 3 * time.Minute}, ttrs); diff != "" {
		t.Errorf("the jobs' own times to run (-want +got):\n%s", diff)
	}
}
