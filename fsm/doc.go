// Package fsm has the vocabulary of one Belfry shard: the commands in its log and their results,
// the queries and their readings, settings, records, times and formats. DESIGN.md has the rules.
//
// The packages below it are pure like this one: fsm/machine carries out the commands, fsm/store has
// the records, fsm/snapshot the stream of a snapshot, fsm/codec the encodings, fsm/digest the
// hashes, fsm/backup the stream of a backup. None has a clock, randomness, a goroutine, a lock, a
// log or I/O, and none ranges over a map. A test walks the syntax trees for all of these.
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
// Give it the next free [Kind] (numbers are never reused), a struct here, its encoding in fsm/codec
// with a golden file, a case in Machine.apply of fsm/machine, the same in fsm/model, and its line
// in DESIGN.md. Once there is a release, it comes with a new [Format], as every new field and
// record does; see fsm/codec/DESIGN.md.
//
// # Adding a query
//
// Give it the next free [QueryKind], a struct here, a case in Machine.read of fsm/machine whose
// [Reading] shares no memory with the machine, its encoding, and a golden file. New fields of a
// Reading, a job or a queue need a new version of the encoding.
package fsm
