package schedules

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

// newHarness returns a harness for the commands of schedules.
func newHarness(t *testing.T, answer func(proto.Message) (proto.Message, error)) *clitest.Harness {
	t.Helper()
	return clitest.New(t, clitest.Commands(Commands), answer)
}

// verbCase is a command line, the answer it gets, what it prints, and the one request it sends.
type verbCase struct {
	args   []string
	answer proto.Message
	want   clitest.Outcome
	sent   proto.Message
}

// check runs each case.
func check(t *testing.T, cases []verbCase) {
	t.Helper()
	for _, test := range cases {
		h := newHarness(t, clitest.Always(test.answer))
		if diff := cmp.Diff(test.want, h.Run(test.args...)); diff != "" {
			t.Errorf("%q: outcome (-want +got):\n%s", test.args, diff)
		}
		if diff := cmp.Diff([]proto.Message{test.sent}, h.Requests, protocmp.Transform()); diff != "" {
			t.Errorf("%q: requests (-want +got):\n%s", test.args, diff)
		}
	}
}

// times are two firings, the second with jitter.
func times() []*belfryv1.ScheduleTime {
	return []*belfryv1.ScheduleTime{
		{Nominal: clitest.At(time.Hour), DueAt: clitest.At(time.Hour), Local: "2030-01-31T11:00:00+01:00 CET"},
		{Nominal: clitest.At(2 * time.Hour), DueAt: clitest.At(2*time.Hour + time.Minute),
			Local: "2030-01-31T12:00:00+01:00 CET"},
	}
}

const timesText = "" +
	"NEXT                           UTC                   JITTER  \n" +
	"2030-01-31T11:00:00+01:00 CET  2030-01-31T10:00:00Z          in 1h\n" +
	"2030-01-31T12:00:00+01:00 CET  2030-01-31T11:00:00Z  +1m     in 2h1m\n" +
	"time zones of 2025c\n"

// TestPutAndPreview: each flag sets its field, and the next times are shown.
func TestPutAndPreview(t *testing.T) {
	priority, attempts := int64(-5), uint32(0)
	check(t, []verbCase{
		{
			args: []string{"schedule", "put", "reports", "nightly", "all shops", "--cron", "30 2 * * *", "--time-zone",
				"Europe/Berlin", "--dst", "skip", "--jitter", "1m", "--exclude", "* * 24 12 *", "--exclude", "* * * * 0",
				"--start", "2030-02-01T00:00:00Z", "--end", "2031-02-01T00:00:00Z", "--catch-up", "none", "--window", "1h",
				"--overlap", "one-waiting", "--max-fires", "7", "--pause-on-dead", "--ttr", "1m", "--ttl", "2m", "--priority",
				"-5", "--max-attempts", "0", "--retry-delays", "1s,2s", "-H", "kind=report", "--key", "k", "--if-version", "3",
				"--request-id", "r"},
			answer: &belfryv1.PutScheduleResponse{Replaced: true, Version: 4, Times: times(), ZoneData: "2025c",
				Warnings: []string{"this is rare"}},
			want: clitest.Left(0, "replaced nightly in reports, version 4\n"+timesText,
				"belfry: warning: this is rare\n"),
			sent: &belfryv1.PutScheduleRequest{
				Queue: "reports", Name: "nightly", IfVersion: 3, RequestId: "r", Spec: &belfryv1.ScheduleSpec{
					Rule: &belfryv1.ScheduleSpec_Cron{Cron: "30 2 * * *"}, TimeZone: "Europe/Berlin", Dst: belfryv1.DST_DST_SKIP,
					Jitter: clitest.In(time.Minute), Exclude: []string{"* * 24 12 *", "* * * * 0"},
					Start: clitest.At(15 * time.Hour), End: clitest.At(365*24*time.Hour + 15*time.Hour),
				}, Policy: &belfryv1.SchedulePolicy{
					CatchUp: belfryv1.CatchUp_CATCH_UP_NONE, Window: clitest.In(time.Hour), MaxFires: 7, PauseOnDead: true,
					Overlap: belfryv1.Overlap_OVERLAP_ONE_WAITING,
				}, Job: &belfryv1.PutRequest{
					Body: &belfryv1.PutRequest_Data{Data: []byte("all shops")}, Ttr: clitest.In(time.Minute),
					Ttl: clitest.In(2 * time.Minute), Priority: &priority, MaxAttempts: &attempts, Key: "k",
					Headers: map[string]string{"kind": "report"}, RetryDelays: durations(time.Second, 2*time.Second),
				},
			},
		},
		{
			args:   []string{"schedule", "put", "sync", "shop-7", "--every", "15m", "--phase", "1m"},
			answer: &belfryv1.PutScheduleResponse{Created: true, Version: 1},
			want:   clitest.Left(0, "created shop-7 in sync, version 1\nit does not fire any more\n", ""),
			sent: &belfryv1.PutScheduleRequest{
				Queue: "sync", Name: "shop-7", RequestId: clitest.RequestID(0), Spec: &belfryv1.ScheduleSpec{
					Rule:  &belfryv1.ScheduleSpec_Every{Every: clitest.In(15 * time.Minute)},
					Phase: clitest.In(time.Minute),
				}, Policy: &belfryv1.SchedulePolicy{
					CatchUp: belfryv1.CatchUp_CATCH_UP_LATEST, Overlap: belfryv1.Overlap_OVERLAP_ALLOW,
				}, Job: &belfryv1.PutRequest{Body: &belfryv1.PutRequest_Data{Data: []byte{}}},
			},
		},
		{
			args: []string{"schedule", "preview", "shop-7", "--cron", "@daily", "--after", "2030-01-31T10:00:00Z", "-n", "2"},
			answer: &belfryv1.PreviewScheduleResponse{Times: times(), Rule: "0 0 * * *", ZoneData: "2025c",
				Warnings: []string{"look"}},
			want: clitest.Left(0, "rule  0 0 * * *\n"+timesText, "belfry: warning: look\n"),
			sent: &belfryv1.PreviewScheduleRequest{Name: "shop-7", After: clitest.At(time.Hour), Count: 2,
				Spec: &belfryv1.ScheduleSpec{Rule: &belfryv1.ScheduleSpec_Cron{Cron: "@daily"}}},
		},
	})
}

