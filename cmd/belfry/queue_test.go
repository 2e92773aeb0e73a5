package main

import (
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

const fullQueueText = `queue           shop/orders
partitions      3
jobs            1,234,567 delayed, 5 ready, 4 reserved, 3 dead
size            5.0 MiB
oldest ready    due for 1m30s
next due        2030-01-31 09:00:01.500 +00:00 (in 1.5s)
due             5 overdue; within 1m 3, 1h 1,003, 1d 5,003, 30d 5,004; later 1,229,563
lateness        p50 800µs, p99 2ms, max 3s of 1,000 jobs over the last 60 s
per second      1.5 put, 2.0 reserved, 0.2 acked over the last 60 s
put             2,000,000
reserved        10, given back 3
ended           6 acked, 5 cancelled, 7 expired
failed          2 nacked, 1 lapsed, 4 died, 1 redriven
ids remembered  without end
as of           2030-01-31 09:00:00.000 +00:00 (in 0s)

due in the next hour
  09:00  503  ##################################################################
  09:05    0
  09:10  500  ##################################################################

due in the next 24 hours
  Thu 09:00  1,003  ###############
  Thu 10:00      0
  Thu 11:00      0
  Thu 12:00  4,000  ############################################################

due in the next 30 days, of UTC
  Thu 01-31  5,003  ############################################################
  Fri 02-01      0
  Sat 02-02      1  #

settings
  ttr              30s
  max-attempts     no limit
  retry-delays     0s, 2m
  dedup-window     without end
  max-in-flight    no limit
  max-jobs         1,000
  max-bytes        1.0 GiB
  puts-per-second  no limit
  overdue          spread over 1h, after an outage of 1m
  expire-to        dead
  keys             no limits
  paused           until 2030-01-31 10:00:00.000 +00:00 (in 1h)
`

func TestQueueShow(t *testing.T) {
	h := newHarness(t, clitest.Always(&belfryv1.GetQueueResponse{Queue: clitest.FullQueue()}))
	got := h.Run("queue", "show", "shop/orders")
	if diff := cmp.Diff(fullQueueText, got.Out); diff != "" || got.Code != 0 {
		t.Errorf("exit code %d, output (-want +got):\n%s", got.Code, diff)
	}
}

// TestQueueList reads two pages.
func TestQueueList(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		request := r.(*belfryv1.ListQueuesRequest)
		if request.PageToken == "" {
			return &belfryv1.ListQueuesResponse{Queues: []*belfryv1.Queue{clitest.FullQueue()}, NextPageToken: "more"}, nil
		}
		return &belfryv1.ListQueuesResponse{Queues: []*belfryv1.Queue{{
			Name: "z", Counts: &belfryv1.JobCounts{}, Settings: &belfryv1.QueueSettings{},
		}}}, nil
	})
	want := "QUEUE        DELAYED    NEXT HOUR  READY  RESERVED  DEAD  OLDEST READY  SIZE     \n" +
		"shop/orders  1,234,567  1,003      5      4         3     1m30s         5.0 MiB  paused\n" +
		"z            0          0          0      0         0     -             0 bytes  \n"
	got := h.Run("queue", "ls", "shop/")
	if diff := cmp.Diff(want, got.Out); diff != "" || got.Code != 0 {
		t.Errorf("exit code %d, output (-want +got):\n%s", got.Code, diff)
	}
	if pages := clitest.Sent[*belfryv1.ListQueuesRequest](h); len(pages) != 2 || pages[0].Prefix != "shop/" ||
		pages[1].PageToken != "more" {
		t.Errorf("asked for %v, want two pages of the prefix", pages)
	}
}

