package main

import (
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestRunNow follows jobs of a real server through their states: a delayed one is made ready, a ready one keeps its due
// time, and of every other state the refusal says what to do.
func TestRunNow(t *testing.T) {
	t.Parallel()
	p := serve(t, launcher, t.TempDir())
	must := func(args ...string) outcome {
		t.Helper()
		got := p.run(launcher, args...)
		if got.code != 0 {
			t.Fatalf("%v: %+v", args, got)
		}
		return got
	}
	refused := func(id string, code int, says string) {
		t.Helper()
		if got := p.run(launcher, "run-now", "orders", id); got.code != code || !strings.Contains(got.err, says) {
			t.Errorf("run-now of %s: %+v, want exit code %d and %q", id, got, code, says)
		}
	}
	must("put", "orders", "x", "--id", "late", "--delay", "1h", "--max-attempts", "1")
	first := must("run-now", "orders", "late", "-o", "json")
	if !strings.Contains(first.out, `"READY"`) {
		t.Errorf("a delayed job: %+v", first)
	}
	dueOf := func(out string) string {
		_, rest, _ := strings.Cut(out, `"dueAt":"`)
		due, _, _ := strings.Cut(rest, `"`)
		return due
	}
	if again := must("run-now", "orders", "late", "-o", "json"); dueOf(again.out) != dueOf(first.out) || dueOf(first.out) == "" {
		t.Errorf("a ready job lost its turn: due %q, before %q", dueOf(again.out), dueOf(first.out))
	}
	held := reserveOne(t, p, launcher, "orders")
	refused("late", codeConflict, "is reserved: a consumer has it already")
	must("nack", held.Lease)
	refused("late", codeNotFound, "is dead: 'belfry redrive orders late' makes it ready")
	must("redrive", "orders", "late")
	must("ack", reserveOne(t, p, launcher, "orders").Lease)
	refused("late", codeNotFound, "has ended: ")
	refused("nosuch", codeNotFound, `job "nosuch" of orders: there is no such job`)
}

// TestRunNowWithAPutToken needs no right to look at jobs.
func TestRunNowWithAPutToken(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		if _, ok := r.(*belfryv1.GetRequest); ok {
			return nil, wireError(connect.CodePermissionDenied, "FORBIDDEN", "it takes consume:orders")
		}
		return &belfryv1.RescheduleResponse{State: belfryv1.JobState_JOB_STATE_READY, DueAt: at(0)}, nil
	})
	if got := h.run("run-now", "orders", "a"); got != (outcome{0, "ready, due 2030-01-31 09:00:00.000 +00:00 (in 0s)\n", ""}) {
		t.Errorf("%+v", got)
	}
}
