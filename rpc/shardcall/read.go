package shardcall

import (
	"context"
	"sync"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/wire"
)

// Reader answers one read: with all that was answered before, or, if that is not asked for, from
// the nearest replicas as they are.
type Reader struct {
	Router
	Stale bool
}

// Read asks one shard.
func (r Reader) Read(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	if !r.Stale {
		return r.Node.Query(ctx, shard, q)
	}
	return r.Node.Stale(ctx, shard, q)
}

// shardReading is the answer of one shard to a read of several.
type shardReading struct {
	reading fsm.Reading
	witness *belfryv1.Witness
	err     error
}

// ReadAll asks several shards side by side; query gets the position of the shard. The first error
// wins.
func (r Reader) ReadAll(ctx context.Context, shards []uint32,
	query func(i int) fsm.Query) ([]fsm.Reading, []*belfryv1.Witness, error) {
	return r.AskAll(ctx, shards, func(ctx context.Context, i int) (fsm.Reading, node.Witness, error) {
		return r.Read(ctx, shards[i], query(i))
	})
}

// AskAll is ReadAll for what takes more than one query: ask gets the position of the shard.
func (r Reader) AskAll(ctx context.Context, shards []uint32,
	ask func(ctx context.Context, i int) (fsm.Reading, node.Witness, error)) ([]fsm.Reading, []*belfryv1.Witness, error) {
	answers := make([]shardReading, len(shards))
	var group sync.WaitGroup
	for i, shard := range shards {
		group.Go(func() {
			reading, w, err := ask(ctx, i)
			answers[i] = shardReading{reading: reading, witness: wire.Witness(w)}
			if err != nil {
				answers[i].err = r.FaultAt(shard, err)
			}
		})
	}
	group.Wait()
	readings, witnesses := make([]fsm.Reading, len(answers)), make([]*belfryv1.Witness, len(answers))
	for i, a := range answers {
		if a.err != nil {
			return nil, nil, a.err
		}
		readings[i], witnesses[i] = a.reading, a.witness
	}
	return readings, witnesses, nil
}

// AsOf returns the time of the shard that was behind most.
func AsOf(readings ...fsm.Reading) *timestamppb.Timestamp {
	var earliest fsm.Time
	for i := range readings {
		earliest = wire.Earlier(earliest, readings[i].Clock)
	}
	return wire.ExactTime(earliest)
}
