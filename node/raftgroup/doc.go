// Package raftgroup runs one Raft group of a node: a machine, its log and snapshots, its
// connections to the other members, and the leadership. It knows neither shards nor nodes. See
// DESIGN.md beside this file.
package raftgroup
