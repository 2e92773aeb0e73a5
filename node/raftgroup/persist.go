package raftgroup

import (
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage"
)

// Snapshot captures the machine.
func (r *Replica) Snapshot() (raft.FSMSnapshot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		return nil, r.broken
	}
	if r.stopped.Load() {
		return nil, raft.ErrRaftShutdown
	}
	r.captured, r.capturedAt = r.logged, r.index
	r.persistError.Store(nil)
	r.capture = &replicaSnapshot{replica: r, snapshot: r.machine.Snapshot()}
	return r.capture, nil
}

// replicaSnapshot is one snapshot in progress. Its replica's mu guards it.
type replicaSnapshot struct {
	replica  *Replica
	snapshot MachineSnapshot // nil once it is released
	writing  bool
}

// Persist streams the state to sink, concurrently with Apply. It does not close sink: Raft always
// does, and takes a sink that was closed twice for failed. Raft flattens the error, so Persist
// keeps it.
func (s *replicaSnapshot) Persist(sink raft.SnapshotSink) error {
	snapshot := s.beginWrite()
	if snapshot == nil {
		return storage.ErrSnapshotOlder // than the state that was restored since
	}
	if d, ok := sink.(storage.DigestSetter); ok {
		d.SetDigest(snapshot.Digest())
	}
	w := &throttledWriter{Writer: sink, pause: s.replica.pauseAfter, resumedAt: time.Now()}
	_, err := snapshot.WriteTo(w)
	s.Release() // the rest, syncing and truncating the log, does not need it
	if err != nil {
		err = fmt.Errorf("writing a snapshot: %w", err)
		s.replica.persistError.Store(&err)
		return err
	}
	return nil
}

// beginWrite returns the state to write, nil if the snapshot was released.
func (s *replicaSnapshot) beginWrite() MachineSnapshot {
	s.replica.mu.Lock()
	defer s.replica.mu.Unlock()
	s.writing = true
	return s.snapshot
}

// Release frees the memory that the snapshot holds. Only the first call has an effect.
func (s *replicaSnapshot) Release() {
	s.replica.mu.Lock()
	defer s.replica.mu.Unlock()
	s.release()
}

// release implements Release. mu is held.
func (s *replicaSnapshot) release() {
	if s.snapshot == nil {
		return
	}
	s.snapshot.Release()
	s.snapshot = nil
	if s.replica.capture == s {
		s.replica.capture = nil
	}
}
