package raftgroup

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/outcome"
)

// Replica adapts a Machine to raft.FSM and guards it with a read-write lock. Raft calls the methods
// of raft.FSM and raft.ConfigurationStore. Any goroutine may call the others.
type Replica struct {
	cfg Config

	// started is set once Raft has started. A snapshot that cannot be restored before then fails
	// the start; later it costs only this group.
	started atomic.Bool
	// stopped is set before Raft is stopped, and cleared before Raft starts again. While it is set, no
	// entry is applied and no state is captured. Entries on their way to the machine have an unknown
	// outcome.
	//
	// When Raft is being stopped, its main loop either puts a batch into the queue of the machine's
	// goroutine or drops it, at random, and goes on with the next batch. Without stopped, the machine
	// would get entries without their predecessors, callers would get wrong results, and a snapshot
	// would hold a state that no other replica has.
	stopped atomic.Bool

	// log is that of the present instance of Raft.
	log atomic.Pointer[RecentLog]

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

var (
	_ raft.FSM                = (*Replica)(nil)
	_ raft.ConfigurationStore = (*Replica)(nil)
)

// Apply applies one entry. The result is an *appliedEntry. Raft counts a leader's entry as stored
// here before it is durable, so Apply waits for that.
func (r *Replica) Apply(log *raft.Log) any {
	lost := r.log.Load().Await(log.Index)
	start := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &appliedEntry{term: log.Term, index: log.Index}
	if lost != nil && r.broken == nil {
		r.broken = fmt.Errorf("storing entry %d: %w", log.Index, lost)
	}
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
	r.logged.bytes += int64(len(log.Data)) + EntryOverheadBytes
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
func (r *Replica) rewind() Machine {
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
func (r *Replica) wake() {
	r.awaiting = slices.DeleteFunc(r.awaiting, func(a awaitedIndex) bool {
		if a.index > r.index {
			return false
		}
		close(a.applied)
		return true
	})
}

// Await waits until the entry at index is applied.
func (r *Replica) Await(ctx context.Context, index uint64) error {
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
func (r *Replica) StoreConfiguration(index uint64, c raft.Configuration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setMembers(membership(index, c))
}

// setMembers stores a committed configuration. mu is held.
func (r *Replica) setMembers(m Membership) {
	r.members = m
	r.voters.Store(int32(len(m.Voters))) //nolint:gosec // a handful
}

// CommittedMembers returns the newest configuration that this replica knows to be committed. Index
// is 0 if it knows none.
func (r *Replica) CommittedMembers() Membership {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.members
}

// Position is where a machine stands in the log of its group.
type Position struct {
	// Term and Index are those of the last entry that was applied; 0 if there was none.
	Term, Index uint64
	// Behind tells that the machine is behind a state that it had on this node.
	Behind bool
}

// View runs f on the machine under the shared lock. f must be quick and must not keep memory of the
// machine.
func (r *Replica) View(f func(m Machine, at Position)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	f(r.machine, Position{Term: r.term, Index: r.index, Behind: r.index < r.rewound})
}

// Capture takes a snapshot of the machine. The caller must call release once.
func (r *Replica) Capture() (snapshot MachineSnapshot, release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	snapshot = r.machine.Snapshot()
	return snapshot, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		snapshot.Release()
	}
}

// VoterCount returns the number of voters in the newest configuration that this replica knows to be
// committed; 0 if it knows none. It does not wait for the machine.
func (r *Replica) VoterCount() int { return int(r.voters.Load()) }

// AppliedIndex returns the index of the last applied entry.
func (r *Replica) AppliedIndex() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.index
}

// loggedVolume returns the amount applied since the last snapshot.
func (r *Replica) loggedVolume() volume {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.logged
}

// overdue reports whether the log applied since the last capture exceeds 1.5 times the log between
// snapshots.
func (r *Replica) overdue() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.logged.bytes-r.captured.bytes > r.snapshotAt.Load()/2*3
}

// snapshotEnded subtracts the log that the last snapshot covers from logged, if the snapshot is
// stored. It must follow each snapshot. It returns the index of the snapshot, 0 if nothing was
// captured.
func (r *Replica) snapshotEnded(stored bool) (index uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stored {
		r.logged.bytes -= r.captured.bytes
		r.logged.entries -= r.captured.entries
	}
	index, r.captured, r.capturedAt = r.capturedAt, volume{}, 0
	return index
}
