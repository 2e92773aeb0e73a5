// Package cluster is a node's part in its cluster: the catalog, which is what all nodes agree on beside the jobs, placement, which
// moves replicas and leaderships while this node leads the catalog, and the way to shards that other nodes lead.
//
// The catalog is a Raft group of its own, with one voter from the first start, run by package node. The package never touches
// jobs. See DESIGN.md beside this file.
package cluster
