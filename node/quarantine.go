package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/storage"
)

// Quarantine takes a replica out of service because its state differs from that of most replicas.
// right.Digest is the majority's digest at right.Index. If this replica has the same digest at that
// index, or no longer knows its own, nothing changes and the error is ErrDisproved.
//
// If this node leads the shard, Quarantine first transfers the leadership. It stops the replica,
// also for later starts of the node. The files stay. Once the shard's leader has removed the
// member, StopShard makes room for a new replica. If the group is not a shard, the node cannot run
// without the replica, and ends.
func (n *Node) Quarantine(ctx context.Context, group string, right IndexDigest) error {
	for _, s := range n.here() {
		if s.Name() == group {
			return n.move(ctx, s.number, "setting aside", func() error { return n.quarantineShard(ctx, s, right) })
		}
	}
	g := n.groupNamed(group)
	if g == nil {
		return fmt.Errorf("%s: %w", group, outcome.ErrNotHere)
	}
	err := g.Replica().Differs(right)
	if err == nil {
		n.fatal(fmt.Errorf("the replica of %s on this node differs from the others': %w. Remove the data directory and "+
			"start the node as a new one", group, divergence(right)))
	}
	return err
}

// divergence returns an error that describes the difference.
func divergence(right IndexDigest) error {
	return fmt.Errorf("at entry %d most replicas have the digest %016x", right.Index, right.Digest)
}

// quarantineShard sets aside a shard that differs.
func (n *Node) quarantineShard(ctx context.Context, s *shard, right IndexDigest) error {
	if err := s.Replica().Differs(right); err != nil {
		return err
	}
	return n.isolate(ctx, s, divergence(right))
}

// abandon sets aside a shard whose replica dropped its state for a snapshot of its leader that it
// cannot restore. A restart would not help, because the entries missing from the log are only in
// that snapshot. abandon records this in the identity before it returns, whatever the node does
// with the shard at that moment: the next start would fail at that snapshot. A stop of the shard
// waits for the record. The process ends if the shard cannot be stopped.
func (n *Node) abandon(s *shard, why error) {
	if err := n.recordQuarantine(s, why); err != nil {
		n.fatal(err)
		return
	}
	n.spawn(func() {
		n.moveMu.Lock() // a shard that is being started is here under this lock
		defer n.moveMu.Unlock()
		if err := n.isolate(n.detached, s, why); err != nil && !errors.Is(err, outcome.ErrNotHere) {
			n.fatal(err)
		}
	})
}

// recordQuarantine records in the identity that no start may serve the shard's replica again.
func (n *Node) recordQuarantine(s *shard, why error) error {
	if n.setAside(s.Name()) {
		return nil
	}
	if err := n.record(func() error { return n.id.Quarantine(s.Name()) }); err != nil {
		return err
	}
	s.Logger().Error("the replica is set aside", "reason", why)
	return nil
}

// isolate stops a shard for good. It records this in the identity first. moveMu is held.
func (n *Node) isolate(ctx context.Context, s *shard, why error) error {
	if n.shards[s.number].Load() != s {
		return outcome.ErrNotHere
	}
	if err := n.recordQuarantine(s, why); err != nil {
		return err
	}
	s.EndLeadership()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handoverTimeout)
	defer cancel()
	s.HandOver(ctx)
	n.shards[s.number].Store(nil)
	return s.Stop()
}

// setAside reports whether a group is in quarantine.
func (n *Node) setAside(group string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.id.Quarantined, group)
}

// quarantined returns the names of the groups in quarantine.
func (n *Node) quarantined() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.id.Quarantined)
}

// forget removes a shard for good that is not running here: it removes files that remain after a
// quarantine or an interrupted stop.
func (n *Node) forget(ctx context.Context, s *shard, removed func(context.Context) error) error {
	if n.setAside(s.Name()) {
		if err := removed(ctx); err != nil {
			return err
		}
		if err := n.record(func() error { return n.id.Leave(s.Name()) }); err != nil {
			return err
		}
	}
	if !n.hasLeft(s.Name()) {
		return nil
	}
	return storage.Retire(s.Dir(), s.StoreConfig())
}

// errQuarantined is the answer to a start of a shard whose replica is set aside.
var errQuarantined = errors.New("the replica was set aside because its state differs from the others', or cannot be " +
	"restored; it must be stopped before another can start")
