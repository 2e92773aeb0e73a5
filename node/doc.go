// Package node runs one process's shards: a Raft group around each state machine, the proposer that
// coalesces requests into log entries, the waiters of long polls, the pacer of expiry, the shard
// clock, leader duties, and the storage and transport below them. See DESIGN.md beside this file.
//
// A [Node] owns a data directory. [Open] locks it, checks or makes its identity, starts every shard
// and returns when the node can serve; [Node.Close] ends it. All methods of a Node may be called
// from any goroutine.
//
// Each call that changes something ends in one of three outcomes, which [OutcomeOf] reads from its
// error: applied, not applied, or unknown. A call whose outcome is unknown may be repeated with the
// same request id.
package node
