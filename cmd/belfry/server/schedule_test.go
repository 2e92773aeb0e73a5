package server_test

import (
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// ticks takes the jobs of the schedule of TestScheduleFires.
type ticks struct {
	t      *testing.T
	queues belfryv1connect.QueueServiceClient
	// want is the nominal time of the job that is to come next.
	want time.Time
}

// take reserves one job within a time, checks that it is the one after the last, and acks it. It says
// whether there was one.
func (k *ticks) take(wait time.Duration) bool {
	k.t.Helper()
	ctx := k.t.Context()
	got, err := k.queues.Reserve(ctx, &belfryv1.ReserveRequest{
		Queues: []string{"ticks"}, Wait: durationpb.New(wait),
	})
	if err != nil {
		k.t.Fatal(err)
	}
	if len(got.GetJobs()) == 0 {
		return false
	}
	job := got.GetJobs()[0]
	nominal := k.want.Format(time.RFC3339)
	if job.GetId() != "cron:each/second@"+nominal || job.GetHeaders()["belfry-nominal"] != nominal ||
		job.GetHeaders()["belfry-schedule"] != "each/second" || string(job.GetData()) != "tick" {
		k.t.Fatalf("a job of %s is wanted: %v", nominal, job)
	}
	if _, err := k.queues.Ack(ctx, &belfryv1.AckRequest{Lease: job.GetLease()}); err != nil {
		k.t.Fatal(err)
	}
	k.want = k.want.Add(time.Second)
	return true
}

// must takes a job that is to come.
func (k *ticks) must() {
	k.t.Helper()
	if !k.take(30 * time.Second) {
		k.t.Fatalf("no job of %v", k.want)
	}
}

// TestScheduleFires: a schedule of each second puts a job for each, a pause stops it, all that was due
// meanwhile is caught up with, and a deletion ends it.
func TestScheduleFires(t *testing.T) {
	s := alone(t, 2)
	ctx := t.Context()
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
	ticks := ticks{t: t, queues: queues(s), want: put.GetNext().AsTime()}
	ticks.must()
	ticks.must()
	names := []string{"each/second"}
	paused, err := c.PauseSchedules(ctx, &belfryv1.PauseSchedulesRequest{Queue: "ticks", Names: names})
	if err != nil || paused.GetChanged() != 1 {
		t.Fatalf("%v, %v", paused, err)
	}
	for ticks.take(0) { // what had fired before the pause
	}
	if ticks.take(2500 * time.Millisecond) {
		t.Error("it fires although it is paused")
	}
	resumed, err := c.ResumeSchedules(ctx, &belfryv1.ResumeSchedulesRequest{Queue: "ticks", All: true})
	if err != nil || resumed.GetChanged() != 1 {
		t.Fatalf("%v, %v", resumed, err)
	}
	for range 4 { // take checks that none is left out
		ticks.must()
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
	for ticks.take(0) {
	}
	if ticks.take(2500 * time.Millisecond) {
		t.Error("it fires although it was deleted")
	}
	if _, err := c.GetSchedule(ctx, get); err == nil {
		t.Error("it is there although it was deleted")
	}
}
