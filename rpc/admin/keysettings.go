package admin

import (
	"context"
	"fmt"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
)

// speaksKeys refuses settings of keys while the cluster cannot log them: the catalog would keep
// settings that no shard gets.
func (s *Service) speaksKeys(settings *fsm.KeySettings) error {
	format := s.cluster.Format()
	if *settings == (fsm.KeySettings{}) || format >= fsm.KeysFormat {
		return nil
	}
	f := fault.New(belfryv1.Reason_REASON_UNIMPLEMENTED)
	f.Field = "settings"
	f.Message = fmt.Sprintf(
		"settings: those of keys need format %d, and the cluster is at format %d: upgrade all nodes first",
		fsm.KeysFormat, format)
	return f
}

// mayChangeKeys checks a change of the settings of keys of a queue in the given shards. The order of a
// key changes only while the queue holds no jobs: consumers rely on the order in which jobs were put
// under the old setting.
func (s *Service) mayChangeKeys(ctx context.Context, queue string, shards []uint32,
	before, after *fsm.KeySettings) error {
	if err := s.speaksKeys(after); err != nil || before.Ordered == after.Ordered {
		return err
	}
	readings, _, err := shardcall.Reader{Router: s.router}.ReadAll(ctx, shards,
		func(int) fsm.Query { return &fsm.QueueQuery{Queue: queue} })
	if err != nil {
		return err
	}
	var held uint64
	for _, part := range queueParts(readings) {
		c := &part.Counts
		held += c.Delayed + c.Ready + c.Reserved + c.Dead
	}
	if held == 0 {
		return nil
	}
	return fault.Invalid("settings.keyOrdered", "it changes only while the queue holds no jobs, and this one "+
		"holds %d: wait until they have ended, or purge the queue", held)
}