// TestActs: what the verbs that act on schedules send and say.
func TestActs(t *testing.T) {
	check(t, []verbCase{
		{
			args:   []string{"schedule", "pause", "q", "a", "b", "--note", "why", "--request-id", "r"},
			answer: &belfryv1.PauseSchedulesResponse{Changed: 2},
			want:   clitest.Left(0, "2 schedules paused\n", ""),
			sent: &belfryv1.PauseSchedulesRequest{Queue: "q", Names: []string{"a", "b"}, Note: "why",
				RequestId: "r"},
		},
		{
			args:   []string{"schedule", "resume", "q", "--prefix", "a"},
			answer: &belfryv1.ResumeSchedulesResponse{Changed: 1},
			want:   clitest.Left(0, "1 schedule resumed\n", ""),
			sent:   &belfryv1.ResumeSchedulesRequest{Queue: "q", Prefix: "a", RequestId: clitest.RequestID(0)},
		},
		{
			args:   []string{"schedule", "pause", "q", "a", "x", "y"},
			answer: &belfryv1.PauseSchedulesResponse{Changed: 1, Missing: []string{"x", "y"}},
			want: clitest.Left(cli.CodeNotFound, "1 schedule paused\n",
				"belfry: q has no schedule of these names: x, y\n"),
			sent: &belfryv1.PauseSchedulesRequest{Queue: "q", Names: []string{"a", "x", "y"},
				RequestId: clitest.RequestID(0)},
		},
		{
			args:   []string{"schedule", "resume", "q", "x", "--output", "json"},
			answer: &belfryv1.ResumeSchedulesResponse{Missing: []string{"x"}},
			want: clitest.Left(cli.CodeNotFound, `{"changed":0,"witnesses":[],"missing":["x"]}`+"\n",
				"belfry: q has no schedule of these names: x\n"),
			sent: &belfryv1.ResumeSchedulesRequest{Queue: "q", Names: []string{"x"}, RequestId: clitest.RequestID(0)},
		},
		{
			args:   []string{"schedule", "trigger", "q", "a"},
			answer: &belfryv1.TriggerScheduleResponse{Id: "cron:a@x", Created: true},
			want:   clitest.Left(0, "put cron:a@x in q\n", ""),
			sent:   &belfryv1.TriggerScheduleRequest{Queue: "q", Name: "a"},
		},
		{
			args:   []string{"schedule", "trigger", "q", "a", "--at", "2030-01-31T08:00:00Z"},
			answer: &belfryv1.TriggerScheduleResponse{Id: "cron:a@x"},
			want:   clitest.Left(0, "was put before: cron:a@x in q\n", ""),
			sent:   &belfryv1.TriggerScheduleRequest{Queue: "q", Name: "a", At: clitest.At(-time.Hour)},
		},
		{
			args: []string{"schedule", "backfill", "q", "a", "--from", "2030-01-31T07:00:00Z", "--to", "2030-01-31T08:00:00Z",
				"--request-id", "r"},
			answer: &belfryv1.BackfillScheduleResponse{
				Put: 3, Existing: 2, Rest: clitest.At(-30 * time.Minute), QueueFull: true,
			},
			want: clitest.Left(0, "put 3 jobs in q, 2 put before\n"+
				"the queue is full; go on with --from 2030-01-31T08:30:00Z\n", ""),
			sent: &belfryv1.BackfillScheduleRequest{Queue: "q", Name: "a", From: clitest.At(-2 * time.Hour),
				To: clitest.At(-time.Hour), Max: 1000, RequestId: "r"},
		},
		{
			args: []string{"schedule", "delete", "q", "a", "--cancel-waiting", "--if-version", "2", "--yes",
				"--request-id", "r"},
			answer: &belfryv1.DeleteScheduleResponse{Cancelled: 1},
			want:   clitest.Left(0, "deleted a of q, 1 job cancelled\n", "This removes the schedule a of q.\n"),
			sent: &belfryv1.DeleteScheduleRequest{Queue: "q", Name: "a", CancelWaiting: true, IfVersion: 2,
				RequestId: "r"},
		},
	})
}

