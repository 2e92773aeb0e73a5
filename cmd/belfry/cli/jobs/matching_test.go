package jobs

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
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

// tasksOf answers as a server whose counts find so many jobs, and whose other tasks go through the
// steps, one at each look.
func tasksOf(matched uint64, steps ...*belfryv1.Task) func(proto.Message) (proto.Message, error) {
	next := 0
	return func(r proto.Message) (proto.Message, error) {
		switch r := r.(type) {
		case *belfryv1.StartTaskRequest:
			task := &belfryv1.Task{
				Id: "act", Queue: r.Queue, State: r.State, Act: r.Act, Max: r.Max, StartedAt: clitest.At(0), Text: r.Text,
			}
			if r.Act == belfryv1.TaskAct_TASK_ACT_COUNT {
				task.Id, task.Matched, task.EndedAt = "count", matched, clitest.At(0)
			}
			return &belfryv1.StartTaskResponse{Task: task}, nil
		case *belfryv1.GetTaskRequest:
			step := steps[min(next, len(steps)-1)]
			next++
			return &belfryv1.GetTaskResponse{Task: step}, nil
		case *belfryv1.StopTaskRequest:
			return &belfryv1.StopTaskResponse{Task: steps[len(steps)-1]}, nil
		default:
			return nil, fmt.Errorf("there is no answer to %T", r)
		}
	}
}

// redriven is a redrive of so many jobs that has ended.
func redriven(changed, skipped uint64) *belfryv1.Task {
	return &belfryv1.Task{
		Id: "act", Act: belfryv1.TaskAct_TASK_ACT_REDRIVE, Max: changed + skipped, Matched: changed + skipped,
		Changed: changed, Skipped: skipped, EndedAt: clitest.At(0),
	}
}

const asked = "This makes 1,200 dead jobs of orders (with \"smtp 421\") ready, with all their attempts.\n"

// TestRedriveOfAllThatMatch counts, and acts on no more jobs than it counted.
func TestRedriveOfAllThatMatch(t *testing.T) {
	h := newHarness(t, tasksOf(1200, &belfryv1.Task{Id: "act"}, redriven(1198, 2)))
	got := h.Run("redrive", "orders", "--match", "smtp 421", "--rate", "500", "--yes")
	want := clitest.Left(0, "1,198 jobs made ready; 2 skipped, because they were in another state by then\n", asked)
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	count := &belfryv1.StartTaskRequest{
		Queue: "orders", State: belfryv1.JobState_JOB_STATE_DEAD, Text: "smtp 421",
		Act: belfryv1.TaskAct_TASK_ACT_COUNT, RequestId: clitest.RequestID(0),
	}
	act := proto.Clone(count).(*belfryv1.StartTaskRequest)
	act.Act, act.Max, act.PerSecond, act.RequestId = belfryv1.TaskAct_TASK_ACT_REDRIVE, 1200, 500, clitest.RequestID(1)
	sent := clitest.Sent[*belfryv1.StartTaskRequest](h)
	if diff := cmp.Diff([]*belfryv1.StartTaskRequest{count, act}, sent, protocmp.Transform()); diff != "" {
		t.Errorf("tasks (-want +got):\n%s", diff)
	}
	if looks := clitest.Sent[*belfryv1.GetTaskRequest](h); len(looks) != 2 || looks[0].Id != "act" {
		t.Errorf("it looked for %v", looks)
	}
}

