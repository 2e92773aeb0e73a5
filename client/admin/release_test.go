package admin

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/client/internal/failure"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// ReleaseLeases implements the service: 2,004 held jobs, on three pages.
func (s *server) ReleaseLeases(_ context.Context,
	req *belfryv1.ReleaseLeasesRequest) (*belfryv1.ReleaseLeasesResponse, error) {
	pages := map[string]*belfryv1.ReleaseLeasesResponse{
		"":  {Released: 1000, NextPageToken: "a"},
		"a": {Released: 997, Skipped: 3, NextPageToken: "b"},
		"b": {Released: 4},
	}
	return answer(s, req, pages[req.GetPageToken()])
}

// TestReleaseLeasesReadsAllPages: the number is that of all pages. Each is asked for with the same
// selection and a request id of its own.
func TestReleaseLeasesReadsAllPages(t *testing.T) {
	fake := &server{}
	before := time.Date(2030, 1, 31, 9, 0, 0, 0, time.UTC)
	n, err := fake.client().ReleaseLeases(t.Context(), LeaseHolder{
		Queue: "q", Client: "worker-7@10.0.0.7", ReservedBefore: before,
	})
	if err != nil || n != 2001 {
		t.Errorf("%d, %v", n, err)
	}
	var want []proto.Message
	for i, token := range []string{"", "a", "b"} {
		want = append(want, &belfryv1.ReleaseLeasesRequest{
			Queue: "q", Client: "worker-7@10.0.0.7", ReservedBefore: timestamppb.New(before), PageToken: token,
			RequestId: fmt.Sprintf("r%d", i+1),
		})
	}
	if diff := cmp.Diff(want, fake.requests, protocmp.Transform()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestReleaseLeasesThatEndsEarly: the number says what was released by then. A refusal of the first
// page changed nothing, and a later one leaves the outcome unknown.
func TestReleaseLeasesThatEndsEarly(t *testing.T) {
	for refused, want := range map[int]struct {
		released int
		outcome  failure.Outcome
	}{
		1: {0, failure.NotApplied},
		2: {1000, failure.Unknown},
		3: {1997, failure.Unknown},
	} {
		fake := &server{}
		fake.refuse = func() error {
			if len(fake.requests) == refused {
				return failure.Invalidf("the page token is of another call")
			}
			return nil
		}
		n, err := fake.client().ReleaseLeases(t.Context(), LeaseHolder{Queue: "q", Client: "w"})
		e, ok := errors.AsType[publicError](err)
		if !ok || n != want.released || e.cause.Outcome != want.outcome {
			t.Errorf("refused at page %d: %d, %+v; want %+v", refused, n, err, want)
		}
	}
}
