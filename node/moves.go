package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// StartShard starts a replica of a shard that is not here. The replica has no entries and no
// members. It waits until a leader adds it with AddNonvoter and sends it the state. A replica that
// was here before comes back with its term and vote. If the replica is already here, nothing
// changes. From then on it is started with the node. If ctx ends first, it may still be started.
func (n *Node) StartShard(ctx context.Context, shard uint32) error {
	return n.move(ctx, shard, "starting", func() error { return n.startShard(ctx, shard) })
}

// StopShard stops the replica of a shard and removes its log and snapshots. Term and vote stay, so
// that it may come back. If it is not here, nothing changes. StopShard refuses with ErrLeads if
// this node leads the shard or is its only voter.
//
// The removal loses what the replica has acknowledged, so this server must no longer be a member.
// removed must make sure of that (see Members), and fail otherwise. It is called once the replica
// no longer acknowledges entries; if it fails, the replica starts again. If ctx ends first, the
// replica may still be stopped. If the process ends, the next start completes the stop.
func (n *Node) StopShard(ctx context.Context, shard uint32, removed func(context.Context) error) error {
	return n.move(ctx, shard, "stopping", func() error { return n.stopShard(ctx, shard, removed) })
}

// move starts or stops shards, one at a time.
func (n *Node) move(ctx context.Context, shard uint32, doing string, f func() error) error {
	n.active.Add(1)
	if n.draining.Load() {
		n.endCall()
		return outcome.ErrShuttingDown
	}
	if int64(shard) >= int64(len(n.shards)) {
		n.endCall()
		return fmt.Errorf("%w: %d of %d", outcome.ErrUnknownShard, shard, len(n.shards))
	}
	ended := make(chan error, 1)
	started := n.spawn(func() { // the data directory stays locked until f returns
		defer n.endCall()
		n.moveMu.Lock()
		defer n.moveMu.Unlock()
		ended <- f()
	})
	if !started {
		n.endCall()
		return outcome.ErrShuttingDown
	}
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("%s %s here: %w", doing, founding.ShardGroup(shard), err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s %s here: %w: %w", doing, founding.ShardGroup(shard), outcome.ErrUnknownOutcome,
			context.Cause(ctx))
	}
}

// startShard starts a shard. The files exist before the identity names the shard, because from then
// on a start without them is refused. The identity names the shard before the replica can make a
// promise to a peer. Otherwise the files, and the promise in them, could be lost unnoticed.
func (n *Node) startShard(ctx context.Context, number uint32) error {
	if n.shards[number].Load() != nil {
		return nil
	}
	s := newShard(n, number)
	if n.setAside(s.Name()) {
		return errQuarantined
	}
	if n.hasLeft(s.Name()) {
		if err := storage.Retire(s.Dir(), s.StoreConfig()); err != nil { // an earlier attempt may have failed midway
			return err
		}
	}
	stores, err := storage.Open(s.Dir(), s.StoreConfig())
	if err == nil {
		err = stores.Close()
	}
	if err == nil {
		err = n.record(func() error { return n.id.Enter(s.Name()) })
	}
	if err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		return err
	}
	if !n.place(s) {
		return errors.Join(outcome.ErrShuttingDown, s.Stop())
	}
	n.planSpace()
	return nil
}

// place publishes a shard to callers; it then stops with the node. It reports false if the node is
// being shut down.
func (n *Node) place(s *shard) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopping {
		return false
	}
	n.shards[s.number].Store(s)
	return true
}

// stopShard stops a shard. It records the departure in the identity before it removes files. So
// after a crash at any step, the next start completes the removal and does not run a half-removed
// replica.
func (n *Node) stopShard(ctx context.Context, number uint32, removed func(context.Context) error) error {
	s := n.shards[number].Load()
	if s == nil {
		return n.forget(ctx, newShard(n, number), removed)
	}
	if s.IsLeader() || s.SoleVoter() {
		return outcome.ErrLeads
	}
	n.shards[number].Store(nil)
	if err := s.Stop(); err != nil {
		return err // the files may still be in use
	}
	if err := removed(ctx); err != nil {
		return errors.Join(err, n.resume(context.WithoutCancel(ctx), number))
	}
	if err := n.record(func() error { return n.id.Leave(s.Name()) }); err != nil {
		if _, unsettled := errors.AsType[*disk.UnsettledError](err); unsettled {
			return err // the next start decides
		}
		return errors.Join(err, n.resume(context.WithoutCancel(ctx), number))
	}
	if err := storage.Retire(s.Dir(), s.StoreConfig()); err != nil {
		return err
	}
	n.planSpace()
	s.Logger().Info("the replica has left this node")
	return nil
}

// resume restarts a shard that was just stopped, unless it was set aside while it stopped.
func (n *Node) resume(ctx context.Context, number uint32) error {
	s := newShard(n, number)
	if n.setAside(s.Name()) {
		return errQuarantined
	}
	if err := s.Start(ctx); err != nil {
		return err
	}
	if !n.place(s) {
		return s.Stop()
	}
	return nil
}

// completeLeaving completes a stop that the end of the process may have interrupted. A failure
// concerns only a later return of the shard, which then fails.
func (n *Node) completeLeaving(s *shard) {
	if err := storage.Retire(s.Dir(), s.StoreConfig()); err != nil {
		s.Note("removing what is left of the replica", err)
	}
}

// record changes the identity. If it is unknown which version is on the disk, the process ends.
// Otherwise the next start could act on a version that this process does not know of, and retire a
// replica that has gone on.
func (n *Node) record(change func() error) error {
	n.mu.Lock()
	err := change()
	n.mu.Unlock()
	if _, unsettled := errors.AsType[*disk.UnsettledError](err); unsettled {
		n.diskFailed(err)
	}
	return err
}
