// Package snapshot has the stream of a snapshot of one shard, and its records for a backup. The
// machine takes and restores snapshots; this package writes and reads their bytes.
package snapshot
