// Package cluster is a node's part in its cluster: the catalog, placement, and the routing of calls
// to shards that other nodes lead. The catalog is the state that all nodes agree on besides the
// jobs. Placement moves replicas and leaderships while this node leads the catalog.
//
// The catalog is a Raft group of its own, which package node runs. It has voters from the first
// start. The package never touches jobs. See DESIGN.md beside this file.
package cluster
