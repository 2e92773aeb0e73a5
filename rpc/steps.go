package rpc

import (
	"context"
	"strconv"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// stepped is what a command that went over shards in steps did in all.
type stepped struct {
	count     uint64
	witnesses []*belfryv1.Witness
	// replayed says that the first answer was remembered from an earlier call with the same request id.
	replayed bool
}

// inShards repeats a bounded command in shard after shard until there is nothing left to do or left jobs were touched.
// Each step has a request id of its own, derived from the caller's, so that a repeat of the call does each step once; of
// each shard the witness of the last step is kept. Shards that do not know the queue are passed over unless none does.
// An error after a step that did something is of unknown outcome and says how much was done.
func (s *queueService) inShards(ctx context.Context, shards []uint32, requestID string, left uint64, command func(most uint32) fsm.Command) (stepped, error) {
	var done stepped
	var missing *Fault
	for _, shard := range shards {
		var last *belfryv1.Witness
		for n := 0; left > 0; n++ {
			id := requestID
			if id != "" && n > 0 {
				id += "#" + itoa(n)
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
			// A redrive does not say whether there is more: a step that was not full was the last.
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

// partly returns the fault of a call of which some was done before a step failed: a repeat with the same requestId does the
// rest, and without one it may do more than was asked for.
func partly(f *Fault, count uint64) *Fault {
	if count == 0 {
		return f
	}
	out := fault(belfryv1.Reason_REASON_UNKNOWN_OUTCOME)
	out.Shard, out.Leader, out.Witness, out.Count = f.Shard, f.Leader, f.Witness, &count
	out.RetryAfter = max(out.RetryAfter, f.RetryAfter)
	out.Message = "done for " + strconv.FormatUint(count, 10) + " jobs, then " + f.Error() + "; repeat it with the same requestId for the rest"
	return out
}
