// Package rule has those rules of a shard that need no machine: pure functions of a job, the record
// of its queue, and times.
package rule