// TestActsThatMatch: each command asks for what its flags say.
func TestActsThatMatch(t *testing.T) {
	const after, before = "2030-01-01T00:00:00Z", "2030-02-01T00:00:00Z"
	for _, tt := range []struct {
		args string
		want *belfryv1.StartTaskRequest
		says string
	}{
		{"cancel orders --id-prefix test- --state dead", &belfryv1.StartTaskRequest{
			State: belfryv1.JobState_JOB_STATE_DEAD, IdPrefix: "test-", Act: belfryv1.TaskAct_TASK_ACT_CANCEL,
		}, "This cancels 7 dead jobs of orders (id begins with \"test-\")."},
		{"cancel orders --all --state reserved --force", &belfryv1.StartTaskRequest{
			State: belfryv1.JobState_JOB_STATE_RESERVED, Act: belfryv1.TaskAct_TASK_ACT_CANCEL, Force: true,
		}, "This cancels 7 reserved jobs of orders."},
		{"reschedule orders --due-after " + after + " --due-before " + before + " --delay 2h", &belfryv1.StartTaskRequest{
			State: belfryv1.JobState_JOB_STATE_DELAYED, Act: belfryv1.TaskAct_TASK_ACT_RESCHEDULE,
			DueAfter: clitest.At(-(30*24 + 9) * time.Hour), DueBefore: clitest.At(15 * time.Hour),
			When: &belfryv1.StartTaskRequest_Delay{Delay: clitest.In(2 * time.Hour)},
		}, "This gives a due time 2h from now to 7 delayed jobs of orders (due from " + after + ", due before " + before +
			")."},
		{"reschedule orders --all --state ready --at " + before, &belfryv1.StartTaskRequest{
			State: belfryv1.JobState_JOB_STATE_READY, Act: belfryv1.TaskAct_TASK_ACT_RESCHEDULE,
			When: &belfryv1.StartTaskRequest_DueAt{DueAt: clitest.At(15 * time.Hour)},
		}, "This gives the due time " + before + " to 7 ready jobs of orders."},
		{"run-now orders --cause timeout", &belfryv1.StartTaskRequest{
			State: belfryv1.JobState_JOB_STATE_DELAYED, Cause: "timeout", Act: belfryv1.TaskAct_TASK_ACT_RESCHEDULE,
			When: &belfryv1.StartTaskRequest_Delay{Delay: &durationpb.Duration{}},
		}, "This makes 7 delayed jobs of orders (cause \"timeout\") ready at once."},
		{"redrive orders --all --max 7", &belfryv1.StartTaskRequest{
			State: belfryv1.JobState_JOB_STATE_DEAD, Act: belfryv1.TaskAct_TASK_ACT_REDRIVE,
		}, "This makes 7 dead jobs of orders ready, with all their attempts."},
	} {
		h := newHarness(t, tasksOf(7))
		got := h.Run(append(strings.Fields(tt.args), "--yes", "--no-wait")...)
		if got.Code != 0 || got.Err != tt.says+"\n" ||
			got.Out != "task act began; 'belfry tasks get act' shows how far it is\n" {
			t.Errorf("%s: %+v", tt.args, got)
		}
		tt.want.Queue, tt.want.Max, tt.want.RequestId = "orders", 7, clitest.RequestID(1)
		sent := clitest.Sent[*belfryv1.StartTaskRequest](h)
		if diff := cmp.Diff(tt.want, sent[1], protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.args, diff)
		}
		if limited := strings.Contains(tt.args, "--max"); sent[0].Act != belfryv1.TaskAct_TASK_ACT_COUNT ||
			(sent[0].Max == 7) != limited {
			t.Errorf("%s: it counted by %v", tt.args, sent[0])
		}
	}
}

// TestNothingIsChangedUnasked: a count alone starts no act.
func TestNothingIsChangedUnasked(t *testing.T) {
	for _, tt := range []struct {
		name, args, typed string
		matched           uint64
		want              clitest.Outcome
	}{
		{"no terminal", "", "", 1200, clitest.Left(cli.CodeUsage, "",
			asked+"belfry: nothing was changed: this is not a terminal, so say --yes if it is meant\n"+
				"Run 'belfry redrive --help' for usage.\n")},
		{"another answer", "", "y\n", 1200, clitest.Left(cli.CodeError, "",
			asked+"Go on? Type yes: belfry: nothing was changed\n")},
		{"a dry run", "--dry-run", "", 1, clitest.Left(0,
			"1 dead job of orders (with \"smtp 421\") would be made ready\n", "")},
		{"no match", "--yes", "", 0, clitest.Left(0, "no dead jobs of orders (with \"smtp 421\")\n", "")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, tasksOf(tt.matched))
			h.System.In, h.System.InTerminal = strings.NewReader(tt.typed), tt.typed != ""
			if got := h.Run(append([]string{"redrive", "orders", "--match", "smtp 421"},
				strings.Fields(tt.args)...)...); got != tt.want {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
			if sent := clitest.Sent[*belfryv1.StartTaskRequest](h); len(sent) != 1 {
				t.Errorf("it started %v", sent)
			}
		})
	}
	h := newHarness(t, tasksOf(1200, redriven(1200, 0)))
	h.System.In, h.System.InTerminal = strings.NewReader("yes\n"), true
	if got := h.Run("redrive", "orders", "--match", "smtp 421"); got.Out != "1,200 jobs made ready\n" {
		t.Errorf("after a yes: %+v", got)
	}
}

