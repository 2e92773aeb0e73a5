// Package store has the records of one shard in memory: queues, jobs, leases, tombstones, finished
// leases and remembered requests, with the tables and orders that find them. DESIGN.md describes
// the structures.
//
// A [Store] is changed by one goroutine at a time. Reads may run beside reads, but never beside a
// change. What [Store.Pin] returns may be read beside anything.
package store
