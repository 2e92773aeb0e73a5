// Package gossip finds the addresses of a cluster's nodes and notices which of them have fallen
// silent. It decides nothing. Raft and the catalog decide which nodes vote, where replicas are and
// which nodes found a cluster; they use what gossip says as a hint.
//
// It runs github.com/hashicorp/memberlist over a transport of its own, which seals and checks
// everything before the library sees it. See DESIGN.md beside this file.
package gossip
