// Package codec has the binary encodings of a shard: log entries and the commands in them, queries
// and readings, results, and the records of snapshots and backups. Golden files guard every one of
// them. Functions are pure and may be called from any goroutine; a [Reader] and an [Entry] belong
// to one. Errors wrap fsm.ErrDamaged or fsm.ErrVersion.
package codec
