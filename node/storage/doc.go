// Package storage keeps one Raft group on disk: its log, its term and vote, and its snapshots.
//
// It puts a thin checked layer over the libraries' stores. What the libraries lack, and what goes
// wrong without it, is listed in DESIGN.md beside this file; the regression tests show each defect
// on the bare library.
//
// One group is one directory:
//
//	MANIFEST        identity of the group, engine, salt; written last, so its presence means "complete"
//	high-water      the log index and snapshot index that were durable for certain
//	stable          term and vote, one checked record, replaced as a whole
//	log/            the engine's files
//	snapshots/      <index>-<term>-<serial>.snap
//
// Open verifies all of it before raft.NewRaft sees any of it. A state that a crash can leave is
// repaired, and the repair is logged; anything else is a *CorruptError and the group does not
// start.
package storage
