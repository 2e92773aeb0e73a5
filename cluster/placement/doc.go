// Package placement decides where the replicas and leaderships of a cluster's shards are. A plan is
// a pure function of the world. The Placer runs on the leader of the catalog: it makes the world
// from the reports of all nodes, and has the leaders of the groups take the planned steps. See
// DESIGN.md beside this file.
package placement
