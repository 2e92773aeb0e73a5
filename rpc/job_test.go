package rpc

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/wire"
)

// TestGrantsOfSeveralQueuesAreCollected: each job has its own fields and its own queue's defaults,
// and one that is not held any more is left out.
func TestGrantsOfSeveralQueuesAreCollected(t *testing.T) {
	s := serve(t)
	q := s.server.handler.queues
	queues := []string{s.queueIn(1, "a"), s.queueIn(1, "b")}
	for _, body := range []string{
		`{"queue":"` + queues[0] + `","text":"first","headers":{"k":"v"},"ttl":"1h","priority":-3}`,
		`{"queue":"` + queues[0] + `","id":"gone"}`,
		`{"queue":"` + queues[0] + `","id":"mine","ttr":"7s","maxAttempts":2,"retryDelays":["3s"]}`,
		`{"queue":"` + queues[1] + `","text":"other"}`,
	} {
		if got := s.post("/v1/put", body); got.status != 200 {
			t.Fatal(got.body)
		}
	}
	for i, ttr := range []string{"2m", "3m"} {
		if got := s.post("/v1/update-queue",
			`{"queue":"`+queues[i]+`","settings":{"ttr":"`+ttr+`","retryDelays":["`+ttr+`"]}}`); got.status != 200 {
			t.Fatal(got.body)
		}
	}
	p := &poll{service: q, queues: queues, jobsMax: 10, ttr: time.Hour}
	reply, err := s.node.Do(t.Context(), 1, &fsm.Request{Commands: []fsm.Command{
		&fsm.Reserve{Queues: queues[:1], Max: 10, TTR: time.Hour}, &fsm.Reserve{Queues: queues[1:], Max: 10, TTR: time.Hour},
	}})
	if err != nil {
		t.Fatal(err)
	}
	grants := append(reply.Results[0].Grants, reply.Results[1].Grants...)
	reply.Results = reply.Results[:1]
	reply.Results[0].Grants = grants
	granted := s.node.WithJobs(1, reply).Jobs
	if _, err := q.Ack(t.Context(), &belfryv1.AckRequest{Lease: wire.FormatLease(wire.Ref(&granted[1]))}); err != nil {
		t.Fatal(err)
	}
	if err := p.collect(1, s.node.WithJobs(1, reply)); err != nil || len(p.jobs) != 3 {
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
