package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestContractIsComplete checks that every reason, every code of the machine and every error of
// node has its row.
func TestContractIsComplete(t *testing.T) {
	codes := map[belfryv1.Reason]connect.Code{}
	for r := range contract() {
		if before, ok := codes[r.reason]; ok && before != r.code {
			t.Errorf("%v has the codes %v and %v", r.reason, before, r.code)
		}
		if codes[r.reason] = r.code; r.message == "" {
			t.Errorf("%v has no message", r.reason)
		}
	}
	for n := range belfryv1.Reason_name {
		if _, ok := codes[belfryv1.Reason(n)]; !ok {
			t.Errorf("%v is not in the table", belfryv1.Reason(n))
		}
	}
	for code := fsm.OK + 1; code <= fsm.Restoring; code++ {
		if f := OfResult(1, &fsm.Result{Code: code}); f.Reason == belfryv1.Reason_REASON_INTERNAL {
			t.Errorf("machine code %d has no reason", code)
		}
	}
	for _, err := range []error{
		node.ErrNotLeader, node.ErrNoLeader, node.ErrOverloaded, node.ErrShuttingDown, node.ErrDiskFull, node.ErrMemoryFull,
		node.ErrClockAhead,
		node.ErrCanceled, node.ErrTooLarge, node.ErrSilent, node.ErrUnknownOutcome, node.ErrQuotaUnknown,
		fmt.Errorf("%w: it is done: %w", node.ErrUnknownOutcome, node.ErrNoLeader),
		fmt.Errorf("%w: it is done: %w: %w", node.ErrUnknownOutcome, node.ErrCanceled, context.DeadlineExceeded),
		fmt.Errorf("%w: it changed nothing: %w", node.ErrNoLeader, node.ErrUnknownOutcome),
	} {
		f := Of(fmt.Errorf("proposing: %w", err))
		if f.Reason == belfryv1.Reason_REASON_INTERNAL {
			t.Errorf("%v has no reason", err)
		}
		unknown := f.Outcome() == belfryv1.Outcome_OUTCOME_UNKNOWN
		if unknown != (node.OutcomeOf(err) == node.Unknown) {
			t.Errorf("%v: node says %v, the wire %v", err, node.OutcomeOf(err), f.Outcome())
		}
	}
}

func TestFaultOfMachineCode(t *testing.T) {
	for code, want := range map[fsm.Code]belfryv1.Reason{
		fsm.Invalid: belfryv1.Reason_REASON_INVALID, fsm.JobExists: belfryv1.Reason_REASON_JOB_EXISTS,
		fsm.JobNotFound: belfryv1.Reason_REASON_JOB_NOT_FOUND, fsm.JobReserved: belfryv1.Reason_REASON_JOB_RESERVED,
		fsm.StaleLease: belfryv1.Reason_REASON_STALE_LEASE, fsm.QueueExists: belfryv1.Reason_REASON_QUEUE_EXISTS,
		fsm.QueueNotFound: belfryv1.Reason_REASON_QUEUE_NOT_FOUND, fsm.QueueChanged: belfryv1.Reason_REASON_QUEUE_CHANGED,
		fsm.QueueFull: belfryv1.Reason_REASON_QUEUE_FULL, fsm.RateLimited: belfryv1.Reason_REASON_RATE_LIMITED,
		fsm.RequestExpired: belfryv1.Reason_REASON_REQUEST_EXPIRED,
		fsm.Quota:          belfryv1.Reason_REASON_QUOTA,
		fsm.Restoring:      belfryv1.Reason_REASON_OVERLOADED,
	} {
		if got := OfResult(1, &fsm.Result{Code: code}).Reason; got != want {
			t.Errorf("code %d: %v; want %v", code, got, want)
		}
	}
}

func TestFaultOfForeignErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want belfryv1.Reason
	}{
		{context.Canceled, belfryv1.Reason_REASON_OVERLOADED},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), belfryv1.Reason_REASON_OVERLOADED},
		{errors.New("disk on fire"), belfryv1.Reason_REASON_INTERNAL},
		{fmt.Errorf("x: %w", Invalid("queue", "bad")), belfryv1.Reason_REASON_INVALID},
		{fmt.Errorf("asking n2: %w", node.ErrUnsupported), belfryv1.Reason_REASON_UNIMPLEMENTED},
	} {
		if got := Of(c.err); got.Reason != c.want {
			t.Errorf("%v: %v; want %v", c.err, got.Reason, c.want)
		}
	}
	if f := Of(errors.New("disk on fire")); f.Message != "the server broke" {
		t.Errorf("the caller is told %q", f.Message)
	}
	if f := Of(fmt.Errorf("asking n2: %w", node.ErrUnsupported)); !strings.Contains(f.Message, "not all nodes run") ||
		f.RetryAfter != 0 {
		t.Errorf("of a call that an earlier version does not know the caller is told %v", f)
	}
	unknown := Of(fmt.Errorf("shard-1: %w: namespace %q", node.ErrQuotaUnknown, "t"))
	if unknown.Reason != belfryv1.Reason_REASON_OVERLOADED || !strings.Contains(unknown.Message, "does not know yet") ||
		unknown.RetryAfter == 0 {
		t.Errorf("of a share that is not known the caller is told %v", unknown)
	}
}

// TestFaultsCrossTheWire sends every reason through a Connect error and back.
func TestFaultsCrossTheWire(t *testing.T) {
	shard := uint32(4)
	for r := range contract() {
		if r.reason == belfryv1.Reason_REASON_UNSPECIFIED {
			continue
		}
		want := &Error{
			Reason: r.reason, Message: "words", Field: "queue", Shard: &shard, Leader: "http://n2:7400",
			RetryAfter: 1500 * time.Millisecond, State: fsm.Acked,
		}
		got, ok := FromConnect(fmt.Errorf("calling: %w", want.Wire()))
		if !ok {
			t.Fatalf("%v: no fault", r.reason)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v:\n%s", r.reason, diff)
		}
		if got.Code() != r.code || got.Outcome() != r.outcome {
			t.Errorf("%v: %v, %v", r.reason, got.Code(), got.Outcome())
		}
	}
	if _, ok := FromConnect(connect.NewError(connect.CodeAborted, errors.New("x"))); ok {
		t.Error("an error without details is taken for a fault")
	}
	if _, ok := FromConnect(errors.New("x")); ok {
		t.Error("an error of another kind is taken for a fault")
	}
}

func TestFaultOfResultCarriesWhatHelps(t *testing.T) {
	f := OfResult(3, &fsm.Result{Code: fsm.RateLimited, Wait: 70 * time.Millisecond})
	if f.RetryAfter != 70*time.Millisecond || *f.Shard != 3 {
		t.Errorf("%+v", f)
	}
	f = OfResult(3, &fsm.Result{Code: fsm.JobNotFound, State: fsm.Acked})
	if f.State != fsm.Acked || f.Message != "the job has ended: it is ACKED" {
		t.Errorf("%+v", f)
	}
	e := f.Entry()
	if e.GetCode() != "not_found" || e.GetReason() != belfryv1.Reason_REASON_JOB_NOT_FOUND || e.GetShard() != 3 ||
		e.GetOutcome() != belfryv1.Outcome_OUTCOME_NOT_APPLIED || e.GetRetryAfter() != nil {
		t.Errorf("%v", e)
	}
}
