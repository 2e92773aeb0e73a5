package jobs

import (
	"testing"

	"connectrpc.com/connect"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"google.golang.org/protobuf/proto"
)

// TestRunNowWithAPutToken needs no right to look at jobs.
func TestRunNowWithAPutToken(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		if _, ok := r.(*belfryv1.GetRequest); ok {
			return nil, clitest.WireError(connect.CodePermissionDenied, "FORBIDDEN", "it takes consume:orders")
		}
		return &belfryv1.RescheduleResponse{State: belfryv1.JobState_JOB_STATE_READY, DueAt: clitest.At(0)}, nil
	})
	if got := h.Run("run-now", "orders",
		"a"); got != (clitest.Left(0, "ready, due 2030-01-31 09:00:00.000 +00:00 (in 0s)\n", "")) {
		t.Errorf("%+v", got)
	}
}
