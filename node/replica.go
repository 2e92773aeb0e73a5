package node

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/raftgroup"
	"github.com/belfrydb/belfry/node/storage"
)

// Machine is a deterministic state machine that a Raft group replicates. The group calls it from
// one goroutine at a time, except for readers, which run between calls that change it.
type Machine interface {
	// Apply carries out the committed entry at index; it must not keep entry. An error means that
	// this program cannot carry it out. It ends the process: to skip the entry would let replicas
	// diverge.
	Apply(index uint64, entry []byte) (value any, err error)
	// Snapshot captures the state. It must be quick.
	Snapshot() MachineSnapshot
	// Restore returns a new machine with the state read from r and the configuration of this
	// machine. It does not change this machine.
	Restore(r io.Reader) (Machine, error)
	// Digest returns a hash of the state that is equal on all replicas that applied the same entries.
	Digest() uint64
}

// MachineSnapshot is the state of a machine at one index. WriteTo runs concurrently with Apply.
// Release never does, and is called once.
type MachineSnapshot interface {
	io.WriterTo
	// Digest returns the digest of the machine at the time of the snapshot.
	Digest() uint64
	Release()
}

// replica adapts a Machine to raft.FSM and guards it with a read-write lock.
type replica struct {
	cfg groupConfig

	// started is set once Raft has started. A snapshot that cannot be restored before then fails
	// the start; later it costs only this group.
	started atomic.Bool
	// stopped is set before Raft is stopped, and cleared before Raft starts again. While it is set,
	// no entry is applied and no state is captured. Entries on their way to the machine have an
	// unknown outcome.
	//
	// When Raft is being stopped, its main loop either puts a batch into the queue of the machine's
	// goroutine or drops it, at random, and goes on with the next batch. Without stopped, the
	// machine would get entries without their predecessors, callers would get results that never
	// were, and a snapshot would hold a state that no other replica has.
	stopped atomic.Bool

	mu          sync.RWMutex
	machine     Machine
	index, term uint64     // of the last applied entry
	rewound     uint64     // the index before rewind: below it, the machine lacks state that answers have shown
	members     Membership // set by setMembers
	broken      error      // the error that stopped the replica, which then applies no entries
	digests     []IndexDigest

	voters atomic.Int32 // the number of voters in members; read without mu

	logged     volume           // applied since the last snapshot
	captured   volume           // the part of logged that is in the snapshot in progress
	capturedAt uint64           // the index of that snapshot, 0 while there is none
	capture    *replicaSnapshot // the snapshot in progress, nil once it is released
	snapshotAt atomic.Int64     // if logged is above these bytes, each entry calls Grown
	// snapshotBytes is the size of the newest snapshot.
	snapshotBytes atomic.Int64
	replacement   atomic.Pointer[snapshotDigest]

	persistError atomic.Pointer[error]
	awaiting     []awaitedIndex
}

// awaitedIndex is a caller that waits for the application of an entry.
type awaitedIndex struct {
	index   uint64
	applied chan struct{}
}

// appliedEntry is the response of Raft to the proposer of an entry.
type appliedEntry struct {
	term, index uint64
	value       any
	err         error
}

// volume is an amount of log.
type volume struct{ bytes, entries int64 }

// snapshotDigest is the stored digest of a snapshot that is being restored, with its position in
// the log.
type snapshotDigest struct {
	id          string
	index, term uint64
	digest      uint64
	known       bool
	members     Membership
}

var (
	_ raft.FSM                = (*replica)(nil)
	_ raft.ConfigurationStore = (*replica)(nil)
)

// Apply applies one entry. The result is an *appliedEntry.
func (r *replica) Apply(log *raft.Log) any {
	start := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &appliedEntry{term: log.Term, index: log.Index}
	if r.broken != nil {
		out.err = r.broken
		return out
	}
	if r.stopped.Load() {
		out.err = raft.ErrRaftShutdown
		return out
	}
	value, err := r.machine.Apply(log.Index, log.Data)
	if err != nil {
		r.broken = fmt.Errorf("applying entry %d: %w", log.Index, err)
		out.err = r.broken
		go r.cfg.Fatal(r.broken) // Fatal may wait for this goroutine
		return out
	}
	before := r.index
	out.value, r.index, r.term = value, log.Index, log.Term
	r.keepDigest(before)
	r.logged.bytes += int64(len(log.Data)) + raftgroup.EntryOverheadBytes
	r.logged.entries++
	if r.logged.bytes > r.snapshotAt.Load() {
		r.cfg.Grown()
	}
	r.wake()
	r.cfg.Throttle.applied.Add(1)
	if r.cfg.After != nil {
		r.cfg.After(r.machine)
	}
	if r.cfg.Applied != nil {
		r.cfg.Applied(log, r.machine)
	}
	r.cfg.ApplySeconds.Observe(time.Since(start))
	return out
}

