// Package shardcall carries the calls of methods to the shards of a queue: it finds the shards,
// proposes commands, and reads.
//
// See DESIGN.md beside this file for the rules.
package shardcall
