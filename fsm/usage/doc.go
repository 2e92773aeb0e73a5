// Package usage has what the queues of each namespace hold in a shard, and how many there are. The
// sums are derived from the counts of queues; no digest, snapshot or rule contains them.
//
// Like the machine that feeds it, [Namespaces] is changed by one goroutine at a time. Reads may run
// beside reads, but never beside a change.
package usage
