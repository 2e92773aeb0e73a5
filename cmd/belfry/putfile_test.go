package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

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
		Code: code, Reason: reason, Message: "the server's words", Outcome: result, RetryAfter: in(time.Millisecond),
	}}}
}

// texts returns the bodies of each batch that the server got, and the request ids.
func texts(h *harness) (bodies []string, ids []string) {
	for _, batch := range sent[*belfryv1.PutBatchRequest](h) {
		var all []string
		for _, job := range batch.Jobs {
			all = append(all, job.GetText())
		}
		bodies = append(bodies, strings.Join(all, " "))
		ids = append(ids, batch.RequestId)
	}
	return bodies, ids
}

// id returns the request id of the batch that begins in a line, at its n-th attempt.
func batchID(t *testing.T, line, attempt uint64) string {
	t.Helper()
	id, err := parseRequestID(fixedRequestID)
	if err != nil {
		t.Fatal(err)
	}
	return id.plus(attempt<<40 + line).String()
}

const fiveLines = `{"queue":"a","text":"1","delay":"300s"}
{"text":"2"}

{"queue":"b","text":"3"}
{"text":"4"}
`

func TestPutFile(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) { return accept(r), nil })
	got := h.run("put", "orders", "--file", write(t, "jobs.ndjson", fiveLines), "--batch", "3")
	if want := (outcome{0, "4 jobs put in 0s\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	bodies, ids := texts(h)
	if diff := cmp.Diff([]string{"1 2 3", "4"}, bodies); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{batchID(t, 1, 0), batchID(t, 5, 0)}, ids); diff != "" {
		t.Errorf("request ids (-want +got):\n%s", diff)
	}
	first := sent[*belfryv1.PutBatchRequest](h)[0].Jobs
	if first[0].Queue != "a" || first[0].GetDelay().AsDuration() != 5*time.Minute || first[1].Queue != "orders" {
		t.Errorf("sent %v; want the line's own queue and delay, and the command's queue where a line has none", first)
	}
}

func TestPutFileFromStandardInput(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) { return accept(r), nil })
	h.system.in = strings.NewReader(fiveLines)
	if got := h.run("put", "orders", "-f", "-", "-o", "json"); got.out != `{"put":4,"repeated":0,"failed":0,"seconds":0}`+"\n" {
		t.Errorf("got %+v", got)
	}
}

// TestPutFileSplitsLargeBatches keeps each call below what the server takes.
func TestPutFileSplitsLargeBatches(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) { return accept(r), nil })
	line := fmt.Sprintf(`{"queue":"a","text":"%s"}`, strings.Repeat("x", 1<<20-100))
	if got := h.run("put", "--file", write(t, "jobs.ndjson", strings.Repeat(line+"\n", 5))); got.code != 0 {
		t.Fatalf("got %+v", got)
	}
	for i, batch := range sent[*belfryv1.PutBatchRequest](h) {
		if size := proto.Size(batch); size > 4<<20 {
			t.Errorf("call %d has %d bytes", i, size)
		}
	}
}

func TestPutFileBadLines(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		response := accept(r)
		response.Results[1] = entryError("already_exists", belfryv1.Reason_REASON_JOB_EXISTS, belfryv1.Outcome_OUTCOME_NOT_APPLIED)
		response.Results[2].GetPut().Created = false
		return response, nil
	})
	path := write(t, "jobs.ndjson", strings.Join([]string{
		`{"queue":"a","text":"1"}`, `{"queue":"a","dealy":"1s"}`, `{"text":"no queue"}`, `{"queue":"a","text":"exists"}`, `not JSON`,
		`{"queue":"a","requestId":"x"}`, `{"queue":"a","text":"again"}`,
	}, "\n"))
	got := h.run("put", "--file", path)
	if got.code != codeError || got.out != "1 job put in 0s; 1 had been put before; 5 failed\n" {
		t.Errorf("got %+v, want one put, one repeat, five failures and exit code 1", got)
	}
	for _, want := range []string{
		":2: ", "dealy", ":3: the line names no queue", ":4: JOB_EXISTS: the server's words", ":5: ", ":6: requestId", "belfry: 5 lines were not put",
	} {
		if !strings.Contains(got.err, want) {
			t.Errorf("said\n%s\nwant %q in it", got.err, want)
		}
	}
}

