package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// accept answers a batch as a server does that takes every job.
func accept(request proto.Message) *belfryv1.PutBatchResponse {
	response := &belfryv1.PutBatchResponse{}
	for i := range request.(*belfryv1.PutBatchRequest).Jobs {
		response.Results = append(response.Results, &belfryv1.PutBatchResult{
			Result: &belfryv1.PutBatchResult_Put{Put: &belfryv1.PutResponse{Id: fmt.Sprintf("0-%d", i), Created: true}},
		})
	}
	return response
}

// entryError makes an entry of a batch fail.
func entryError(code string, reason belfryv1.Reason, result belfryv1.Outcome) *belfryv1.PutBatchResult {
	return &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Error{Error: &belfryv1.EntryError{
		Code: code, Reason: reason, Message: "the server's words", Outcome: result, RetryAfter: clitest.In(time.Millisecond),
	}}}
}

// texts returns the bodies of each batch that the server got, and the request ids.
func texts(h *clitest.Harness) (bodies []string, ids []string) {
	for _, batch := range clitest.Sent[*belfryv1.PutBatchRequest](h) {
		var all []string
		for _, job := range batch.Jobs {
			all = append(all, job.GetText())
		}
		bodies = append(bodies, strings.Join(all, " "))
		ids = append(ids, batch.RequestId)
	}
	return bodies, ids
}

const fiveLines = `{"queue":"a","text":"1","delay":"300s"}
{"text":"2"}

{"queue":"b","text":"3"}
{"text":"4"}
`

func TestPutFile(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) { return accept(r), nil })
	got := h.Run("put", "orders", "--file", clitest.WriteFile(t, "jobs.ndjson", fiveLines), "--batch", "3")
	if want := (clitest.Left(0, "4 jobs put in 0s\n", "")); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	bodies, ids := texts(h)
	if diff := cmp.Diff([]string{"1 2 3", "4"}, bodies); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{clitest.RequestID(0), clitest.RequestID(1)}, ids); diff != "" {
		t.Errorf("request ids (-want +got):\n%s", diff)
	}
	first := clitest.Sent[*belfryv1.PutBatchRequest](h)[0].Jobs
	if first[0].Queue != "a" || first[0].GetDelay().AsDuration() != 5*time.Minute || first[1].Queue != "orders" {
		t.Errorf("sent %v; want the line's own queue and delay, and the command's queue where a line has none", first)
	}
}

func TestPutFileFromStandardInput(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) { return accept(r), nil })
	h.System.In = strings.NewReader(fiveLines)
	if got := h.Run("put", "orders", "-f", "-", "-o", "json"); got.Out != `{"put":4,"replaced":0,"repeated":0,"failed":0,"seconds":0}`+
		"\n" {
		t.Errorf("got %+v", got)
	}
}

// TestPutFileSplitsLargeBatches keeps each call below what the server takes.
func TestPutFileSplitsLargeBatches(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) { return accept(r), nil })
	line := fmt.Sprintf(`{"queue":"a","text":"%s"}`, strings.Repeat("x", 1<<20-100))
	if got := h.Run("put", "--file", clitest.WriteFile(t, "jobs.ndjson", strings.Repeat(line+"\n", 5))); got.Code != 0 {
		t.Fatalf("got %+v", got)
	}
	for i, batch := range clitest.Sent[*belfryv1.PutBatchRequest](h) {
		if size := proto.Size(batch); size > 4<<20 {
			t.Errorf("call %d has %d bytes", i, size)
		}
	}
}