// TestActThatEndedEarly says so, and how far it came.
func TestActThatEndedEarly(t *testing.T) {
	for trouble, says := range map[string]string{
		"": "it was stopped", "the queue was deleted": "the queue was deleted",
	} {
		ended := redriven(300, 0)
		ended.Max, ended.Stopping, ended.Trouble = 1200, trouble == "", trouble
		h := newHarness(t, tasksOf(1200, ended))
		want := clitest.Left(cli.CodePartly, "300 jobs made ready; then the task ended early\n",
			asked+"belfry: task act ended early; "+says+"\n")
		if got := h.Run("redrive", "orders", "--match", "smtp 421", "-y"); got != want {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
	all := redriven(1200, 0)
	all.Stopping = true // too late
	h := newHarness(t, tasksOf(1200, all))
	if got := h.Run("redrive", "orders", "--match", "smtp 421", "-y"); got.Code != 0 {
		t.Errorf("stopped after its last step: %+v", got)
	}
}

// interruptAt returns a context that Ctrl-C ends when a request comes of which at is true.
func interruptAt(t *testing.T, h *clitest.Harness, at func(proto.Message) bool) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	answer := h.Answer
	h.Answer = func(r proto.Message) (proto.Message, error) {
		if at(r) {
			cancel(cli.Interruption{Signal: os.Signal(syscall.SIGINT)})
		}
		return answer(r)
	}
	return ctx
}

// TestCtrlCLeavesTheTaskAlone, and says how to stop it.
func TestCtrlCLeavesTheTaskAlone(t *testing.T) {
	h := newHarness(t, tasksOf(1200, &belfryv1.Task{Id: "act", Act: belfryv1.TaskAct_TASK_ACT_REDRIVE, Changed: 300}))
	looks := 0
	ctx := interruptAt(t, h, func(r proto.Message) bool {
		if _, ok := r.(*belfryv1.GetTaskRequest); ok {
			looks++
		}
		return looks == 2
	})
	got := h.RunContext(ctx, "redrive", "orders", "--match", "smtp 421", "-y")
	want := clitest.Left(130, "", asked+"belfry: interrupted, but the task goes on: 300 jobs made ready so far\n"+
		"'belfry tasks get act' shows how far it is, 'belfry tasks stop act' stops it\n")
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if stops := clitest.Sent[*belfryv1.StopTaskRequest](h); len(stops) > 0 {
		t.Errorf("it stopped %v", stops)
	}
}

// TestCtrlCEndsTheCount, and starts no act.
func TestCtrlCEndsTheCount(t *testing.T) {
	counting := &belfryv1.Task{Id: "count", Act: belfryv1.TaskAct_TASK_ACT_COUNT}
	h := newHarness(t, tasksOf(0, counting))
	answer := h.Answer
	h.Answer = func(r proto.Message) (proto.Message, error) {
		if _, ok := r.(*belfryv1.StartTaskRequest); ok {
			return &belfryv1.StartTaskResponse{Task: counting}, nil
		}
		return answer(r)
	}
	ctx := interruptAt(t, h, func(r proto.Message) bool { _, ok := r.(*belfryv1.GetTaskRequest); return ok })
	got := h.RunContext(ctx, "cancel", "orders", "--all", "-y")
	const says = "belfry: nothing was changed: interrupted while the jobs were counted\n"
	if got != (clitest.Left(130, "", says)) {
		t.Errorf("got %+v\nwant %q", got, says)
	}
	if stops := clitest.Sent[*belfryv1.StopTaskRequest](h); len(stops) != 1 || stops[0].Id != "count" {
		t.Errorf("it stopped %v", stops)
	}
	if starts := clitest.Sent[*belfryv1.StartTaskRequest](h); len(starts) != 1 {
		t.Errorf("it started %v", starts)
	}
}

// TestActWhoseStartIsUnknown: a second one is not begun, and the person is told where to look.
func TestActWhoseStartIsUnknown(t *testing.T) {
	h := newHarness(t, nil)
	count := tasksOf(1200)
	h.Answer = func(r proto.Message) (proto.Message, error) {
		if start, ok := r.(*belfryv1.StartTaskRequest); ok && start.Act != belfryv1.TaskAct_TASK_ACT_COUNT {
			return nil, clitest.WireError(connect.CodeInternal, "INTERNAL", "the server's words")
		}
		return count(r)
	}
	got := h.Run("redrive", "orders", "--match", "smtp 421", "-y")
	want := clitest.Left(cli.CodeUnknown, "", asked+
		"belfry: INTERNAL: the server's words; whether a task began is unknown; 'belfry tasks --queue orders' shows it\n")
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestActOnAQueueThatIsNot fails as every command does.
func TestActOnAQueueThatIsNot(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		if _, ok := r.(*belfryv1.ListQueuesRequest); ok {
			return &belfryv1.ListQueuesResponse{Queues: []*belfryv1.Queue{{Name: "orders"}}}, nil
		}
		return nil, clitest.WireError(connect.CodeNotFound, "QUEUE_NOT_FOUND", "there is no such queue")
	})
	h.Run("redrive", "ordres", "--all", "-y").Holds(t, cli.CodeNotFound, `there is no queue "ordres"; did you mean "orders"?`)
}