// TestPutFileShowsFewBadLines keeps a file that is all wrong from flooding the terminal.
func TestPutFileShowsFewBadLines(t *testing.T) {
	h := newHarness(t, nil)
	got := h.run("put", "a", "--file", write(t, "jobs.ndjson", strings.Repeat("x\n", 1000)))
	if lines := strings.Count(got.err, "\n"); lines != reportedMax+2 || got.code != codeError {
		t.Errorf("%d lines, code %d; want %d and 1", lines, got.code, reportedMax+2)
	}
}

// TestPutFileRepeatsWithTheSameID makes the first calls fail in the ways that leave open whether they were applied.
func TestPutFileRepeatsWithTheSameID(t *testing.T) {
	calls := 0
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		calls++
		switch calls {
		case 1:
			return nil, wireError(connect.CodeUnavailable, "SHUTTING_DOWN", "not now")
		case 2:
			response := accept(r)
			response.Results[0] = entryError("unavailable", belfryv1.Reason_REASON_UNKNOWN_OUTCOME, belfryv1.Outcome_OUTCOME_UNKNOWN)
			return response, nil
		case 3:
			return nil, wireError(connect.CodeResourceExhausted, "OVERLOADED", "not now")
		default:
			return accept(r), nil
		}
	})
	got := h.run("put", "orders", "--file", write(t, "jobs.ndjson", `{"text":"1"}`))
	if want := (outcome{0, "1 job put in 0s\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	_, ids := texts(h)
	same := batchID(t, 1, 0)
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
			response.Results[1] = entryError("resource_exhausted", belfryv1.Reason_REASON_RATE_LIMITED, belfryv1.Outcome_OUTCOME_NOT_APPLIED)
		}
		return response, nil
	})
	got := h.run("put", "orders", "--file", write(t, "jobs.ndjson", fiveLines))
	if want := (outcome{0, "4 jobs put in 0s\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	bodies, ids := texts(h)
	if diff := cmp.Diff([]string{"1 2 3 4", "2"}, bodies); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{batchID(t, 1, 0), batchID(t, 2, 1)}, ids); diff != "" {
		t.Errorf("request ids (-want +got):\n%s", diff)
	}
}

// TestPutFileResumes interrupts a file after its first batch and follows the advice that is printed.
func TestPutFileResumes(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	h := newHarness(t, nil)
	h.answer = func(r proto.Message) (proto.Message, error) {
		if len(sent[*belfryv1.PutBatchRequest](h)) == 2 {
			cancel(interruption{syscall.SIGINT})
			return nil, wireError(connect.CodeUnavailable, "UNKNOWN_OUTCOME", "who knows")
		}
		return accept(r), nil
	}
	path := write(t, "jobs.ndjson", fiveLines)
	got := h.runContext(ctx, "put", "orders", "--file", path, "--batch", "2")
	_, advice, found := strings.Cut(got.err, "stopped at line 4 with 2 jobs put; go on with:\n  belfry ")
	if got.code != 130 || !found {
		t.Fatalf("got %+v, want exit code 130 and advice", got)
	}
	if got := h.run(strings.Fields(advice)...); got.code != 0 || got.out != "2 jobs put in 0s\n" {
		t.Errorf("the advice %q gave %+v", advice, got)
	}
	bodies, ids := texts(h)
	if diff := cmp.Diff([]string{"1 2", "3 4", "3 4"}, bodies); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	if ids[1] != ids[2] || ids[0] == ids[1] {
		t.Errorf("request ids %q; want the last two equal, so that the repeat changes nothing", ids)
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
		{"put a --file x --request-id short", "want the 36 characters of a UUID"},
	} {
		t.Run(test.args, func(t *testing.T) {
			h := newHarness(t, nil)
			if got := h.run(strings.Fields(test.args)...); got.code != codeUsage || !strings.Contains(got.err, test.says) {
				t.Errorf("got %+v, want exit code 2 and %q", got, test.says)
			}
		})
	}
}
