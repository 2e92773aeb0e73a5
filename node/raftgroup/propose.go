package raftgroup

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/peer"
)

// Reply is the answer to an entry.
type Reply struct {
	Term, Index uint64
	// Value is what Machine.Apply returned.
	Value any
}

// Future is the answer to an entry that Submit gave to Raft.
type Future struct {
	future   raft.ApplyFuture
	instance *instance
}

// Wait returns the answer once the entry is applied here. It also ends when Raft is stopped. For
// the meaning of an error see outcome.Of. It may be called again.
func (f *Future) Wait() (Reply, error) {
	if err := f.instance.outcome(f.future); err != nil {
		return Reply{}, ProposalError(err)
	}
	out := f.future.Response().(*appliedEntry)
	if out.err != nil {
		return Reply{}, fmt.Errorf("%w: %w", outcome.ErrUnknownOutcome, out.err)
	}
	return Reply{Term: out.term, Index: out.index, Value: out.value}, nil
}

// Propose logs an entry and waits until it is applied here, for at most timeout. This node must
// serve as the leader. For the meaning of an error see outcome.Of. The entry must not be changed
// until Propose returns; after an unknown outcome it must never be changed.
func (g *Group) Propose(ctx context.Context, entry []byte, timeout time.Duration) (Reply, error) {
	if len(entry) > peer.EntryBytesMax {
		return Reply{}, fmt.Errorf("%s: %w: %d bytes, %d are the most", g.cfg.Name, outcome.ErrTooLarge, len(entry),
			peer.EntryBytesMax)
	}
	l, err := g.Leadership()
	if err != nil {
		return Reply{}, err
	}
	future, err := g.Submit(l, entry)
	if err != nil {
		return Reply{}, fmt.Errorf("%s: %w", g.cfg.Name, err)
	}
	type answer struct {
		reply Reply
		err   error
	}
	ended := make(chan answer, 1)
	if !g.Spawn(func() { reply, err := future.Wait(); ended <- answer{reply, err} }) {
		return Reply{}, fmt.Errorf("%s: %w: %w", g.cfg.Name, outcome.ErrUnknownOutcome, outcome.ErrShuttingDown)
	}
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	select {
	case a := <-ended:
		if a.err != nil {
			return Reply{}, fmt.Errorf("%s: %w", g.cfg.Name, a.err)
		}
		return a.reply, nil
	case <-deadline.C:
		return Reply{}, fmt.Errorf("%s: %w: no outcome within %v", g.cfg.Name, outcome.ErrUnknownOutcome, timeout)
	case <-ctx.Done():
		return Reply{}, fmt.Errorf("%s: %w: %w", g.cfg.Name, outcome.ErrUnknownOutcome, context.Cause(ctx))
	}
}
