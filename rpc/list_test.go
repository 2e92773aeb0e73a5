package rpc

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/wire"
)

func TestListQueuesPages(t *testing.T) {
	s := serve(t)
	q, a := s.bothClients()
	var want []string
	for _, ns := range []string{"a/", "b/", "b0/", "c"} {
		for i := range 7 {
			name := fmt.Sprintf("%sq%d", ns, i)
			if _, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: name}); err != nil {
				t.Fatal(err)
			}
			want = append(want, name)
		}
	}
	for prefix, want := range map[string][]string{
		"": want, "b/": want[7:14], "b/q3": want[10:11], "b": want[7:21], "zz": nil, "a/q0": want[:1],
	} {
		for _, size := range []int32{1, 3, 100} {
			var got []string
			for token := ""; ; {
				page, err := a.ListQueues(t.Context(), &belfryv1.ListQueuesRequest{
					Prefix: prefix, PageSize: size, PageToken: token,
				})
				if err != nil {
					t.Fatal(err)
				}
				for _, info := range page.GetQueues() {
					got = append(got, info.GetName())
				}
				if token = page.GetNextPageToken(); token == "" {
					break
				}
				if len(page.GetQueues()) != int(size) {
					t.Errorf("%q: a page of %d with more to come", prefix, len(page.GetQueues()))
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%q by %d:\n%s", prefix, size, diff)
			}
		}
	}
}

func TestListJobsPages(t *testing.T) {
	s := serve(t)
	q, a := s.bothClients()
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "wide", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	start := time.Now().Add(time.Hour).Truncate(time.Second)
	for i := range 30 {
		due := timestamppb.New(start.Add(time.Duration(i*7%30) * time.Second))
		if _, err := q.Put(t.Context(), &belfryv1.PutRequest{
			Queue: "wide", Id: "job" + strconv.Itoa(i), When: &belfryv1.PutRequest_DueAt{DueAt: due},
			Body: &belfryv1.PutRequest_Text{Text: "body"},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int32{1, 4, 30, 1000} {
		req := &belfryv1.ListRequest{
			Queue: "wide", PageSize: size, DueAfter: timestamppb.New(start.Add(5 * time.Second)),
			DueBefore: timestamppb.New(start.Add(25 * time.Second)),
		}
		next := start.Add(5 * time.Second)
		for {
			page, err := q.List(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			for _, job := range page.GetJobs() {
				if !job.GetDueAt().AsTime().Equal(next) || job.GetBody() != nil || job.GetBodyBytes() != 4 || job.GetLease() != "" {
					t.Errorf("size %d: %v; want one due %v", size, job, next)
				}
				next = next.Add(time.Second)
			}
			if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
				break
			}
		}
		if want := start.Add(25 * time.Second); !next.Equal(want) {
			t.Errorf("size %d: ended before %v; want %v", size, next, want)
		}
	}
	first, err := q.List(t.Context(), &belfryv1.ListRequest{Queue: "wide", PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]*belfryv1.ListRequest{
		"another queue":  {Queue: "thin", PageToken: first.GetNextPageToken()},
		"another state":  {Queue: "wide", State: belfryv1.JobState_JOB_STATE_DEAD, PageToken: first.GetNextPageToken()},
		"another window": {Queue: "wide", DueAfter: timestamppb.Now(), PageToken: first.GetNextPageToken()},
	} {
		if _, err := q.List(t.Context(), other); reasonOf(t, err) != belfryv1.Reason_REASON_INVALID {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFiguresAreOfNow: a queue in which nothing is logged any more grows older all the same.
func TestFiguresAreOfNow(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := serve(t, func(c *Config) { c.Registry = registry })
	now := time.Now().Truncate(time.Second)
	s.node.Now = func() time.Time { return now }
	q, a := s.bothClients()
	until := timestamppb.New(now.Add(time.Minute))
	settings := &belfryv1.QueueSettings{Paused: proto.Bool(true), PausedUntil: until}
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "a", Settings: settings}); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Put(t.Context(), &belfryv1.PutRequest{
		Queue: "a", When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Minute)},
	}); err != nil {
		t.Fatal(err)
	}
	logged := now
	now = now.Add(time.Hour)
	one, err := a.GetQueue(t.Context(), &belfryv1.GetQueueRequest{Queue: "a"})
	if err != nil {
		t.Fatal(err)
	}
	list, err := a.ListQueues(t.Context(), &belfryv1.ListQueuesRequest{})
	if err != nil || len(list.GetQueues()) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	for name, got := range map[string]*belfryv1.Queue{"GetQueue": one.GetQueue(), "ListQueues": list.GetQueues()[0]} {
		if got.GetOldestReadyAge().AsDuration() != 59*time.Minute || got.GetSettings().GetPaused() ||
			got.GetNextDueAt() != nil || !got.GetAsOf().AsTime().Equal(logged) {
			t.Errorf("%s: %v", name, got)
		}
	}
	shown := s.send("GET", "/metrics", "").body
	for name, value := range map[string]float64{
		"oldest_ready_timestamp_seconds": float64(logged.Add(time.Minute).Unix()),
		"dedup_window_seconds":           fsm.DefaultDedupWindow.Seconds(),
	} {
		want := fmt.Sprintf(`belfry_queue_%s{queue="a",shard="%d"} %v`, name, node.ShardOf("a", 0, s.node.ShardCount()), value)
		if !strings.Contains(shown, want) {
			t.Errorf("%s is not in the metrics", want)
		}
	}
}

// TestSinceWhenAJobIsHeld: its lease began its length before its end, and no later than the newest
// reading. Jobs that are not reserved say nothing.
func TestSinceWhenAJobIsHeld(t *testing.T) {
	second := fsm.Time(time.Second)
	job := fsm.Job{State: fsm.Reserved, Until: 100 * second, LeaseTTR: 30 * time.Second}
	for _, tt := range []struct {
		readings []fsm.Reading
		want     int64
	}{
		{[]fsm.Reading{{Clock: 70 * second}}, 70},
		{[]fsm.Reading{{Clock: 10 * second}, {Clock: 90 * second}}, 70},
		{[]fsm.Reading{{Clock: 60 * second}}, 60}, // extended by 30 s when it had longer
	} {
		if got := wire.AppendJobs(nil, []fsm.Job{job}, tt.readings...)[0].GetLeaseSince(); got.GetSeconds() != tt.want {
			t.Errorf("read at %v it is held since %v, want %d s", tt.readings, got, tt.want)
		}
	}
	job.State = fsm.Ready
	if got := wire.AppendJobs(nil, []fsm.Job{job}, fsm.Reading{Clock: 200 * second})[0].LeaseSince; got != nil {
		t.Errorf("a job that is ready is held since %v", got)
	}
}
