package jobs

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestListOfReservedJobs shows since when and until when each is held, and under which fence; other
// lists have no such columns.
func TestListOfReservedJobs(t *testing.T) {
	job := &belfryv1.Job{
		Id: "order-42", DueAt: clitest.At(0), Attempt: 2, Fence: 77,
		LeaseSince: timestamppb.New(clitest.Now.Add(-5 * time.Second)),
		LeaseUntil: timestamppb.New(clitest.Now.Add(30 * time.Second)),
	}
	h := newHarness(t, clitest.Always(&belfryv1.ListResponse{Jobs: []*belfryv1.Job{job}}))
	got := h.Run("list", "orders", "--state", "reserved")
	for _, want := range []string{"HELD SINCE", "2030-01-31 08:59:55.000 +00:00 (5s ago)", "HELD UNTIL", "FENCE",
		"2030-01-31 09:00:30.000 +00:00 (in 30s)", "77"} {
		if got.Code != cli.CodeOK || !strings.Contains(got.Out, want) {
			t.Errorf("%q is not in %+v", want, got)
		}
	}
	job.LeaseUntil = nil
	if got := h.Run("list", "orders"); strings.Contains(got.Out, "HELD UNTIL") {
		t.Errorf("of delayed jobs: %s", got.Out)
	}
}

// TestGetOfAnEndedJob shows what became of it.
func TestGetOfAnEndedJob(t *testing.T) {
	job := &belfryv1.Job{
		Queue: "orders", Id: "order-42", State: belfryv1.JobState_JOB_STATE_ACKED, Attempt: 2, EndedAt: clitest.At(0),
	}
	h := newHarness(t, clitest.Always(&belfryv1.GetResponse{Job: job}))
	got := h.Run("get", "orders", "order-42")
	const want = "job       order-42 of orders\nstate     acked\nended     2030-01-31 09:00:00.000 +00:00 (in " +
		"0s)\nattempts  2\n"
	if got != (clitest.Left(cli.CodeOK, want, "")) {
		t.Errorf("got %+v\nwant %q", got, want)
	}
	if request, ok := h.Requests[0].(*belfryv1.GetRequest); !ok || !request.Ended {
		t.Errorf("asked %v", h.Requests)
	}
	unknown := true
	job.AttemptUnknown = &unknown
	if got := h.Run("get", "orders", "order-42"); !strings.Contains(got.Out, "attempts  not known") {
		t.Errorf("with attempts that are not known: %+v", got)
	}
}