// TestQueueListDue draws the jobs of two pages, on a terminal of 40 columns.
func TestQueueListDue(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		page := &belfryv1.ListQueuesResponse{Queues: []*belfryv1.Queue{{Name: "a"}}, Due: &belfryv1.DueHistogram{
			Overdue: 1, NextMinute: 2, NextHour: 6, NextDay: 6, NextMonth: 6, Later: 7, Minutes: []*belfryv1.DueSlice{
				{Start: clitest.At(0), Jobs: 2},
				{Start: clitest.At(10 * time.Minute), Jobs: 4},
			},
		}}
		if r.(*belfryv1.ListQueuesRequest).PageToken == "" {
			page.NextPageToken, page.Due = "more",
				&belfryv1.DueHistogram{NextHour: 9, NextDay: 9, NextMonth: 9, Minutes: []*belfryv1.DueSlice{
					{Start: clitest.At(5 * time.Minute), Jobs: 6}, {Start: clitest.At(10 * time.Minute), Jobs: 3},
				}}
		}
		return page, nil
	})
	h.System.OutTerminal, h.System.Size = true, func() (int, int) { return 40, 24 }
	want := `QUEUE  DELAYED  NEXT HOUR  READY  RESERVED  DEAD  OLDEST READY  SIZE     
a      0        0          0      0         0     -             0 bytes  
a      0        0          0      0         0     -             0 bytes  

due  1 overdue; within 1m 2, 1h 15, 1d 15, 30d 15; later 7

due in the next hour
  09:00  2  ████████
  09:05  6  ████████████████████████
  09:10  7  ████████████████████████████
`
	got := h.Run("queue", "list", "--due")
	if diff := cmp.Diff(want, got.Out); diff != "" || got.Code != 0 {
		t.Errorf("exit code %d, output (-want +got):\n%s", got.Code, diff)
	}
	got = h.Run("queue", "list", "-o", "json")
	const due = `"due":{"overdue":1,"nextMinute":2,"nextHour":15,"nextDay":15,"nextMonth":15,"later":7,` +
		`"minutes":[{"start":"2030-01-31T09:00:00Z","jobs":2},`
	if !strings.Contains(got.Out, due) {
		t.Errorf("as JSON %s, want %s", got.Out, due)
	}
}

func TestEmptyLists(t *testing.T) {
	h := newHarness(t, clitest.Always(&belfryv1.ListQueuesResponse{}))
	if got := h.Run("queue", "list"); got.Out != "no queues\n" {
		t.Errorf("got %+v", got)
	}
	for _, test := range []struct {
		name  string
		queue error
		code  int
		out   string
		err   string
	}{
		{"a queue", nil, 0, "no delayed jobs; --state lists the others\n", ""},
		{"no queue", clitest.WireError(connect.CodeNotFound, "QUEUE_NOT_FOUND", "there is no such queue"), cli.CodeNotFound,
			"", "belfry: QUEUE_NOT_FOUND: there is no such queue\n"},
		{"nobody knows", clitest.WireError(connect.CodePermissionDenied, "FORBIDDEN", "no"), 0,
			"no delayed jobs; --state lists the others\n", ""},
	} {
		h := newHarness(t, func(r proto.Message) (proto.Message, error) {
			if _, ok := r.(*belfryv1.ListRequest); ok {
				return &belfryv1.ListResponse{}, nil
			}
			return &belfryv1.GetQueueResponse{}, test.queue
		})
		if got, want := h.Run("list", "orders"), (clitest.Left(test.code, test.out, test.err)); got != want {
			t.Errorf("%s: got %+v, want %+v", test.name, got, want)
		}
	}
}

// TestListReadsPages asks for as many jobs as are wanted, and says when there are more.
func TestListReadsPages(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		response := &belfryv1.ListResponse{NextPageToken: "more"}
		for range r.(*belfryv1.ListRequest).PageSize {
			response.Jobs = append(response.Jobs, &belfryv1.Job{Id: "0-1", DueAt: clitest.At(0)})
		}
		return response, nil
	})
	got := h.Run("list", "orders", "--max", "1500")
	if lines := strings.Count(got.Out, "0-1 "); lines != 1500 ||
		!strings.HasSuffix(got.Out, "there are more: raise --max\n") {
		t.Errorf("%d lines, the last %q; want 1500 and a hint", lines, got.Out[max(0, len(got.Out)-40):])
	}
	if pages := clitest.Sent[*belfryv1.ListRequest](h); len(pages) != 2 || pages[0].PageSize != 1000 ||
		pages[1].PageSize != 500 {
		t.Errorf("asked for %v, want 1000 and 500", pages)
	}
}

