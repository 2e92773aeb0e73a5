package rpc

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
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
	for prefix, want := range map[string][]string{"": want, "b/": want[7:14], "b/q3": want[10:11], "b": want[7:21], "zz": nil, "a/q0": want[:1]} {
		for _, size := range []int32{1, 3, 100} {
			var got []string
			for token := ""; ; {
				page, err := a.ListQueues(t.Context(), &belfryv1.ListQueuesRequest{Prefix: prefix, PageSize: size, PageToken: token})
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
		if _, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "wide", Id: "job" + itoa(i), When: &belfryv1.PutRequest_DueAt{DueAt: due}, Body: &belfryv1.PutRequest_Text{Text: "body"}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int32{1, 4, 30, 1000} {
		req := &belfryv1.ListRequest{Queue: "wide", PageSize: size, DueAfter: timestamppb.New(start.Add(5 * time.Second)), DueBefore: timestamppb.New(start.Add(25 * time.Second))}
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
