package shardcall

import (
	"context"
	"strconv"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// Total is the total result of a command that ran over shards in steps.
type Total struct {
	Count     uint64
	Witnesses []*belfryv1.Witness
	// Replayed is set if an answer was remembered from an earlier call with the same request id.
	Replayed bool
}

// InShards repeats a bounded command in one shard after another, until no work is left or the
// command has affected as many jobs as left says. Each step in a shard has its own request id,
// derived from the caller's. So a repeat of the call does each step once. The result has the
// witness of each shard's last step. Shards that do not know the queue are skipped; if none knows
// it, InShards returns their fault. An error after a step that affected jobs has an unknown
// outcome, and says how many jobs were done.
func (r Router) InShards(ctx context.Context, shards []uint32, requestID string, left uint64,
	command func(most uint32) fsm.Command) (Total, error) {
	var done Total
	var missing *fault.Error
	for _, shard := range shards {
		var last *belfryv1.Witness
		for n := 0; left > 0; n++ {
			id := requestID
			if id != "" && n > 0 {
				id += "#" + strconv.Itoa(n)
			}
			most := uint32(min(left, fsm.StepMax))
			step := command(most)
			a := r.Propose(ctx, shard, id, step)
			if a.Fault != nil && a.Fault.Reason == belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
				missing = a.Fault
				break
			}
			if a.Fault != nil {
				return done, Partly(a.Fault, done.Count)
			}
			done.Replayed = done.Replayed || a.Result.Replayed
			done.Count, left = done.Count+a.Result.Count, left-min(left, a.Result.Count)
			last = a.Witness()
			// A redrive does not report whether there is more: a step that is not full is the last.
			if full := step.Kind() == fsm.KindRedrive && a.Result.Count == uint64(most); !a.Result.More && !full {
				break
			}
		}
		if last != nil {
			done.Witnesses = append(done.Witnesses, last)
		}
	}
	if missing != nil && len(done.Witnesses) == 0 {
		return Total{}, missing
	}
	return done, nil
}

// Partly returns the fault of a call that did a part of its work before a step failed. A repeat
// with the same requestId does the rest. A repeat without one may do more than the caller asked
// for.
func Partly(f *fault.Error, count uint64) *fault.Error {
	if count == 0 {
		return f
	}
	out := fault.New(belfryv1.Reason_REASON_UNKNOWN_OUTCOME)
	out.Shard, out.Leader, out.Witness, out.Count = f.Shard, f.Leader, f.Witness, &count
	out.RetryAfter = max(out.RetryAfter, f.RetryAfter)
	out.Message = "done for " + strconv.FormatUint(count, 10) + " jobs, then " + f.Error() +
		"; repeat it with the same requestId for the rest"
	return out
}
