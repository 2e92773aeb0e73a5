// Package gossip finds the addresses of a cluster's nodes and notices which of them have fallen silent. It decides nothing: who votes,
// where replicas are and who founds a cluster is said by Raft and the catalog, which take what gossip says as a hint.
//
// It runs github.com/hashicorp/memberlist over a transport of its own, which seals and checks everything before the library sees it.
// See the section on discovery in cluster/DESIGN.md.
package gossip
