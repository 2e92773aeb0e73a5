// Package fsm is the pure, deterministic state machine of one Belfry shard: jobs, their due order, leases, dead letters,
// queue settings and everything that must be remembered to answer a repeated request.
//
// # Contract
//
// A [Machine] is driven by one goroutine at a time. [Machine.Apply] and [Machine.Restore] change it; every other method
// only reads and may run beside other readers, but never beside Apply. The package has no clock, no randomness, no
// goroutine, no lock, no log and no I/O; it never ranges over a map. A test walks its syntax tree for all of these.
//
// The same entries in the same order give the same results and the same [Machine.Digest] in every process, on every
// architecture, with any number of snapshots and restores in between.
//
// # Life of a job
//
//	put(delay>0) ──► DELAYED ──(due)──► READY ──reserve──► RESERVED ──ack──► ACKED
//	put(delay=0) ────────────────────────▲  ▲                │ │ │
//	                 ▲                   │  └─ lease lapsed ─┘ │ │      attempts used up,
//	                 └─── nack(delay), schedule ───────────────┘ └────► DEAD ──redrive──► READY
//	cancel: DELAYED, READY, DEAD (RESERVED with force) ──► CANCELLED     ttl: DELAYED, READY ──► EXPIRED or DEAD
//
// # Adding a command
//
// Give it the next free [Kind] (numbers are never reused), a struct with its encoding in the codec, a case in
// Machine.apply, the same in fsm/model, a golden file, and its line in DESIGN.md. Once there is a release, it comes with a new
// [Format], as every new field and record does; see DESIGN.md.
//
// # Adding a query
//
// Give it the next free [QueryKind], a struct whose answer method puts nothing into the [Reading] that aliases the machine, its
// encoding, and a golden file. New fields of a Reading, a job or a queue need a new version of the encoding.
package fsm
