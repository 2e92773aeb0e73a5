package node

import (
	"context"
	"fmt"
	"sync"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/outcome"
)

// Export passes a shard to emit as records of a backup. The records are of one index, at which
// every request that was answered before is applied. Export leaves out queues for which keep
// returns false. The shard serves meanwhile. Only the shard's leader exports.
//
// The first error of emit ends the export. So does the end of ctx, or Drain, with ErrShuttingDown.
// After any error, the export may be started anew. The node never waits for emit: the records come
// from a capture in memory, which outlives the node.
func (n *Node) Export(ctx context.Context, shard uint32, keep func(*fsm.QueueRecord) bool,
	emit func(fsm.BackupRecord) error) error {
	s, done, err := n.beginCall(shard)
	if err != nil {
		return err
	}
	captured := sync.OnceFunc(done)
	defer captured()
	l, err := s.Leadership()
	if err != nil {
		return err
	}
	if err := s.Confirm(ctx, l); err != nil { // see query
		return err
	}
	state, release := s.Replica().Capture()
	defer release()
	snapshot := state.(shardSnapshot).Snapshot
	captured()
	if snapshot.Restoring() {
		return fmt.Errorf("%s: %w", s.Name(), outcome.ErrRestoring)
	}
	err = snapshot.Export(shard, keep, func(r fsm.BackupRecord) error {
		switch {
		case n.draining.Load():
			return outcome.ErrShuttingDown
		case ctx.Err() != nil:
			return outcome.Canceled(ctx)
		default:
			return emit(r)
		}
	})
	if err != nil {
		return fmt.Errorf("exporting %s: %w", s.Name(), err)
	}
	return nil
}
