// Package nodetest runs clusters of real nodes in one process, over a network in memory that a test
// can cut. It is made for testing/synctest: time is virtual, so that an election takes no time.
// Only the clock and the network are replaced; Raft, the transport with its handshakes, and the
// files are those of production.
package nodetest
