package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func TestGet(t *testing.T) {
	job := &belfryv1.Job{
		Queue: "orders", Id: "order-42", State: belfryv1.JobState_JOB_STATE_RESERVED, DueAt: clitest.At(-time.Minute),
		FirstDueAt: clitest.At(-time.Hour),
		LeaseUntil: clitest.At(30 * time.Second), Fence: 77, Attempt: 3, MaxAttempts: 16,
		RetryDelays: []*durationpb.Duration{clitest.In(0), clitest.In(2 * time.Minute)},
		Ttr:         clitest.In(time.Minute), Priority: -5, ExpiresAt: clitest.At(24 * time.Hour), LastError: "smtp 421",
		CreatedAt: clitest.At(-2 * time.Hour),
		Headers:   map[string]string{"kind": "close"}, BodyBytes: 5, Body: &belfryv1.Job_Data{Data: []byte("close")},
	}
	h := newHarness(t, clitest.Always(&belfryv1.GetResponse{Job: job}))
	want := `job          order-42 of orders
state        reserved
due          2030-01-31 08:59:00.000 +00:00 (1m ago)
first due    2030-01-31 08:00:00.000 +00:00 (1h ago)
held until   2030-01-31 09:00:30.000 +00:00 (in 30s)
fence        77
attempts     3 of 16
retry after  0s, 2m
ttr          1m
priority     -5
expires      2030-02-01 09:00:00.000 +00:00 (in 1d)
last error   smtp 421
put          2030-01-31 07:00:00.000 +00:00 (2h ago)
headers      kind=close
size         5 bytes
body         close
`
	if got := h.Run("get", "orders", "order-42"); got.Code != 0 || got.Out != want {
		t.Errorf("exit code %d, output (-want +got):\n%s", got.Code, cmp.Diff(want, got.Out))
	}
	if got := h.Run("get", "orders", "order-42", "--body"); got.Out != "close" {
		t.Errorf("only the body: %+v", got)
	}
	got := h.Run("get", "orders", "order-42", "-o", "json")
	if !strings.Contains(got.Out, `"state":"RESERVED"`) || !strings.Contains(got.Out, `"retryDelays":["0s","120s"]`) ||
		strings.Count(got.Out, "\n") != 1 {
		t.Errorf("as JSON: %q, want what the server would write, on one line", got.Out)
	}
}

// TestKeysAreShown: get and reserve show a job's key, the version if it was replaced, and its
// successor.
func TestKeysAreShown(t *testing.T) {
	job := &belfryv1.Job{
		Queue: "orders", Id: "order-42", Key: "customer-7", Version: 3, State: belfryv1.JobState_JOB_STATE_RESERVED,
		DueAt: clitest.At(0), LeaseUntil: clitest.At(time.Minute), Next: &belfryv1.Successor{
			Version: 4, DueAt: clitest.At(time.Hour),
		},
	}
	ended := &belfryv1.Job{
		Queue: "orders", Id: "order-42", Key: "customer-7", State: belfryv1.JobState_JOB_STATE_ACKED,
		EndedAt: clitest.At(0),
	}
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		switch r := r.(type) {
		case *belfryv1.GetRequest:
			if r.Key != "" {
				return &belfryv1.GetResponse{Job: ended}, nil
			}
			return &belfryv1.GetResponse{Job: job}, nil
		default:
			return &belfryv1.ReserveResponse{Jobs: []*belfryv1.Job{job}}, nil
		}
	})
	for args, want := range map[string]string{
		"get orders order-42": "key         customer-7\nversion     3\n" +
			"successor   version 4, due 2030-01-31 10:00:00.000 +00:00 (in 1h)\n",
		"get orders order-42 --key customer-7": "key       customer-7\nstate     acked\n",
		"reserve orders":                       "key         customer-7\nversion     3\n",
	} {
		if got := h.Run(strings.Fields(args)...); got.Code != 0 || !strings.Contains(got.Out, want) {
			t.Errorf("%s: exit code %d, %q is not in\n%s", args, got.Code, want, got.Out)
		}
	}
}

func TestVersionAsJSON(t *testing.T) {
	h := newHarness(t, nil)
	if got := h.Run("version", "-o", "json"); got.Code != 0 || !strings.HasPrefix(got.Out, `{"version":"`) {
		t.Errorf("as JSON: %+v", got)
	}
}

func TestHelpListsTheExitCodes(t *testing.T) {
	h := newHarness(t, nil)
	got := h.Run("--help")
	for _, want := range []string{" 10  reserve: there was nothing to reserve", " 11  serve: storage failed", "Jobs:",
		"Queues:", "[BELFRY_CONFIG]"} {
		if !strings.Contains(got.Out, want) {
			t.Errorf("the help lacks %q:\n%s", want, got.Out)
		}
	}
	if got := h.Run("queue"); got.Code != 0 || !strings.Contains(got.Out, "purge") {
		t.Errorf("a group without a subcommand: %+v, want its help", got)
	}
}