func TestPutFileBadLines(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		response := accept(r)
		response.Results[1] = entryError("already_exists", belfryv1.Reason_REASON_JOB_EXISTS,
			belfryv1.Outcome_OUTCOME_NOT_APPLIED)
		response.Results[2].GetPut().Created = false
		response.Results[3].GetPut().Created, response.Results[3].GetPut().Replaced = false, true
		return response, nil
	})
	path := clitest.WriteFile(t, "jobs.ndjson", strings.Join([]string{
		`{"queue":"a","text":"1"}`, `{"queue":"a","dealy":"1s"}`, `{"text":"no queue"}`, `{"queue":"a","text":"exists"}`,
		`not JSON`,
		`{"queue":"a","requestId":"x"}`, `{"queue":"a","text":"again"}`,
		`{"queue":"a","id":"b","onExisting":"REPLACE","key":"k","maxWait":"1m","ifVersion":"7"}`,
	}, "\n"))
	got := h.Run("put", "--file", path)
	if got.Code != cli.CodeError || got.Out != "1 job put in 0s; 1 replaced; 1 had been put before; 5 failed\n" {
		t.Errorf("got %+v, want one put, one repeat, five failures and exit code 1", got)
	}
	for _, want := range []string{
		":2: ", "dealy", ":3: the line names no queue", ":4: JOB_EXISTS: the server's words", ":5: ", ":6: requestId",
		"belfry: 5 lines were not put",
	} {
		if !strings.Contains(got.Err, want) {
			t.Errorf("said\n%s\nwant %q in it", got.Err, want)
		}
	}
}

// TestPutFileShowsFewBadLines keeps a file that is all wrong from flooding the terminal, and says
// once what is the same of many lines.
func TestPutFileShowsFewBadLines(t *testing.T) {
	h := newHarness(t, nil)
	for _, test := range []struct{ bad, lines int }{{reportedMax, reportedMax + 1}, {1000, reportedMax + 2}} {
		var text strings.Builder
		for i := range test.bad {
			fmt.Fprintf(&text, "{\"field%d\":1}\n", i)
		}
		got := h.Run("put", "a", "--file", clitest.WriteFile(t, "jobs.ndjson", text.String()))
		if lines := strings.Count(got.Err, "\n"); lines != test.lines || got.Code != cli.CodeError ||
			strings.Contains(got.Err, "further") != (test.bad > reportedMax) {
			t.Errorf("%d lines, code %d; want %d and 1:\n%s", lines, got.Code, test.lines, got.Err)
		}
	}
	path := clitest.WriteFile(t, "jobs.ndjson", strings.Repeat("x\n", 1000))
	got := h.Run("put", "a", "--file", path)
	if !strings.Contains(got.Err, path+": the same of 997 lines after it\n") || strings.Count(got.Err, "\n") != 5 {
		t.Errorf("of equal lines: %s", got.Err)
	}
}

// TestPutFileMeetsLimits: what a quota refuses has the exit code of limits, and what is waited for
// is said once.
func TestPutFileMeetsLimits(t *testing.T) {
	calls := 0
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		response := accept(r)
		reason := belfryv1.Reason_REASON_QUOTA
		if calls++; calls <= 2 {
			reason = belfryv1.Reason_REASON_RATE_LIMITED
		}
		for i := range response.Results {
			response.Results[i] = entryError("resource_exhausted", reason, belfryv1.Outcome_OUTCOME_NOT_APPLIED)
		}
		return response, nil
	})
	got := h.Run("put", "a", "--file", clitest.WriteFile(t, "jobs.ndjson", strings.Repeat("{}\n", 6)))
	if got.Code != cli.CodeExhausted || !strings.Contains(got.Err, ":1: QUOTA: the server's words\n") ||
		!strings.Contains(got.Err, "the same of 3 lines after it") ||
		!strings.Contains(got.Err, "6 lines were not put, refused by a limit") {
		t.Errorf("got %+v", got)
	}
	if strings.Count(got.Err, "slowed down by the server: RATE_LIMITED: the server's words\n") != 1 {
		t.Errorf("of the wait: %s", got.Err)
	}
}

// TestPutFileRepeatsWithTheSameID makes the first calls fail in the ways that leave open whether
// they were applied.
func TestPutFileRepeatsWithTheSameID(t *testing.T) {
	calls := 0
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		calls++
		switch calls {
		case 1:
			return nil, clitest.WireError(connect.CodeUnavailable, "SHUTTING_DOWN", "not now")
		case 2:
			response := accept(r)
			response.Results[0] = entryError("unavailable", belfryv1.Reason_REASON_UNKNOWN_OUTCOME,
				belfryv1.Outcome_OUTCOME_UNKNOWN)
			return response, nil
		case 3:
			return nil, clitest.WireError(connect.CodeResourceExhausted, "OVERLOADED", "not now")
		default:
			return accept(r), nil
		}
	})
	got := h.Run("put", "orders", "--file", clitest.WriteFile(t, "jobs.ndjson", `{"text":"1"}`))
	if want := (clitest.Left(0, "1 job put in 0s\n", "")); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	_, ids := texts(h)
	same := clitest.RequestID(0)
	if diff := cmp.Diff([]string{same, same, same, same}, ids); diff != "" {
		t.Errorf("request ids (-want +got):\n%s", diff)
	}
}

