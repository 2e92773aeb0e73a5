// Package raftgroup holds what a Raft group needs besides its machine and its files: the memory of its
// newest entries, its log messages, and the meaning of its errors. It knows neither shards nor nodes.
package raftgroup
