package rpc

import (
	"context"
	"strconv"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// stepped is the total result of a command that ran over shards in steps.
type stepped struct {
	count     uint64
	witnesses []*belfryv1.Witness
	// replayed is set if an answer was remembered from an earlier call with the same request id.
	replayed bool
}

// inShards repeats a bounded command in one shard after another, until no work is left or the
// command has affected as many jobs as left says. Each step in a shard has its own request id,
// derived from the caller's. So a repeat of the call does each step once. The result has the
// witness of each shard's last step. Shards that do not know the queue are skipped; if none knows
// it, inShards returns their fault. An error after a step that affected jobs has an unknown
// outcome, and says how many jobs were done.
func (s *queueService) inShards(ctx context.Context, shards []uint32, requestID string, left uint64, command func(most uint32) fsm.Command) (stepped, error) {
	var done stepped
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
			a := s.propose(ctx, shard, id, step)
			if a.fault != nil && a.fault.Reason == belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
				missing = a.fault
				break
			}
			if a.fault != nil {
				return done, partly(a.fault, done.count)
			}
			done.replayed = done.replayed || a.result.Replayed
			done.count, left = done.count+a.result.Count, left-min(left, a.result.Count)
			last = a.witness()
			// A redrive does not report whether there is more: a step that is not full is the last.
			if full := step.Kind() == fsm.KindRedrive && a.result.Count == uint64(most); !a.result.More && !full {
				break
			}
		}
		if last != nil {
			done.witnesses = append(done.witnesses, last)
		}
	}
	if missing != nil && len(done.witnesses) == 0 {
		return stepped{}, missing
	}
	return done, nil
}

// partly returns the fault of a call that did a part of its work before a step failed. A repeat
// with the same requestId does the rest. A repeat without one may do more than the caller asked
// for.
func partly(f *fault.Error, count uint64) *fault.Error {
	if count == 0 {
		return f
	}
	out := fault.New(belfryv1.Reason_REASON_UNKNOWN_OUTCOME)
	out.Shard, out.Leader, out.Witness, out.Count = f.Shard, f.Leader, f.Witness, &count
	out.RetryAfter = max(out.RetryAfter, f.RetryAfter)
	out.Message = "done for " + strconv.FormatUint(count, 10) + " jobs, then " + f.Error() + "; repeat it with the same requestId for the rest"
	return out
}