// TestPutFileRepeatsWhatWasRefused sends only the refused jobs again, as a call of their own.
func TestPutFileRepeatsWhatWasRefused(t *testing.T) {
	calls := 0
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		response := accept(r)
		if calls++; calls == 1 {
			response.Results[1] = entryError("resource_exhausted", belfryv1.Reason_REASON_RATE_LIMITED,
				belfryv1.Outcome_OUTCOME_NOT_APPLIED)
		}
		return response, nil
	})
	got := h.Run("put", "orders", "--file", clitest.WriteFile(t, "jobs.ndjson", fiveLines))
	if want := (clitest.Left(0, "4 jobs put in 0s\n",
		"belfry: slowed down by the server: RATE_LIMITED: the server's words\n")); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	bodies, ids := texts(h)
	if diff := cmp.Diff([]string{"1 2 3 4", "2"}, bodies); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{clitest.RequestID(0), clitest.RequestID(1)}, ids); diff != "" {
		t.Errorf("request ids (-want +got):\n%s", diff)
	}
}

// followAdvice runs the n-th command that a stopped put printed.
func followAdvice(t *testing.T, h *clitest.Harness, said string, n int) clitest.Outcome {
	t.Helper()
	advice := strings.Split(said, "\n  belfry ")
	if len(advice) <= n {
		t.Fatalf("said\n%s\nwant %d commands in it", said, n)
	}
	line, _, _ := strings.Cut(advice[n], "\n")
	return h.Run(strings.Fields(line)...)
}

// TestPutFileResumes interrupts a file after its first batch and follows the advice that is
// printed.
func TestPutFileResumes(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	h := newHarness(t, nil)
	h.Answer = func(r proto.Message) (proto.Message, error) {
		if len(clitest.Sent[*belfryv1.PutBatchRequest](h)) == 2 {
			cancel(cli.Interruption{Signal: syscall.SIGINT})
			return nil, clitest.WireError(connect.CodeUnavailable, "UNKNOWN_OUTCOME", "who knows")
		}
		return accept(r), nil
	}
	path := clitest.WriteFile(t, "jobs.ndjson", fiveLines+`{"text":"5"}`)
	got := h.RunContext(ctx, "put", "orders", "--file", path, "--batch", "2")
	const want = "stopped at line 4 with 2 jobs put; whether lines 4 to 5 were put is unknown. Within 5 minutes"
	if got.Code != 130 || !strings.Contains(got.Err, want) {
		t.Fatalf("got %+v, want exit code 130 and %q", got, want)
	}
	if got := followAdvice(t, h, got.Err, 1); got.Code != 0 || got.Out != "3 jobs put in 0s\n" {
		t.Errorf("the advice gave %+v", got)
	}
	bodies, ids := texts(h)
	if diff := cmp.Diff([]string{"1 2", "3 4", "3 4", "5"}, bodies); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{clitest.RequestID(0), clitest.RequestID(1), clitest.RequestID(1), clitest.RequestID(2)},
		ids); diff != "" {
		t.Errorf("request ids (-want +got), the unknown batch must be repeated under its own:\n%s", diff)
	}
}

