// Package catalog is the state that all nodes of a cluster agree on besides the jobs, and this
// node's replica of it: the nodes, the placement of shards, the settings, queues, quotas and
// tokens. It is a Raft group that package node runs. See DESIGN.md beside this file.
package catalog
