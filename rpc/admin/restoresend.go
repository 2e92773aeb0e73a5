package admin

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// send has a shard apply an Import. It repeats the request, for restoreInsists, while the shard
// refuses for a transient reason or the answer is lost: each Import may be repeated. A server that
// stops does not repeat it.
func (r *restorer) send(ctx context.Context, shard uint32, c *fsm.Import) (fsm.Result, error) {
	deadline := time.NewTimer(restoreInsists)
	defer deadline.Stop()
	var said belfryv1.Reason
	for {
		copied := *c
		reply, err := r.service.router.Node.Do(ctx, shard, &fsm.Request{Commands: []fsm.Command{&copied}})
		if err == nil {
			return reply.Results[0], nil
		}
		f := fault.OfShard(shard, err)
		if !passesInRestore(f.Reason) || ctx.Err() != nil {
			return fsm.Result{}, f
		}
		if f.Reason != said {
			said = f.Reason
			r.service.logger.Warn("a restore waits", slog.Uint64("shard", uint64(shard)), slog.String("for", importStep(c)),
				slog.String("because", f.Error()))
		}
		pause := time.NewTimer(restorePause)
		select {
		case <-pause.C:
			continue
		case <-deadline.C:
			f.Message += fmt.Sprintf("; the restore waited %s for shard %d to take %s", wire.FormatDuration(restoreInsists),
				shard, importStep(c))
		case <-r.service.drain.Started:
			f.Message += fmt.Sprintf("; the restore waited for shard %d to take %s, and this server is stopping", shard,
				importStep(c))
		case <-ctx.Done():
		}
		pause.Stop()
		return fsm.Result{}, f
	}
}

// passesInRestore reports whether a shard may take an Import a moment later that it refused, or may
// have taken it.
func passesInRestore(reason belfryv1.Reason) bool {
	switch reason {
	case belfryv1.Reason_REASON_NO_LEADER, belfryv1.Reason_REASON_NOT_LEADER, belfryv1.Reason_REASON_UNKNOWN_OUTCOME,
		belfryv1.Reason_REASON_CLOCK_AHEAD,
		belfryv1.Reason_REASON_OVERLOADED, belfryv1.Reason_REASON_SHUTTING_DOWN:
		return true
	default:
		return false
	}
}

// importStep says in words what an Import brings.
func importStep(c *fsm.Import) string {
	switch c.Step {
	case fsm.ImportBegin:
		return "the beginning of the restore"
	case fsm.ImportRecords:
		return fmt.Sprintf("part %d of the backup", c.Sequence)
	case fsm.ImportEnd:
		return "the end of the restore"
	case fsm.ImportAbandon:
		return "the end of a restore that is given up"
	default:
		return fmt.Sprintf("step %d of the restore", c.Step)
	}
}
