package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/storage"
)

const (
	// digestEvery is the number of entries of a group's log between two digests that all replicas
	// keep for comparison.
	digestEvery = 512
	// digestsKept is the number of digests that a replica keeps: those of the last 16,384 entries.
	digestsKept = 32
)

// IndexDigest is the digest of a group's machine after the entry at Index.
type IndexDigest struct {
	Index  uint64 `json:"index"`
	Digest uint64 `json:"digest,string"`
}

// keepDigest keeps the digest of the machine if the entry just applied is the first at or after a
// multiple of digestEvery. The log alone decides which entries those are, so all replicas keep
// digests of the same entries. mu is held.
func (r *replica) keepDigest(before uint64) {
	if r.index/digestEvery == before/digestEvery {
		return
	}
	if len(r.digests) == digestsKept {
		r.digests = slices.Delete(r.digests, 0, 1)
	}
	r.digests = append(r.digests, IndexDigest{r.index, r.machine.Digest()})
}

// compared returns the digests to compare with other replicas: the kept digests, and the present
// one.
func (r *replica) compared() (all []IndexDigest) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.index == 0 {
		return nil
	}
	all = slices.Clone(r.digests)
	if len(all) == 0 || all[len(all)-1].Index != r.index {
		all = append(all, IndexDigest{r.index, r.machine.Digest()})
	}
	return all
}

// Quarantine takes a replica out of service whose state differs from that of most replicas.
// right.Digest is their digest at right.Index. If this replica has the same digest at that index,
// or no longer knows its own, nothing changes and the error is ErrDisproved.
//
// Quarantine transfers the leadership of a shard that this node leads, and stops the replica, also
// for later starts of the node. Its files stay. Once the shard's leader has removed the member,
// StopShard makes room for a new replica. A node cannot run without its replica of any other group:
// it ends.
func (n *Node) Quarantine(ctx context.Context, group string, right IndexDigest) error {
	for _, s := range n.here() {
		if s.name() == group {
			return n.move(ctx, s.number, "setting aside", func() error { return n.quarantineShard(ctx, s, right) })
		}
	}
	for _, g := range n.allGroups() {
		if g.name() != group {
			continue
		}
		err := g.replica.differs(right)
		if err == nil {
			n.fatal(fmt.Errorf("the replica of %s on this node differs from the others': %w. Remove the data directory and "+
				"start the node as a new one", group, divergence(right)))
		}
		return err
	}
	return fmt.Errorf("%s: %w", group, outcome.ErrNotHere)
}

// differs returns nil if the digest of the replica at right.Index differs from right.
func (r *replica) differs(right IndexDigest) error {
	all := r.compared()
	i := slices.IndexFunc(all, func(d IndexDigest) bool { return d.Index == right.Index })
	if i < 0 || all[i].Digest == right.Digest {
		return outcome.ErrDisproved
	}
	return nil
}

// divergence returns an error that describes the difference.
func divergence(right IndexDigest) error {
	return fmt.Errorf("at entry %d most replicas have the digest %016x", right.Index, right.Digest)
}

// quarantineShard sets aside a shard that differs.
func (n *Node) quarantineShard(ctx context.Context, s *shard, right IndexDigest) error {
	if err := s.replica.differs(right); err != nil {
		return err
	}
	return n.isolate(ctx, s, divergence(right))
}

// abandon sets aside a shard whose replica dropped its state for a snapshot of its leader that it
// cannot restore. A restart would not help, because the entries missing from the log are only in
// that snapshot. abandon records this in the identity before it returns, whatever the node does
// with the shard at that moment: the next start would fail at that snapshot. A stop of the shard
// waits for the record. The process ends if the shard cannot be stopped.
func (s *shard) abandon(why error) {
	n := s.node
	if err := n.recordQuarantine(s, why); err != nil {
		n.fatal(err)
		return
	}
	n.spawn(func() {
		n.moveMu.Lock() // a shard that is being started is here under this lock
		defer n.moveMu.Unlock()
		if err := n.isolate(context.Background(), s, why); err != nil && !errors.Is(err, outcome.ErrNotHere) {
			n.fatal(err)
		}
	})
}

// recordQuarantine records in the identity that no start may serve the shard's replica again.
func (n *Node) recordQuarantine(s *shard, why error) error {
	if n.setAside(s.name()) {
		return nil
	}
	if err := n.record(func() error { return n.id.quarantine(n.cfg.Dir, s.name()) }); err != nil {
		return err
	}
	s.logger().Error("the replica is set aside", "reason", why)
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
	s.lose()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handoverTimeout)
	defer cancel()
	s.handOver(ctx)
	n.shards[s.number].Store(nil)
	return s.stop()
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
	if n.setAside(s.name()) {
		if err := removed(ctx); err != nil {
			return err
		}
		if err := n.record(func() error { return n.id.leave(n.cfg.Dir, s.name()) }); err != nil {
			return err
		}
	}
	if !n.hasLeft(s.name()) {
		return nil
	}
	return storage.Retire(s.dir(), s.storeConfig())
}

// errQuarantined is the answer to a start of a shard whose replica is set aside.
var errQuarantined = errors.New("the replica was set aside because its state differs from the others', or cannot be " +
	"restored; it must be stopped before another can start")
