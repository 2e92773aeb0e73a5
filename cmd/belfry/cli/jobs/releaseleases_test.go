package jobs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const gone = "worker-7@10.0.0.7"

// holders answers as a server of these queues, each with so many jobs of the consumer that is gone and
// one of another. It releases all that it is asked for but what skips says, a page at a time.
func holders(held map[string]int, skips map[string]uint32) func(proto.Message) (proto.Message, error) {
	return func(r proto.Message) (proto.Message, error) {
		switch r := r.(type) {
		case *belfryv1.ListQueuesRequest:
			page := &belfryv1.ListQueuesResponse{Queues: []*belfryv1.Queue{{Name: "idle", Counts: &belfryv1.JobCounts{}}}}
			for _, name := range []string{"mail", "orders"} {
				page.Queues = append(page.Queues, &belfryv1.Queue{Name: name, Counts: &belfryv1.JobCounts{Reserved: 1}})
			}
			return page, nil
		case *belfryv1.ListRequest:
			if r.State != belfryv1.JobState_JOB_STATE_RESERVED {
				return nil, fmt.Errorf("listed %v", r)
			}
			if r.PageToken == "" {
				other := &belfryv1.Job{Client: "10.0.0.7", ReservedAt: clitest.At(time.Hour)}
				return &belfryv1.ListResponse{Jobs: []*belfryv1.Job{other}, NextPageToken: "more"}, nil
			}
			page := &belfryv1.ListResponse{}
			for i := range held[r.Queue] {
				page.Jobs = append(page.Jobs, &belfryv1.Job{
					Client: gone, ReservedAt: clitest.At(-time.Duration(i) * time.Second),
				})
			}
			return page, nil
		case *belfryv1.ReleaseLeasesRequest:
			skipped := skips[r.Queue]
			return &belfryv1.ReleaseLeasesResponse{
				Released: r.Max - skipped, Skipped: skipped, NextPageToken: "after " + r.PageToken,
			}, nil
		default:
			return nil, fmt.Errorf("there is no answer to %T", r)
		}
	}
}

// TestReleaseLeases counts, and releases no more than it counted: what was reserved until then.
func TestReleaseLeases(t *testing.T) {
	h := newHarness(t, holders(map[string]int{"mail": 2, "orders": 1500}, map[string]uint32{"mail": 1}))
	got := h.Run("release-leases", gone, "--yes")
	want := clitest.Left(0, "1,501 jobs released; no longer held when it was their turn: 1\n",
		"This releases 1,502 jobs of 2 queues that \"worker-7@10.0.0.7\" holds.\n")
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	request := func(queue string, most uint32, token string, n int) *belfryv1.ReleaseLeasesRequest {
		return &belfryv1.ReleaseLeasesRequest{
			Queue: queue, Client: gone, Max: most, PageToken: token, RequestId: clitest.RequestID(n),
			ReservedBefore: clitest.At(time.Millisecond),
		}
	}
	wanted := []*belfryv1.ReleaseLeasesRequest{
		request("mail", 2, "", 0), request("orders", 1000, "", 1), request("orders", 500, "after ", 2),
	}
	if diff := cmp.Diff(wanted, clitest.Sent[*belfryv1.ReleaseLeasesRequest](h), protocmp.Transform()); diff != "" {
		t.Errorf("it asked for (-want +got):\n%s", diff)
	}
}

// TestNothingIsReleasedUnasked: a count alone releases nothing.
func TestNothingIsReleasedUnasked(t *testing.T) {
	const asks = "This releases 2 jobs of mail that \"worker-7@10.0.0.7\" holds.\n"
	for _, tt := range []struct {
		name, args, typed string
		want              clitest.Outcome
	}{
		{"no terminal", gone + " mail", "", clitest.Left(cli.CodeUsage, "", asks+
			"belfry: nothing was released: this is not a terminal, so say --yes if it is meant\n"+
			"Run 'belfry release-leases --help' for usage.\n")},
		{"another answer", gone + " mail", "y\n", clitest.Left(cli.CodeError, "",
			asks+"Go on? Type yes: belfry: nothing was released\n")},
		{"a dry run", gone + " mail --dry-run", "", clitest.Left(0, "2 jobs of mail would be released\n", "")},
		{"nothing held", gone + " orders --yes", "", clitest.Left(0, "\"worker-7@10.0.0.7\" holds no jobs\n", "")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, holders(map[string]int{"mail": 2}, nil))
			h.System.In, h.System.InTerminal = strings.NewReader(tt.typed), tt.typed != ""
			if got := h.Run(append([]string{"release-leases"}, strings.Fields(tt.args)...)...); got != tt.want {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
			if sent := clitest.Sent[*belfryv1.ReleaseLeasesRequest](h); len(sent) != 0 {
				t.Errorf("it released %v", sent)
			}
		})
	}
	h := newHarness(t, holders(nil, nil))
	if got := h.Run("release-leases", "", "--yes"); got.Code != cli.CodeUsage || len(h.Requests) != 0 {
		t.Errorf("without a consumer: %+v", got)
	}
}

// TestReleaseLeasesPartly says how many were released before the error.
func TestReleaseLeasesPartly(t *testing.T) {
	answer := holders(map[string]int{"mail": 2, "orders": 3}, nil)
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		if r, ok := r.(*belfryv1.ReleaseLeasesRequest); ok && r.Queue == "orders" {
			return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("no leader"))
		}
		return answer(r)
	})
	got := h.Run("release-leases", gone, "--yes")
	if got.Code == 0 || !strings.Contains(got.Err, "2 jobs released; this command may be repeated for the rest: ") ||
		!strings.Contains(got.Err, "no leader") {
		t.Errorf("%+v", got)
	}
}