// answerRemoval answers what purge and delete ask.
func answerRemoval(request proto.Message) (proto.Message, error) {
	switch request.(type) {
	case *belfryv1.GetQueueRequest:
		return &belfryv1.GetQueueResponse{Queue: clitest.FullQueue()}, nil
	case *belfryv1.PurgeQueueRequest:
		return &belfryv1.PurgeQueueResponse{Purged: 1234575}, nil
	case *belfryv1.DeleteQueueRequest:
		return &belfryv1.DeleteQueueResponse{Purged: 1234579}, nil
	default:
		return nil, connect.NewError(connect.CodeInternal, nil)
	}
}

// TestRemovalAsks shows the count first, and does nothing without a yes.
func TestRemovalAsks(t *testing.T) {
	for _, test := range []struct {
		name     string
		args     string
		typed    string
		terminal bool
		code     int
		out, err string
	}{
		{
			"purge, yes on the command line", "queue purge shop/orders --yes", "", false, 0, "1,234,575 jobs purged\n",
			"Purging shop/orders removes 1,234,575 jobs (delayed, ready, dead).\n",
		},
		{
			"purge of some", "queue purge shop/orders -y -s dead,reserved -n 2", "", false, 0, "1,234,575 jobs purged\n",
			"Purging shop/orders removes 2 jobs (dead, reserved).\n",
		},
		{
			"delete, yes typed", "queue delete shop/orders", "yes\n", true, 0, "deleted shop/orders with 1,234,579 jobs\n",
			"Deleting shop/orders removes 1,234,579 jobs and all its schedules.\nGo on? Type yes: ",
		},
		{
			"delete, no typed", "queue delete shop/orders", "no\n", true, cli.CodeError, "",
			"Deleting shop/orders removes 1,234,579 jobs and all its schedules.\nGo on? Type yes: belfry: nothing was removed\n",
		},
		{
			"delete, end of input", "queue delete shop/orders", "", true, cli.CodeError, "",
			"Deleting shop/orders removes 1,234,579 jobs and all its schedules.\nGo on? Type yes: belfry: nothing was removed\n",
		},
		{
			"delete, nobody there", "queue delete shop/orders", "yes\n", false, cli.CodeUsage, "",
			"Deleting shop/orders removes 1,234,579 jobs and all its schedules.\nbelfry: nothing was removed: this is not " +
				"a terminal, so say --yes " +
				"if it is meant\n" +
				"Run 'belfry queue delete --help' for usage.\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, answerRemoval)
			h.System.In, h.System.InTerminal = strings.NewReader(test.typed), test.terminal
			got := h.Run(strings.Fields(test.args)...)
			if diff := cmp.Diff(clitest.Left(test.code, test.out, test.err), got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			removals := len(clitest.Sent[*belfryv1.PurgeQueueRequest](h)) + len(clitest.Sent[*belfryv1.DeleteQueueRequest](h))
			if want := test.code == 0; (removals == 1) != want {
				t.Errorf("%d removals were sent; want one: %v", removals, want)
			}
		})
	}
}

