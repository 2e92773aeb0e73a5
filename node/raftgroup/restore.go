package raftgroup

import (
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage"
)

// snapshotDigest is the stored digest of a snapshot that is being restored, with its position in
// the log.
type snapshotDigest struct {
	id          string
	index, term uint64
	digest      uint64
	known       bool
	members     Membership
}

// Restore replaces the machine by the one read from source once that is complete and its digest is
// right. If there is a Renewal, the old machine is dropped before the read. If the read then fails,
// the replica applies no more entries: they would be applied to an empty state.
func (r *Replica) Restore(source io.ReadCloser) error {
	r.mu.RLock()
	prototype, replaces := r.machine, r.index > 0 && r.cfg.Renewal != nil
	r.mu.RUnlock()
	if replaces {
		r.cfg.Renewal.Restores.Add(1)
		defer r.cfg.Renewal.Restores.Add(-1)
		prototype = r.rewind()
	}
	machine, err := r.read(prototype, source)
	if err != nil && r.cfg.Renewal != nil {
		r.mu.Lock()
		r.broken = err
		r.mu.Unlock()
		if r.started.Load() {
			r.cfg.Renewal.Stateless(err)
		}
	}
	if err != nil {
		return err
	}
	r.replace(machine)
	return nil
}

// read returns the machine in source.
func (r *Replica) read(prototype Machine, source io.Reader) (Machine, error) {
	machine, err := prototype.Restore(source)
	if err != nil {
		return nil, fmt.Errorf("restoring a snapshot: %w", err)
	}
	// The reader verifies the trailer only at the end of source. A decoder that knows where to stop
	// need not have read that far.
	if _, err := io.Copy(io.Discard, source); err != nil {
		return nil, fmt.Errorf("reading the end of a snapshot: %w", err)
	}
	if want := r.replacement.Load(); want != nil && want.known && want.digest != machine.Digest() {
		return nil, fmt.Errorf("restoring snapshot %s: its digest is %016x, the restored state has %016x", want.id,
			want.digest, machine.Digest())
	}
	return machine, nil
}

// replace installs a restored machine.
func (r *Replica) replace(machine Machine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.machine = machine
	r.index, r.term = 0, 0
	if want := r.replacement.Load(); want != nil {
		r.index, r.term = want.index, want.term
		r.setMembers(want.members)
	}
	r.logged, r.captured, r.digests = volume{}, volume{}, nil
	r.wake()
	r.cfg.Grown() // the files that an installed snapshot has replaced are then removed
	if r.cfg.Renewal != nil {
		r.cfg.Renewal.Restored(machine)
	}
	if r.cfg.After != nil {
		r.cfg.After(machine)
	}
}

// snapshotStore remembers the digest of the snapshot that Raft opened last, so that a restore can
// be checked against it.
type snapshotStore struct {
	*storage.SnapshotStore
	replica *Replica
}

// Open opens a snapshot and notes its digest and position.
func (s snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	digest, known, err := s.Digest(id)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the digest of snapshot %s: %w", id, err)
	}
	meta, source, err := s.SnapshotStore.Open(id)
	if err != nil {
		return nil, nil, err
	}
	s.replica.replacement.Store(&snapshotDigest{id: id, index: meta.Index, term: meta.Term, digest: digest, known: known,
		members: membership(meta.ConfigurationIndex, meta.Configuration)})
	return meta, source, nil
}
