// Package cluster keeps the catalog: what all nodes of a cluster must agree on beside the jobs. In a cluster of one node that is
// the cluster's id, the number of shards, the nodes, and the queues that were created or configured on purpose.
//
// The catalog is a Raft group of its own, with one voter from the first start, run by package node. It never touches jobs.
// See DESIGN.md beside this file.
package cluster
