package main

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestListOfReservedJobs shows since when and until when each is held, and under which fence; other lists have no such columns.
func TestListOfReservedJobs(t *testing.T) {
	job := &belfryv1.Job{Id: "order-42", DueAt: at(0), Attempt: 2, Fence: 77, LeaseSince: timestamppb.New(now.Add(-5 * time.Second)), LeaseUntil: timestamppb.New(now.Add(30 * time.Second))}
	h := newHarness(t, always(&belfryv1.ListResponse{Jobs: []*belfryv1.Job{job}}))
	got := h.run("list", "orders", "--state", "reserved")
	for _, want := range []string{"HELD SINCE", "2030-01-31 08:59:55.000 +00:00 (5s ago)", "HELD UNTIL", "FENCE", "2030-01-31 09:00:30.000 +00:00 (in 30s)", "77"} {
		if got.code != codeOK || !strings.Contains(got.out, want) {
			t.Errorf("%q is not in %+v", want, got)
		}
	}
	job.LeaseUntil = nil
	if got := h.run("list", "orders"); strings.Contains(got.out, "HELD UNTIL") {
		t.Errorf("of delayed jobs: %s", got.out)
	}
}

// TestGetOfAnEndedJob shows what became of it.
func TestGetOfAnEndedJob(t *testing.T) {
	job := &belfryv1.Job{Queue: "orders", Id: "order-42", State: belfryv1.JobState_JOB_STATE_ACKED, Attempt: 2, EndedAt: at(0)}
	h := newHarness(t, always(&belfryv1.GetResponse{Job: job}))
	got := h.run("get", "orders", "order-42")
	const want = "job       order-42 of orders\nstate     acked\nended     2030-01-31 09:00:00.000 +00:00 (in 0s)\nattempts  2\n"
	if got != (outcome{codeOK, want, ""}) {
		t.Errorf("got %+v\nwant %q", got, want)
	}
	if request, ok := h.requests[0].(*belfryv1.GetRequest); !ok || !request.Ended {
		t.Errorf("asked %v", h.requests)
	}
	unknown := true
	job.AttemptUnknown = &unknown
	if got := h.run("get", "orders", "order-42"); !strings.Contains(got.out, "attempts  not known") {
		t.Errorf("with attempts that are not known: %+v", got)
	}
}
