// Package rpc is the public edge of a node: Connect, gRPC, gRPC-Web and plain HTTP with JSON on one port, as the protobuf
// sources under proto describe it, and the raw routes on which a job's body is the body of the HTTP message.
//
// The edge checks every request in full before anything is proposed, so that what reaches the log is well formed; routes
// it to the shard of its queue; and converts answers and errors. It holds no job and decides nothing about one. What it
// needs of a node and of the catalog are the interfaces [Node] and [Catalog]; [NewServer] makes the rest.
//
// See DESIGN.md beside this file for the reasons.
package rpc
