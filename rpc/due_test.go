package rpc

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// putDelayed puts jobs that are due after a delay.
func putDelayed(t *testing.T, q belfryv1connect.QueueServiceClient, queue string, jobs int, delay time.Duration) {
	t.Helper()
	for range jobs {
		if _, err := q.Put(t.Context(), &belfryv1.PutRequest{
			Queue: queue, When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(delay)},
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDueHistogram puts jobs into a queue of three partitions and into another one, and reads when
// they fall due: of each, of both, and in the metrics.
func TestDueHistogram(t *testing.T) {
	s := serve(t, func(c *Config) { c.Registry = prometheus.NewRegistry() })
	now := time.Now().UTC().Truncate(24 * time.Hour).Add(8*time.Hour + 29*time.Minute + 30*time.Second)
	s.node.Now = func() time.Time { return now }
	q, a := s.bothClients()
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "wide", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	for _, delay := range []time.Duration{0, 20 * time.Second, 30 * time.Minute, 59*time.Minute + 29*time.Second,
		10 * time.Hour, 20 * day, 40 * day} {
		putDelayed(t, q, "wide", 4, delay)
	}
	putDelayed(t, q, "other", 1, 30*time.Minute)
	slice := func(length, at time.Duration, jobs uint32) *belfryv1.DueSlice {
		return &belfryv1.DueSlice{Start: timestamppb.New(now.Add(at).Truncate(length)), Jobs: jobs}
	}
	want := &belfryv1.DueHistogram{
		Overdue: 4, NextMinute: 4, NextHour: 12, NextDay: 16, NextMonth: 20, Later: 4,
		Minutes: []*belfryv1.DueSlice{slice(time.Minute, 0, 4), slice(time.Minute, 30*time.Minute, 4),
			slice(time.Minute, 59*time.Minute, 4)},
		Hours: []*belfryv1.DueSlice{slice(time.Hour, 0, 8), slice(time.Hour, time.Hour, 4),
			slice(time.Hour, 10*time.Hour, 4)},
		Days: []*belfryv1.DueSlice{slice(day, 0, 16), slice(day, 20*day, 4)},
	}
	same := func(what string, got *belfryv1.DueHistogram) {
		t.Helper()
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	one, err := a.GetQueue(t.Context(), &belfryv1.GetQueueRequest{Queue: "wide"})
	if err != nil {
		t.Fatal(err)
	}
	same("GetQueue", one.GetQueue().GetDue())
	list := func(req *belfryv1.ListQueuesRequest) *belfryv1.ListQueuesResponse {
		t.Helper()
		res, err := a.ListQueues(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	same("all queues that begin with w", list(&belfryv1.ListQueuesRequest{Prefix: "w"}).GetDue())
	page := list(&belfryv1.ListQueuesRequest{PageSize: 1})
	same("the second page", list(&belfryv1.ListQueuesRequest{PageSize: 1, PageToken: page.GetNextPageToken()}).GetDue())
	both := list(&belfryv1.ListQueuesRequest{})
	for _, c := range []*uint32{&want.NextHour, &want.NextDay, &want.NextMonth, &want.Minutes[1].Jobs, &want.Hours[0].Jobs,
		&want.Days[0].Jobs} {
		*c++
	}
	same("all queues", both.GetDue())
	want = &belfryv1.DueHistogram{Overdue: 4, NextMinute: 4, NextHour: 12, NextDay: 16, NextMonth: 20, Later: 4}
	same("a queue of a list", both.GetQueues()[1].GetDue())

	var sum int
	for _, line := range strings.Split(s.send("GET", "/metrics", "").body, "\n") {
		if strings.HasPrefix(line, "belfry_jobs_due{") && strings.Contains(line, `queue="wide"`) &&
			strings.Contains(line, `within="1h"`) {
			sum += int(line[len(line)-1] - '0')
		}
	}
	if sum != 12 {
		t.Errorf("the metrics have %d jobs that fall due within an hour, want 12", sum)
	}
}
