// Package machine is the state machine of one shard: it holds jobs, their orders, leases, dead
// letters, queue settings and everything that must be remembered to answer a repeated request.
//
// A [Machine] is driven by one goroutine at a time. [Machine.Apply] and [Restore] make and change
// it; every other method only reads and may run beside other readers, but never beside Apply. It
// has no clock, no randomness, no goroutine, no lock, no log and no I/O; it never ranges over a
// map.
//
// The same entries in the same order give the same results and the same [Machine.Digest] in every
// process, on every architecture, with any number of snapshots and restores in between.
package machine
