// Package routing makes the calls of shards at the nodes that lead them, and answers those of other
// nodes. It has the calls between nodes, alone or many in a stream, what this node knows of who
// leads and which nodes it reaches, and the relays around a broken way. See DESIGN.md beside this
// file.
package routing
