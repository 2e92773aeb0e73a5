package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/hashicorp/raft"
)

// StartShard starts a replica of a shard that is not here. It has no entries and no members, and waits until a leader adds it
// with AddNonvoter and sends what it has. A replica that was here before comes back with its term and vote. If it is here already, nothing
// changes. From then on it is started with the node. If ctx ends first, it may be started all the same.
func (n *Node) StartShard(ctx context.Context, shard uint32) error {
	return n.move(ctx, shard, "starting", func() error { return n.startShard(ctx, shard) })
}

// StopShard ends the replica of a shard and removes its log and snapshots. Term and vote stay, so that it may come back.
// It refuses with ErrLeads if this node leads the shard or is its only voter. What the replica has acknowledged goes with it, so this server must be
// no member any more: removed must make sure of that (see Members) and fail otherwise. It is called when the replica acknowledges nothing any more; if it fails, the replica
// starts again. If it is not here, nothing changes. If ctx ends first, it may be stopped all the same; if the process ends, the next start completes it.
func (n *Node) StopShard(ctx context.Context, shard uint32, removed func(context.Context) error) error {
	return n.move(ctx, shard, "stopping", func() error { return n.stopShard(ctx, shard, removed) })
}

// move carries out one start or stop of a shard at a time.
func (n *Node) move(ctx context.Context, shard uint32, doing string, f func() error) error {
	n.active.Add(1)
	if n.draining.Load() {
		n.end()
		return ErrShuttingDown
	}
	if int64(shard) >= int64(len(n.shards)) {
		n.end()
		return fmt.Errorf("%w: %d of %d", ErrUnknownShard, shard, len(n.shards))
	}
	ended := make(chan error, 1)
	started := n.spawn(func() { // the data directory stays locked until it has returned
		defer n.end()
		n.moveMu.Lock()
		defer n.moveMu.Unlock()
		ended <- f()
	})
	if !started {
		n.end()
		return ErrShuttingDown
	}
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("%s %s here: %w", doing, shardName(shard), err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s %s here: %w: %w", doing, shardName(shard), ErrUnknownOutcome, context.Cause(ctx))
	}
}

// startShard starts a shard. Its files exist before the node's identity names it, since it is refused without them from then
// on; and the identity names it before it can promise anything to a peer, since a promise in files that nobody misses could be lost unnoticed.
func (n *Node) startShard(ctx context.Context, number uint32) error {
	if n.shards[number].Load() != nil {
		return nil
	}
	s := newShard(n, number)
	if n.setAside(s.name) {
		return errQuarantined
	}
	if n.hasLeft(s.name) {
		if err := storage.Retire(s.dir, s.storeConfig()); err != nil { // an earlier attempt may have failed half-way
			return err
		}
	}
	stores, err := storage.Open(s.dir, s.storeConfig())
	if err == nil {
		err = stores.Close()
	}
	if err == nil {
		err = n.record(func() error { return n.id.enter(n.cfg.Dir, s.name) })
	}
	if err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		return err
	}
	if !n.place(s) {
		return errors.Join(ErrShuttingDown, s.stop())
	}
	n.planSpace()
	return nil
}

// place lets callers find a shard, which then ends with the node. It reports false if the node is being shut down.
func (n *Node) place(s *shard) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopping {
		return false
	}
	n.shards[s.number].Store(s)
	return true
}

// stopShard stops a shard. The identity is the first to know that it leaves, so that after a crash at any step the next start goes on here and
// does not run what is half removed.
func (n *Node) stopShard(ctx context.Context, number uint32, removed func(context.Context) error) error {
	s := n.shards[number].Load()
	if s == nil {
		return n.forget(ctx, newShard(n, number), removed)
	}
	if s.instance().State() == raft.Leader || s.soleVoter() {
		return ErrLeads
	}
	n.shards[number].Store(nil)
	if err := s.stop(); err != nil {
		return err // something may still use the files
	}
	if err := removed(ctx); err != nil {
		return errors.Join(err, n.resume(context.WithoutCancel(ctx), number))
	}
	if err := n.record(func() error { return n.id.leave(n.cfg.Dir, s.name) }); err != nil {
		if _, unsettled := errors.AsType[*storage.UnsettledError](err); unsettled {
			return err // the next start decides
		}
		return errors.Join(err, n.resume(context.WithoutCancel(ctx), number))
	}
	if err := storage.Retire(s.dir, s.storeConfig()); err != nil {
		return err
	}
	n.planSpace()
	s.logger.Info("the replica has left this node")
	return nil
}

// resume starts a shard again that was stopped a moment ago, unless it was set aside while it stopped.
func (n *Node) resume(ctx context.Context, number uint32) error {
	s := newShard(n, number)
	if n.setAside(s.name) {
		return errQuarantined
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	if !n.place(s) {
		return s.stop()
	}
	return nil
}

// completeLeaving goes on with a stop that the end of the process may have cut off. What fails concerns only the return of the
// shard, and fails that.
func (n *Node) completeLeaving(s *shard) {
	if err := storage.Retire(s.dir, s.storeConfig()); err != nil {
		s.note("removing what is left of the replica", err)
	}
}

// record changes the identity. If it is not known which one is on the disk, the process ends: the next start would act on one that this process does
// not know of, and retire a replica that has gone on.
func (n *Node) record(change func() error) error {
	n.mu.Lock()
	err := change()
	n.mu.Unlock()
	if _, unsettled := errors.AsType[*storage.UnsettledError](err); unsettled {
		n.diskFailed(err)
	}
	return err
}