// rewind replaces the machine by one that has applied no entries, and returns the new one. It is
// for a Raft that begins again with the first entry: on the old machine, every entry would take
// effect twice. It also precedes the restore of a snapshot, so that memory never holds two states.
func (r *replica) rewind() Machine {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rewound = max(r.rewound, r.index)
	r.machine, r.index, r.term, r.digests = r.cfg.Renewal.Fresh(), 0, 0, nil
	r.logged, r.captured = volume{}, volume{}
	if c := r.capture; c != nil && !c.writing { // Raft begins to write only after the restore
		c.release()
	}
	return r.machine
}

// wake wakes the callers whose entry is applied. mu is held.
func (r *replica) wake() {
	r.awaiting = slices.DeleteFunc(r.awaiting, func(a awaitedIndex) bool {
		if a.index > r.index {
			return false
		}
		close(a.applied)
		return true
	})
}

// await waits until the entry at index is applied.
func (r *replica) await(ctx context.Context, index uint64) error {
	r.mu.Lock()
	if r.index >= index {
		r.mu.Unlock()
		return nil
	}
	a := awaitedIndex{index, make(chan struct{})}
	r.awaiting = append(r.awaiting, a)
	r.mu.Unlock()
	select {
	case <-a.applied:
		return nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		r.awaiting = slices.DeleteFunc(r.awaiting, func(b awaitedIndex) bool { return b.applied == a.applied })
		return outcome.Canceled(ctx)
	}
}

// StoreConfiguration receives each change of the members once it is committed. Without it, Raft
// would not count such an entry as applied, and would refuse to take a snapshot until a command
// follows.
func (r *replica) StoreConfiguration(index uint64, c raft.Configuration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setMembers(membership(index, c))
}

// setMembers stores a committed configuration. mu is held.
func (r *replica) setMembers(m Membership) {
	r.members = m
	r.voters.Store(int32(len(m.Voters))) //nolint:gosec // a handful
}

// committedMembers returns the newest configuration that this replica knows to be committed. Index
// is 0 if it knows none.
func (r *replica) committedMembers() Membership {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.members
}

// view runs f on the machine under the shared lock.
func (r *replica) view(f func(m Machine, term, index uint64)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	f(r.machine, r.term, r.index)
}

// lacks reports whether the machine is behind a state that it had on this node. mu is held.
func (r *replica) lacks() bool { return r.index < r.rewound }

// appliedIndex returns the index of the last applied entry.
func (r *replica) appliedIndex() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.index
}

// loggedVolume returns the amount applied since the last snapshot.
func (r *replica) loggedVolume() volume {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.logged
}

// overdue reports whether the log applied since the last capture exceeds 1.5 times the log between
// snapshots.
func (r *replica) overdue() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.logged.bytes-r.captured.bytes > r.snapshotAt.Load()/2*3
}

// snapshotEnded subtracts the log that the last snapshot covers from logged, if the snapshot is
// stored. It must follow each snapshot. It returns the index of the snapshot, 0 if nothing was
// captured.
func (r *replica) snapshotEnded(stored bool) (index uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stored {
		r.logged.bytes -= r.captured.bytes
		r.logged.entries -= r.captured.entries
	}
	index, r.captured, r.capturedAt = r.capturedAt, volume{}, 0
	return index
}

// Snapshot captures the machine.
func (r *replica) Snapshot() (raft.FSMSnapshot, error) {
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

// Restore replaces the machine by the one read from source once that is complete and its digest is
// right. If there is a Renewal, the old machine is dropped before the read. If the read then fails,
// the replica applies no more entries: they would be applied to an empty state.
func (r *replica) Restore(source io.ReadCloser) error {
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
func (r *replica) read(prototype Machine, source io.Reader) (Machine, error) {
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
func (r *replica) replace(machine Machine) {
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

// replicaSnapshot is one snapshot in progress. Its replica's mu guards it.
type replicaSnapshot struct {
	replica  *replica
	snapshot MachineSnapshot // nil once it is released
	writing  bool
}

// Persist streams the state to sink, concurrently with Apply. It does not close sink: Raft always
// does, and takes a sink that was closed twice for failed. Raft flattens the error, so Persist
// keeps it.
func (s *replicaSnapshot) Persist(sink raft.SnapshotSink) error {
	snapshot := s.begin()
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

// begin returns the state to write, nil if the snapshot was released.
func (s *replicaSnapshot) begin() MachineSnapshot {
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

// snapshotStore remembers the digest of the snapshot that Raft opened last, so that a restore can
// be checked against it.
type snapshotStore struct {
	*storage.SnapshotStore
	replica *replica
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
