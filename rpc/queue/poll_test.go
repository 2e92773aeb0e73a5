package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func TestWithinDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got := withinDeadline(t.Context(), time.Minute); got != time.Minute {
			t.Errorf("without a deadline %v", got)
		}
		for _, c := range []struct{ left, wait, want time.Duration }{
			{time.Hour, time.Minute, time.Minute}, {time.Minute, time.Minute, 59750 * time.Millisecond},
			{500 * time.Millisecond, 5 * time.Second, 450 * time.Millisecond},
			{20 * time.Millisecond, time.Second, 15 * time.Millisecond},
			{time.Millisecond, time.Second, 0}, {time.Minute, 0, 0},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), c.left)
			if got := withinDeadline(ctx, c.wait); got != c.want {
				t.Errorf("%v with %v left: %v, want %v", c.wait, c.left, got, c.want)
			}
			cancel()
		}
	})
}

// TestConcurrentGrantsAreGivenBack: if two shards grant at the same moment, the excess jobs are
// released, not lost.
func TestConcurrentGrantsAreGivenBack(t *testing.T) {
	n := backendtest.NewNode(3)
	q := newService(t, n)
	queues := []string{n.QueueIn(0, "x"), n.QueueIn(1, "y")}
	p := &poll{service: q, queues: queues, jobsMax: 1}
	for _, queue := range queues {
		q.mustPut(t, &belfryv1.PutRequest{Queue: queue})
	}
	for _, st := range p.parkSteps() {
		if err := p.reserveStep(t.Context(), st, 0); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.jobs) != 2 {
		t.Fatalf("%d jobs", len(p.jobs))
	}
	p.giveBack(t.Context())
	if len(p.jobs) != 1 {
		t.Fatalf("%d jobs", len(p.jobs))
	}
	res, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: queues})
	if err != nil || len(res.GetJobs()) != 1 || res.GetJobs()[0].GetAttempt() != 1 {
		t.Errorf("what was given back: %v, %v", res, err)
	}
}