// TestRefusals: command lines that are refused before anything is sent.
func TestRefusals(t *testing.T) {
	for line, word := range map[string]string{
		"put q a":                                     "--cron or --every is required",
		"put q a --cron @daily --every 1m":            "exclude each other",
		"put q a --cron @daily -H bad":                "--header: want name=value",
		"put q a --cron @daily --dst never":           "--dst",
		"pause q":                                     "want one of NAME, --prefix and --all",
		"resume q a --all":                            "want one of NAME, --prefix and --all",
		"backfill q a --from 2030-01-31T07:00:00Z":    "--from and --to are required",
		"backfill q a -n 0":                           "--max: have \"0\", want a whole number, 1 or more",
		"preview --cron @daily -n 0":                  "--max: have \"0\", want a whole number, 1 or more",
		"list q -n -1":                                "--max: have \"-1\", want a whole number, 0 or more",
		"put q a --cron @daily --if-version 0":        "--if-version: have \"0\", want a whole number, 1 or more",
		"delete q a --if-version 0":                   "--if-version: have \"0\", want a whole number, 1 or more",
		"preview":                                     "--cron or --every is required",
		"preview --cron @daily --after tomorrow":      "--after",
		"put q a --every 1m --catch-up all --ttr no.": "--ttr",
	} {
		h := newHarness(t, clitest.Refuse(connect.CodeInternal, "INTERNAL", "nothing is to be sent"))
		h.Run(append([]string{"schedule"}, strings.Fields(line)...)...).Holds(t, cli.CodeUsage, word)
		if len(h.Requests) > 0 {
			t.Errorf("%s: sent %v", line, h.Requests)
		}
	}
	h := newHarness(t, clitest.Refuse(connect.CodeInternal, "INTERNAL", "nothing is to be sent"))
	h.System.In, h.System.InTerminal = strings.NewReader("no\n"), true
	h.Run("schedule", "delete", "q", "a").Holds(t, cli.CodeError, "nothing was removed")
}

// TestFieldsAreNamedAsFlags: a refusal of the server names the flag that set the field.
func TestFieldsAreNamedAsFlags(t *testing.T) {
	for field, name := range map[string]string{
		"spec.cron": "cron", "spec.every": "every", "spec.phase": "phase", "spec.timeZone": "time-zone", "spec.dst": "dst",
		"spec.jitter": "jitter", "spec.exclude": "exclude", "spec.start": "start", "spec.end": "end",
		"policy.window": "window", "policy.maxFires": "max-fires", "job.ttr": "ttr", "job.ttl": "ttl",
		"job.priority": "priority", "job.maxAttempts": "max-attempts", "job.retryDelays": "retry-delays",
		"job.headers": "header", "job.key": "key",
	} {
		h := newHarness(t, func(proto.Message) (proto.Message, error) {
			return nil, clitest.InvalidField(field, field+": out of range")
		})
		h.Run("schedule", "put", "q", "a", "--every", "1m").Holds(t, cli.CodeUsage, "--"+name+": out of range")
	}
}

// TestAllFieldsAreNamedAsFlags: so does a refusal of several fields. What is no field of a flag stays.
func TestAllFieldsAreNamedAsFlags(t *testing.T) {
	h := newHarness(t, func(proto.Message) (proto.Message, error) {
		return nil, clitest.InvalidField("name", "name: too long; spec.timeZone: there is no such zone; see the list; "+
			"job.retryDelays[2]: too long; policy.overlap: unknown; job.ttr: out of range: 1s to 1d")
	})
	outcome(t, h.Run("schedule", "put", "q", "a", "--every", "1m", "--request-id", "r"), clitest.Left(cli.CodeUsage, "",
		"belfry: INVALID: name: too long; --time-zone: there is no such zone; see the list; --retry-delays: too long; "+
			"--overlap: unknown; --ttr: out of range: 1s to 1d\n"))
}

// TestTriggerOnce: without --at a repeat would mean another job, so there is none.
func TestTriggerOnce(t *testing.T) {
	for want, args := range map[int][]string{1: nil, 2: {"--at", "2030-01-31T08:00:00Z"}} {
		sent := 0
		h := newHarness(t, func(proto.Message) (proto.Message, error) {
			if sent++; sent == 1 {
				return nil, clitest.WireError(connect.CodeUnavailable, "UNKNOWN_OUTCOME", "the leader is gone")
			}
			return &belfryv1.TriggerScheduleResponse{Id: "cron:a@x"}, nil
		})
		got := h.Run(append([]string{"schedule", "trigger", "q", "a"}, args...)...)
		if sent != want || got.Code != map[int]int{1: cli.CodeUnknown, 2: cli.CodeOK}[want] {
			t.Errorf("%q: sent %d times, want %d: %+v", args, sent, want, got)
		}
	}
}
