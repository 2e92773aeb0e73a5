package jobs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// pages answers each list with the next page, whose jobs have these ids with commas between them.
func pages(ids ...string) func(proto.Message) (proto.Message, error) {
	next := 0
	return func(r proto.Message) (proto.Message, error) {
		if _, ok := r.(*belfryv1.ListRequest); !ok {
			return &belfryv1.GetQueueResponse{}, nil
		}
		page := &belfryv1.ListResponse{Searched: uint64(next+1) * 1000}
		for id := range strings.SplitSeq(ids[next], ",") {
			if id != "" {
				page.Jobs = append(page.Jobs, &belfryv1.Job{Id: id, DueAt: clitest.At(0)})
			}
		}
		if next++; next < len(ids) {
			page.NextPageToken = fmt.Sprint("page ", next)
		}
		return page, nil
	}
}

// TestListSearches follows the pages, also those without a job, and says how far it came.
func TestListSearches(t *testing.T) {
	h := newHarness(t, pages("", "a,b", "", "c"))
	got := h.Run("list", "orders", "-s", "dead", "--match", "smtp", "--id-prefix", "o-", "--cause", "#", "--max", "5")
	if got.Code != 0 || got.Err != "searched 4,000 jobs, which are all\n" || strings.Count(got.Out, "\n") != 4 {
		t.Errorf("%+v", got)
	}
	want := &belfryv1.ListRequest{
		Queue: "orders", State: belfryv1.JobState_JOB_STATE_DEAD, Text: "smtp", IdPrefix: "o-", Cause: "#",
		PageSize: 3, PageToken: "page 3",
	}
	sent := clitest.Sent[*belfryv1.ListRequest](h)
	if diff := cmp.Diff(want, sent[len(sent)-1], protocmp.Transform()); diff != "" || len(sent) != 4 {
		t.Errorf("%d requests (-want +got):\n%s", len(sent), diff)
	}
	h.Answer = pages("", "a,b", "")
	if got := h.Run("list", "orders", "--match", "x", "-n", "2"); got.Err != "searched 2,000 jobs; there may be more\n" {
		t.Errorf("with enough jobs: %+v", got)
	}
	h.Answer = pages("", "")
	if got := h.Run("list", "orders", "--cause", "x"); got != (clitest.Left(0,
		"no delayed jobs found; --state searches the others\n", "searched 2,000 jobs, which are all\n")) {
		t.Errorf("without a match: %+v", got)
	}
	h.Answer = pages("a")
	if got := h.Run("list", "orders"); got.Err != "" {
		t.Errorf("a list that is no search: %+v", got)
	}
}

// TestListSaysHowFarItIs while it searches.
func TestListSaysHowFarItIs(t *testing.T) {
	h := newHarness(t, pages("", "a", ""))
	now := clitest.Now
	h.System.Now = func() time.Time { now = now.Add(10 * time.Second); return now }
	if got := h.Run("list", "orders", "--match", "x"); got.Err != "searched 1,000 jobs, found 0 jobs\n"+
		"searched 2,000 jobs, found 1 job\nsearched 3,000 jobs, which are all\n" {
		t.Errorf("%+v", got)
	}
}

// TestListThatIsInterrupted shows what it has found, and that it was interrupted.
func TestListThatIsInterrupted(t *testing.T) {
	h := newHarness(t, pages("a", "b", "c"))
	lists := 0
	ctx := interruptAt(t, h, func(proto.Message) bool { lists++; return lists == 2 })
	got := h.RunContext(ctx, "list", "orders", "--match", "x", "-o", "json")
	if got.Code != 130 || !strings.Contains(got.Out, `"id":"a"`) || strings.Contains(got.Out, `"id":"c"`) ||
		!strings.HasSuffix(got.Err, " jobs, then it was interrupted\n") {
		t.Errorf("%+v", got)
	}
	h.Answer = pages("", "a")
	lists = 1
	ctx = interruptAt(t, h, func(proto.Message) bool { lists++; return lists == 2 })
	if got := h.RunContext(ctx, "list", "orders", "--match", "x"); got.Code != 130 || got.Out != "" {
		t.Errorf("before it found a job: %+v", got)
	}
}

// TestHolderAndAttempts: get shows who holds a job and who failed at it, and a list of reserved jobs
// who holds them.
func TestHolderAndAttempts(t *testing.T) {
	job := &belfryv1.Job{
		Queue: "orders", Id: "order-42", State: belfryv1.JobState_JOB_STATE_RESERVED, DueAt: clitest.At(0),
		Client: "worker-7@10.0.0.3", ReservedAt: clitest.At(-time.Minute), LeaseUntil: clitest.At(time.Minute),
		LeaseSince: clitest.At(0), Cause: "smtp #", LastError: "smtp\x1b[2J 421",
		Attempts: []*belfryv1.Attempt{
			{
				Number: 1, BeganAt: clitest.At(-time.Hour), EndedAt: clitest.At(-time.Hour + 3*time.Second),
				Client: "worker-1@10.0.0.1", Error: "smtp\n421",
			},
			{Number: 2, EndedAt: clitest.At(-time.Minute), Lapsed: true},
		},
	}
	h := newHarness(t, clitest.Always(&belfryv1.GetResponse{Job: job}))
	got := h.Run("get", "orders", "order-42")
	const attempts = `
last failed attempts
NUMBER  ENDED                                        TOOK  HELD BY            ERROR
1       2030-01-31 08:00:03.000 +00:00 (59m57s ago)  3s    worker-1@10.0.0.1  smtp·421
2       2030-01-31 08:59:00.000 +00:00 (1m ago)      -     -                  the lease lapsed
`
	for _, want := range []string{
		"held by     worker-7@10.0.0.3\n", "reserved    2030-01-31 08:59:00.000 +00:00 (1m ago)\n", "cause       smtp #\n",
		"last error  smtp·[2J 421\n", attempts,
	} {
		if !strings.Contains(got.Out, want) {
			t.Errorf("%q is not in\n%s", want, got.Out)
		}
	}
	h.Answer = clitest.Always(&belfryv1.ListResponse{Jobs: []*belfryv1.Job{job, {Id: "b", LeaseUntil: clitest.At(0)}}})
	got = h.Run("list", "orders", "--state", "reserved")
	if lines := strings.Split(got.Out, "\n"); got.Code != cli.CodeOK || !strings.Contains(lines[0], "HELD BY") ||
		!strings.Contains(lines[1], "worker-7@10.0.0.3") || !strings.Contains(lines[2], "  -  ") {
		t.Errorf("%+v", got)
	}
}
