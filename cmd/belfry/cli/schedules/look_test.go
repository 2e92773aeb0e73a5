package schedules

import (
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// durations returns durations as the API has them.
func durations(list ...time.Duration) (all []*durationpb.Duration) {
	for _, d := range list {
		all = append(all, durationpb.New(d))
	}
	return all
}

// full is a schedule with each of its fields.
func full() *belfryv1.Schedule {
	priority, attempts := int64(3), uint32(5)
	return &belfryv1.Schedule{
		Queue: "reports", Name: "nightly", Version: 1<<48 | 12345, Spec: &belfryv1.ScheduleSpec{
			Rule: &belfryv1.ScheduleSpec_Cron{Cron: "30 2 * * *"}, TimeZone: "Europe/Berlin", Dst: belfryv1.DST_DST_ONCE,
			Exclude: []string{"* * 24 12 *"}, Jitter: clitest.In(time.Minute), Start: clitest.At(-time.Hour),
			End: clitest.At(time.Hour),
		}, Policy: &belfryv1.SchedulePolicy{
			CatchUp: belfryv1.CatchUp_CATCH_UP_ALL, Window: clitest.In(time.Hour), MaxFires: 1000, PauseOnDead: true,
			Overlap: belfryv1.Overlap_OVERLAP_ONE_WAITING,
		}, Job: &belfryv1.ScheduleJob{
			Body: &belfryv1.ScheduleJob_Text{Text: "all shops"}, Headers: map[string]string{"b": "2", "a": "1"}, Key: "k",
			Ttr: clitest.In(time.Minute), Ttl: clitest.In(time.Hour), Priority: &priority, MaxAttempts: &attempts,
			RetryDelays: durations(time.Second, time.Minute),
		},
		CreatedAt: clitest.At(-time.Hour), ChangedAt: clitest.At(-time.Minute), Next: clitest.At(time.Hour), Paused: true,
		Note: "why", Counts: &belfryv1.ScheduleCounts{Fired: 1234, Missed: 2, Skipped: 3, Backfilled: 4}, ZoneData: "2025c",
		NextLocal: "2030-01-31T11:00:00+01:00 CET",
		Recent: []*belfryv1.Firing{
			{Result: belfryv1.FiringResult_FIRING_RESULT_MISSED, Nominal: clitest.At(-2 * time.Hour), At: clitest.At(-time.Hour),
				Count: 60},
			{Result: belfryv1.FiringResult_FIRING_RESULT_FIRED, Nominal: clitest.At(-time.Minute + time.Millisecond),
				At: clitest.At(-time.Minute), Count: 1},
		},
	}
}

// TestShow shows a schedule with each of its fields. The version is as --if-version takes it.
func TestShow(t *testing.T) {
	h := newHarness(t, clitest.Always(&belfryv1.GetScheduleResponse{Schedule: full()}))
	want := clitest.Left(0, `schedule       nightly
queue          reports
version        281474976723001
rule           30 2 * * * Europe/Berlin
except         * * 24 12 *
clock changes  once
jitter         1m
start          2030-01-31 08:00:00.000 +00:00 (1h ago)
end            2030-01-31 10:00:00.000 +00:00 (in 1h)
paused         yes, why
next           2030-01-31 10:00:00.000 +00:00 (in 1h)
next, local    2030-01-31T11:00:00+01:00 CET
catch-up       all
window         1h
overlap        one-waiting
max fires      1,000
pause on dead  yes
fired          1,234
missed         2
skipped        3
backfilled     4
created        2030-01-31 08:00:00.000 +00:00 (1h ago)
changed        2030-01-31 08:59:00.000 +00:00 (1m ago)
time zones     2025c

body          all shops
headers       a=1, b=2
key           k
ttr           1m
ttl           1h
priority      3
max attempts  5
retry delays  1s, 1m

NOMINAL                   RESULT       AT
2030-01-31T07:00:00Z      missed × 60  2030-01-31 08:00:00.000 +00:00 (1h ago)
2030-01-31T08:59:00.001Z  fired        2030-01-31 08:59:00.000 +00:00 (1m ago)
`, "")
	if diff := cmp.Diff(want, h.Run("schedule", "show", "reports", "nightly")); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	sent := []proto.Message{&belfryv1.GetScheduleRequest{Queue: "reports", Name: "nightly"}}
	if diff := cmp.Diff(sent, h.Requests, protocmp.Transform()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestList joins the pages of a list.
func TestList(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		if r.(*belfryv1.ListSchedulesRequest).PageToken == "" {
			return &belfryv1.ListSchedulesResponse{NextPageToken: "more", Schedules: []*belfryv1.Schedule{full()}}, nil
		}
		return &belfryv1.ListSchedulesResponse{Schedules: []*belfryv1.Schedule{{
			Name: "shop-7", Spec: &belfryv1.ScheduleSpec{
				Rule: &belfryv1.ScheduleSpec_Every{Every: clitest.In(time.Hour)}, Phase: clitest.In(time.Minute),
			},
		}}}, nil
	})
	const first = "" +
		"NAME     RULE                      NEXT                                    FIRED  MISSED  SKIPPED  \n" +
		"nightly  30 2 * * * Europe/Berlin  2030-01-31 10:00:00.000 +00:00 (in 1h)  1,234  2       3        paused: why\n"
	const second = "" +
		"shop-7   every 1h + 1m             -                                       0      0       0        \n"
	if diff := cmp.Diff(clitest.Left(0, first+second, ""), h.Run("schedule", "list", "q", "pre")); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	sent := []proto.Message{
		&belfryv1.ListSchedulesRequest{Queue: "q", Prefix: "pre", PageSize: 100},
		&belfryv1.ListSchedulesRequest{Queue: "q", Prefix: "pre", PageSize: 99, PageToken: "more"},
	}
	if diff := cmp.Diff(sent, h.Requests, protocmp.Transform()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	want := clitest.Left(0, first+"there are more; --max shows them\n", "")
	if diff := cmp.Diff(want, h.Run("schedule", "list", "q", "--max", "1")); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	h.Answer = clitest.Always(&belfryv1.ListSchedulesResponse{})
	h.Run("schedule", "list", "q").Holds(t, 0, "no schedules")
}

// TestListOfAQueueThatIsNot: a list without schedules asks whether the queue is there.
func TestListOfAQueueThatIsNot(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		switch r.(type) {
		case *belfryv1.ListSchedulesRequest:
			return &belfryv1.ListSchedulesResponse{}, nil
		case *belfryv1.ListQueuesRequest:
			return &belfryv1.ListQueuesResponse{Queues: []*belfryv1.Queue{{Name: "reports"}}}, nil
		default:
			return nil, clitest.WireError(connect.CodeNotFound, "QUEUE_NOT_FOUND", "there is no such queue")
		}
	})
	for _, verb := range []string{"list", "export"} {
		h.Run("schedule", verb, "reprots").Holds(t, cli.CodeNotFound, `there is no queue "reprots"; did you mean "reports"?`)
	}
}

// TestRuleOf: a phase of zero is none.
func TestRuleOf(t *testing.T) {
	for phase, want := range map[time.Duration]string{0: "every 15m", time.Minute: "every 15m + 1m"} {
		if got := ruleOf(&belfryv1.ScheduleSpec{
			Rule: &belfryv1.ScheduleSpec_Every{Every: clitest.In(15 * time.Minute)}, Phase: clitest.In(phase),
		}); got != want {
			t.Errorf("with the phase %v: %q, want %q", phase, got, want)
		}
	}
}
