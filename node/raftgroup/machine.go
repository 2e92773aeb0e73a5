package raftgroup

import "io"

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