// TestServerRefusesAFilter names the flag, not the field.
func TestServerRefusesAFilter(t *testing.T) {
	h := newHarness(t, func(proto.Message) (proto.Message, error) {
		return nil, clitest.InvalidField("text", "text: it has 300 bytes; the limit is 256")
	})
	for _, command := range []string{"list", "redrive"} {
		h.Run(command, "orders", "--match", "x").Holds(t, cli.CodeUsage, "--match: it has 300 bytes")
	}
}

// TestSelectionsThatMakeNoSense are refused before anything is asked of a server.
func TestSelectionsThatMakeNoSense(t *testing.T) {
	for args, says := range map[string]string{
		"redrive orders --match=":                            `--match: have "", want a text that is not empty`,
		"list orders --cause=":                               `--cause: have "", want a text that is not empty`,
		"redrive orders --all --match x":                     "--all and --match exclude each other",
		"redrive orders order-42 --cause x":                  "--cause and the id of a job exclude each other",
		"cancel orders order-42 --all":                       "--all and the id of a job exclude each other",
		"cancel orders order-42 --state dead":                "--state goes with --all or a filter: --match, ",
		"cancel orders --yes":                                "--yes goes with --all or a filter",
		"redrive orders --max 5 --rate 7":                    "--rate goes with --all or a filter",
		"redrive orders --all --rate 0":                      "--rate must be 1 to 1000000",
		"redrive orders --all --rate 1000001":                "--rate must be 1 to 1000000",
		"redrive orders --all --max 0":                       "--max must be at least 1",
		"redrive orders --all --request-id x":                "--request-id is for jobs that are named",
		"cancel orders --all --key k":                        "--key is for a job that is named, and --all selects jobs",
		"run-now orders --match x --key k":                   "--key is for a job that is named, and --match selects jobs",
		"redrive orders --all --dry-run --no-wait":           "--dry-run and --no-wait exclude each other",
		"cancel orders --all --state reserved":               "--state reserved needs --force",
		"reschedule orders --all":                            "missing --delay or --at",
		"reschedule orders --all --state dead":               "want one of delayed, ready",
		"run-now orders":                                     "missing argument: ID, or --all or a filter: --match, ",
		"run-now orders --all --delay 1s":                    "unknown flag --delay",
		"list orders --text x":                               "unknown flag --text",
		"reschedule orders --all --due-after now --delay 1s": "--due-after: have \"now\", want a time such as",
	} {
		h := newHarness(t, nil)
		got := h.Run(strings.Fields(args)...)
		if got.Code != cli.CodeUsage || !strings.Contains(got.Err, says) || len(h.Requests) > 0 {
			t.Errorf("%s: %+v after %d requests, want %q", args, got, len(h.Requests), says)
		}
	}
}