// TestPutFileResumesPartOfABatch stops while a job that was refused at first is on its way again:
// what was put of its batch is left out of the repeat.
func TestPutFileResumesPartOfABatch(t *testing.T) {
	h := newHarness(t, nil)
	h.Answer = func(r proto.Message) (proto.Message, error) {
		response := accept(r)
		switch len(clitest.Sent[*belfryv1.PutBatchRequest](h)) {
		case 1:
			for _, i := range []int{1, 3} {
				response.Results[i] = entryError("resource_exhausted", belfryv1.Reason_REASON_RATE_LIMITED,
					belfryv1.Outcome_OUTCOME_NOT_APPLIED)
			}
		case 2:
			h.System.Now = func() time.Time { return clitest.Now.Add(time.Minute) } // nothing is waited for any more
			return nil, clitest.WireError(connect.CodeInternal, "INTERNAL", "the server's words")
		}
		return response, nil
	}
	path := clitest.WriteFile(t, "jobs.ndjson", fiveLines)
	got := h.Run("put", "orders", "--file", path)
	if got.Code != cli.CodeUnknown ||
		!strings.Contains(got.Err, "stopped at line 2 with 2 jobs put; whether lines 2 to 5 were put is unknown") {
		t.Fatalf("got %+v, want exit code 5", got)
	}
	h.System.Now = func() time.Time { return clitest.Now }
	if got := followAdvice(t, h, got.Err, 1); got.Code != 0 || got.Out != "2 jobs put in 0s\n" {
		t.Errorf("the advice gave %+v", got)
	}
	bodies, ids := texts(h)
	if diff := cmp.Diff([]string{"1 2 3 4", "2 4", "2 4"}, bodies); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{clitest.RequestID(0), clitest.RequestID(1), clitest.RequestID(1)}, ids); diff != "" {
		t.Errorf("request ids (-want +got):\n%s", diff)
	}
}

// TestPutFileStopsWithoutAnAnswer makes calls of unknown outcome until the time is up: 5, never 1
// or 4.
func TestPutFileStopsWithoutAnAnswer(t *testing.T) {
	h := newHarness(t, nil)
	h.Answer = func(r proto.Message) (proto.Message, error) {
		response := accept(r)
		response.Results[0] = entryError("unavailable", belfryv1.Reason_REASON_UNKNOWN_OUTCOME,
			belfryv1.Outcome_OUTCOME_UNKNOWN)
		h.System.Now = func() time.Time { return clitest.Now.Add(time.Minute) }
		return response, nil
	}
	got := h.Run("put", "orders", "--file", clitest.WriteFile(t, "jobs.ndjson", fiveLines))
	if got.Code != cli.CodeUnknown || !strings.Contains(got.Err, "--request-id "+clitest.RequestID(0)+" --repeat-to 5") {
		t.Errorf("got %+v, want exit code 5 and the id to repeat", got)
	}
}

// TestPutFileThatCannotBeRead puts what came before the fault.
func TestPutFileThatCannotBeRead(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) { return accept(r), nil })
	h.System.In = io.MultiReader(strings.NewReader(`{"text":"1"}`+"\n"), iotest.ErrReader(errors.New("the disk broke")))
	got := h.Run("put", "orders", "--file", "-")
	if got.Code != cli.CodeError || !strings.Contains(got.Err, "stopped at line 2 with 1 job put; go on with:") ||
		!strings.Contains(got.Err, "the disk broke") {
		t.Errorf("got %+v", got)
	}
}

// TestPutFileLongLine leaves a line out that no server would take, and puts what follows.
func TestPutFileLongLine(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) { return accept(r), nil })
	long := strings.Repeat("x", lineBytesMax)
	got := h.Run("put", "orders", "--file",
		clitest.WriteFile(t, "jobs.ndjson", `{"text":"1"}`+"\n"+long+"\n\n"+`{"text":"2"}`+"\n"+long+"x"))
	if got.Code != cli.CodeError || got.Out != "2 jobs put in 0s; 2 failed\n" {
		t.Errorf("got %+v, want two jobs put and two lines failed", got)
	}
	for _, want := range []string{":2: the line has 8388609 bytes; the limit is 8388608",
		":5: the line has 8388609 bytes"} {
		if !strings.Contains(got.Err, want) {
			t.Errorf("said\n%s\nwant %q in it", got.Err, want)
		}
	}
}

// TestPutFileAdviceIsForTheSameServer: the command that is printed goes to the server that was
// named, and a shell reads it as it was meant.
func TestPutFileAdviceIsForTheSameServer(t *testing.T) {
	h := newHarness(t, func(proto.Message) (proto.Message, error) {
		return nil, clitest.WireError(connect.CodePermissionDenied, "FORBIDDEN", "the server's words")
	})
	h.Env["BELFRY_SERVER"] = ""
	path := clitest.WriteFile(t, "Ann's jobs.ndjson", fiveLines)
	got := h.Run("put", "orders", "--file", path, "--server", h.URL)
	quoted := "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	if want := "belfry put orders --server " + h.URL + " --file " + quoted +
		" --from 1"; !strings.Contains(got.Err, want) {
		t.Errorf("said\n%s\nwant %s in it", got.Err, want)
	}
}