// TestRemovalGoesOnWithAQueueThatCannotBeFound repeats a removal that was cut off: only the call
// itself can say what is left.
func TestRemovalGoesOnWithAQueueThatCannotBeFound(t *testing.T) {
	gone := clitest.WireError(connect.CodeNotFound, "QUEUE_NOT_FOUND", "no such queue")
	for _, test := range []struct {
		args   string
		answer func(proto.Message) (proto.Message, error)
		want   clitest.Outcome
	}{
		{"queue delete shop/orders --yes", answerRemoval, clitest.Left(0, "deleted shop/orders with 1,234,579 jobs\n", "")},
		{"queue purge shop/orders --yes", answerRemoval, clitest.Left(0, "1,234,575 jobs purged\n", "")},
		{
			"queue purge shop/orders", answerRemoval, clitest.Left(0, "1,234,575 jobs purged\n",
				"There is no queue \"shop/orders\". Go on only to repeat a call that was cut off.\nGo on? Type yes: "),
		},
		{
			"queue delete shop/orders --yes", func(proto.Message) (proto.Message, error) { return nil, gone },
			clitest.Left(cli.CodeNotFound, "", "belfry: QUEUE_NOT_FOUND: no such queue\n"),
		},
	} {
		h := newHarness(t, func(r proto.Message) (proto.Message, error) {
			if _, shows := r.(*belfryv1.GetQueueRequest); shows {
				return nil, gone
			}
			return test.answer(r)
		})
		h.System.In, h.System.InTerminal = strings.NewReader("yes\n"), true
		if diff := cmp.Diff(test.want, h.Run(strings.Fields(test.args)...)); diff != "" {
			t.Errorf("%s: outcome (-want +got):\n%s", test.args, diff)
		}
	}
}

// TestQueueSetKeepsTheOverduePolicy changes one part of a policy, which the server takes as a
// whole.
func TestQueueSetKeepsTheOverduePolicy(t *testing.T) {
	const fire, spread, drop = belfryv1.OverdueMode_OVERDUE_MODE_FIRE, belfryv1.OverdueMode_OVERDUE_MODE_SPREAD,
		belfryv1.OverdueMode_OVERDUE_MODE_DROP
	before := &belfryv1.OverduePolicy{Mode: spread, Period: clitest.In(time.Hour), OverdueAfter: clitest.In(time.Minute)}
	for flags, test := range map[string]struct {
		before, want *belfryv1.OverduePolicy
	}{
		"--overdue-after 5m": {before, &belfryv1.OverduePolicy{
			Mode: spread, Period: clitest.In(time.Hour), OverdueAfter: clitest.In(5 * time.Minute),
		}},
		"--overdue-period 2h": {before, &belfryv1.OverduePolicy{
			Mode: spread, Period: clitest.In(2 * time.Hour), OverdueAfter: clitest.In(time.Minute),
		}},
		"--overdue drop":      {before, &belfryv1.OverduePolicy{Mode: drop, OverdueAfter: clitest.In(time.Minute)}},
		"--overdue-after 5m ": {nil, &belfryv1.OverduePolicy{Mode: fire, OverdueAfter: clitest.In(5 * time.Minute)}},
		"--max-jobs 5":        {before, nil},
		"--overdue spread --overdue-period 2h --overdue-after 3m": {
			before, &belfryv1.OverduePolicy{
				Mode: spread, Period: clitest.In(2 * time.Hour), OverdueAfter: clitest.In(3 * time.Minute),
			},
		},
	} {
		h := newHarness(t, func(r proto.Message) (proto.Message, error) {
			if _, reads := r.(*belfryv1.GetQueueRequest); reads {
				return &belfryv1.GetQueueResponse{Queue: &belfryv1.Queue{Settings: &belfryv1.QueueSettings{Overdue: test.before}}},
					nil
			}
			return &belfryv1.UpdateQueueResponse{Settings: &belfryv1.QueueSettings{}}, nil
		})
		if got := h.Run(append([]string{"queue", "set", "orders"}, strings.Fields(flags)...)...); got.Code != 0 {
			t.Errorf("%s: got %+v", flags, got)
			continue
		}
		if diff := cmp.Diff(test.want, clitest.Sent[*belfryv1.UpdateQueueRequest](h)[0].Settings.Overdue,
			protocmp.Transform()); diff != "" {
			t.Errorf("%s: policy (-want +got):\n%s", flags, diff)
		}
	}
}
