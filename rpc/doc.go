// Package rpc is the public edge of a node. One port serves Connect, gRPC, gRPC-Web and plain HTTP
// with JSON, as the protobuf sources under proto describe. It also serves the raw routes, on which
// the body of a job is the body of the HTTP message.
//
// The edge checks every request in full before it proposes a command, so that the log gets only
// well-formed commands. It routes each request to the shard of its queue, and converts answers and
// errors. It holds no jobs and decides nothing about them. The interfaces [Node] and [Catalog] are
// what it needs of a node and of the catalog; [NewServer] creates the rest.
//
// See DESIGN.md beside this file for the reasons.
package rpc