// TestPutFileTooLate repeats a batch that the server does not remember any more, as a whole or in
// part.
func TestPutFileTooLate(t *testing.T) {
	whole := func(proto.Message) (proto.Message, error) {
		return nil, clitest.WireError(connect.CodeFailedPrecondition, "REQUEST_EXPIRED", "too old")
	}
	part := func(r proto.Message) (proto.Message, error) {
		response := accept(r)
		response.Results[1] = entryError("failed_precondition", belfryv1.Reason_REASON_REQUEST_EXPIRED,
			belfryv1.Outcome_OUTCOME_UNKNOWN)
		return response, nil
	}
	for _, test := range []struct {
		name              string
		answer            func(proto.Message) (proto.Message, error)
		says              string
		leftOut, putAgain string
	}{
		{"whole", whole, "stopped at line 1 with 0 jobs put; whether lines 1 to 4 were put is unknown", "4", "1 2 3 4"},
		{"part", part, "stopped at line 2 with 2 jobs put; whether lines 2 to 2 were put is unknown", "4", "2 4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := clitest.WriteFile(t, "jobs.ndjson", fiveLines)
			for n, want := range []string{test.leftOut, test.putAgain} {
				h := newHarness(t, test.answer)
				got := h.Run("put", "orders", "--file", path, "--request-id", "an old one", "--repeat-to", "4")
				if got.Code != cli.CodeUnknown || !strings.Contains(got.Err, test.says) ||
					!strings.Contains(got.Err, "belfry: REQUEST_EXPIRED: ") {
					t.Fatalf("got %+v, want exit code 5, %q and the reason", got, test.says)
				}
				h.Answer = func(r proto.Message) (proto.Message, error) { return accept(r), nil }
				if got := followAdvice(t, h, got.Err, n+1); got.Code != cli.CodeOK {
					t.Errorf("command %d gave %+v", n, got)
				}
				if bodies, _ := texts(h); strings.Join(bodies[1:], " ") != want {
					t.Errorf("command %d put %q, want %q", n, bodies[1:], want)
				}
			}
		})
	}
}

func TestLineSet(t *testing.T) {
	var set lineSet
	if err := set.Set("9-12,7,8,30,11-14"); err != nil {
		t.Fatal(err)
	}
	set.add(31)
	set.add(40)
	if got, want := set.String(), "7-14,30-31,40"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for line, want := range map[uint64]bool{
		6: false, 7: true, 10: true, 14: true, 15: false, 31: true, 39: false, 40: true, 41: false,
	} {
		if set.has(line) != want {
			t.Errorf("has(%d) is %v", line, !want)
		}
	}
	for _, bad := range []string{"", "x", "3-", "5-4", "1,,2", "-1"} {
		if err := new(lineSet).Set(bad); err == nil {
			t.Errorf("%q was taken for lines", bad)
		}
	}
}

func TestPutFileRefusals(t *testing.T) {
	for _, test := range []struct {
		args string
		says string
	}{
		{"put a --file nowhere.ndjson", "nowhere.ndjson"},
		{"put a b --file x", "a body does not go with --file"},
		{"put a --file x --batch 1001", "--batch must be 1 to 1000"},
		{"put a --file x --from 0", "--from at least 1"},
		{"put a --file x --request-id x", "--request-id and --repeat-to go together"},
		{"put a --file x --repeat-to 5", "--request-id and --repeat-to go together"},
		{"put a --file x --request-id x --repeat-to 5 --from 6", "--repeat-to must not be below --from"},
		{"put a --file x --skip 5-3", "want lines such as 7,9-12"},
	} {
		t.Run(test.args, func(t *testing.T) {
			h := newHarness(t, nil)
			if got := h.Run(strings.Fields(test.args)...); got.Code != cli.CodeUsage || !strings.Contains(got.Err, test.says) {
				t.Errorf("got %+v, want exit code 2 and %q", got, test.says)
			}
		})
	}
}
