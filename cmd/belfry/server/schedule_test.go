package server_test

import (
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// TestScheduleFires: a schedule of each second puts a job for each, a pause stops it, all that was due
// meanwhile is caught up with, and a deletion ends it.
func TestScheduleFires(t *testing.T) {
	s := alone(t, 2)
	ctx, q := t.Context(), queues(s)
	c := belfryv1connect.NewScheduleServiceClient(http.DefaultClient, s.URL())
	put, err := c.PutSchedule(ctx, &belfryv1.PutScheduleRequest{
		Queue: "ticks", Name: "each/second", Spec: &belfryv1.ScheduleSpec{
			Rule: &belfryv1.ScheduleSpec_Every{Every: durationpb.New(time.Second)},
		}, Policy: &belfryv1.SchedulePolicy{CatchUp: belfryv1.CatchUp_CATCH_UP_ALL},
		Job: &belfryv1.PutRequest{Body: &belfryv1.PutRequest_Text{Text: "tick"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := put.GetNext().AsTime()
	// take reserves one job within a time, checks that it is the one after the last, and acks it.
	take := func(wait time.Duration) bool {
		t.Helper()
		got, err := q.Reserve(ctx, &belfryv1.ReserveRequest{Queues: []string{"ticks"}, Wait: durationpb.New(wait)})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.GetJobs()) == 0 {
			return false
		}
		job := got.GetJobs()[0]
		nominal := want.Format(time.RFC3339)
		if job.GetId() != "cron:each/second@"+nominal || job.GetHeaders()["belfry-nominal"] != nominal ||
			job.GetHeaders()["belfry-schedule"] != "each/second" || string(job.GetData()) != "tick" {
			t.Fatalf("a job of %s is wanted: %v", nominal, job)
		}
		if _, err := q.Ack(ctx, &belfryv1.AckRequest{Lease: job.GetLease()}); err != nil {
			t.Fatal(err)
		}
		want = want.Add(time.Second)
		return true
	}
	must := func(what string) {
		t.Helper()
		if !take(30 * time.Second) {
			t.Fatalf("%s: no job", what)
		}
	}
	must("the first")
	must("the second")
	names := []string{"each/second"}
	paused, err := c.PauseSchedules(ctx, &belfryv1.PauseSchedulesRequest{Queue: "ticks", Names: names})
	if err != nil || paused.GetChanged() != 1 {
		t.Fatalf("%v, %v", paused, err)
	}
	for take(0) { // what had fired before the pause
	}
	if take(2500 * time.Millisecond) {
		t.Error("it fires although it is paused")
	}
	resumed, err := c.ResumeSchedules(ctx, &belfryv1.ResumeSchedulesRequest{Queue: "ticks", All: true})
	if err != nil || resumed.GetChanged() != 1 {
		t.Fatalf("%v, %v", resumed, err)
	}
	for range 4 { // take checks that none is left out
		must("after the pause")
	}
	get := &belfryv1.GetScheduleRequest{Queue: "ticks", Name: "each/second"}
	held, err := c.GetSchedule(ctx, get)
	if counts := held.GetSchedule().GetCounts(); err != nil || counts.GetFired() < 6 || counts.GetMissed() != 0 {
		t.Errorf("%v, %v", held, err)
	}
	if _, err := c.DeleteSchedule(ctx, &belfryv1.DeleteScheduleRequest{
		Queue: "ticks", Name: "each/second", CancelWaiting: true,
	}); err != nil {
		t.Fatal(err)
	}
	for take(0) {
	}
	if take(2500 * time.Millisecond) {
		t.Error("it fires although it was deleted")
	}
	if _, err := c.GetSchedule(ctx, get); err == nil {
		t.Error("it is there although it was deleted")
	}
}
