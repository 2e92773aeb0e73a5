package main

import (
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
)

// TestRunNow follows jobs of a real server through their states: a delayed one is made ready, a
// ready one keeps its due time, and of every other state the refusal says what to do.
func TestRunNow(t *testing.T) {
	t.Parallel()
	p := serve(t, launcher, t.TempDir())
	must := func(args ...string) clitest.Outcome {
		t.Helper()
		got := p.run(launcher, args...)
		if got.Code != 0 {
			t.Fatalf("%v: %+v", args, got)
		}
		return got
	}
	refused := func(id string, code int, says string) {
		t.Helper()
		if got := p.run(launcher, "run-now", "orders", id); got.Code != code || !strings.Contains(got.Err, says) {
			t.Errorf("run-now of %s: %+v, want exit code %d and %q", id, got, code, says)
		}
	}
	must("put", "orders", "x", "--id", "late", "--delay", "1h", "--max-attempts", "1")
	first := must("run-now", "orders", "late", "-o", "json")
	if !strings.Contains(first.Out, `"READY"`) {
		t.Errorf("a delayed job: %+v", first)
	}
	dueOf := func(out string) string {
		_, rest, _ := strings.Cut(out, `"dueAt":"`)
		due, _, _ := strings.Cut(rest, `"`)
		return due
	}
	if again := must("run-now", "orders", "late", "-o", "json"); dueOf(again.Out) != dueOf(first.Out) ||
		dueOf(first.Out) == "" {
		t.Errorf("a ready job lost its turn: due %q, before %q", dueOf(again.Out), dueOf(first.Out))
	}
	held := reserveOne(t, p, launcher, "orders")
	refused("late", cli.CodeConflict, "is reserved: a consumer has it already")
	must("nack", held.Lease)
	refused("late", cli.CodeNotFound, "is dead: 'belfry redrive orders late' makes it ready")
	must("redrive", "orders", "late")
	must("ack", reserveOne(t, p, launcher, "orders").Lease)
	refused("late", cli.CodeNotFound, "has ended: ")
	refused("nosuch", cli.CodeNotFound, `job "nosuch" of orders: there is no such job`)
}
