// Package bulk has the acts on all jobs of a queue that match: what a task is, what it asks a shard,
// and how far it has come. It makes no calls: package tasks of cluster does.
package bulk
