// Package activity counts what the queues of a shard did lately: within the last minute, in slots of
// 10 s, and in each of the last 60 minutes, all by shard time. The figures are derived from the
// entries; no digest, snapshot or rule contains them.
//
// Like the machine that feeds it, a [Shard] is changed by one goroutine at a time. Reads may run
// beside reads, but never beside a change.
package activity
