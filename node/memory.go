package node

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/node/admit"
)

// memoryInterval is the time between two sums of the whole account of memory. Machines update their
// part with each entry.
const memoryInterval = 250 * time.Millisecond

// watchMemory checks the reports of other nodes at intervals until ctx ends. If there is a limit,
// it also sums the whole account.
func (n *Node) watchMemory(ctx context.Context) {
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	for {
		n.memory.ReviewPeers(n.voters, n.judgePeers)
		if n.memory.Limited() {
			n.sumMemory()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sumMemory sums the account of memory, and acts on it: pacers forget, leaders recount reserved
// jobs, and the node has MEMORY_PRESSURE while it is full.
func (n *Node) sumMemory() {
	var machines []*admit.MachineMemory
	for _, s := range n.here() {
		machines = append(machines, &s.memory)
	}
	n.memory.Sum(machines)
	for _, s := range n.here() {
		s.watchForgetting()
		s.admission.RecountLeases()
	}
	if n.memory.FullFigures() != nil {
		n.RaiseCondition(MemoryPressure, n.memory.Pressure())
	} else {
		n.ClearCondition(MemoryPressure)
	}
}

// MemoryFull returns the figures of this node if its memory is so full that puts are refused, else
// nil.
func (n *Node) MemoryFull() *admit.MemoryError { return n.memory.FullFigures() }

// NotePeerMemory records the answer of another node to the question for its memory. full is nil if
// the node has enough memory; err is not nil if it did not answer. While a node does not answer,
// the caller must repeat the call.
func (n *Node) NotePeerMemory(server string, full *admit.MemoryError, err error) {
	n.memory.NotePeer(server, full, err, n.judgePeers)
}

// voters returns the voters of the shards here.
func (n *Node) voters() map[string]bool {
	voters := map[string]bool{}
	for _, s := range n.here() {
		for _, server := range s.Replica().CommittedMembers().Voters {
			voters[server] = true
		}
	}
	return voters
}

// judgePeers stores for each shard here which voter has the least memory left.
func (n *Node) judgePeers(fullest func(voters []string) *admit.MemoryError) {
	for _, s := range n.here() {
		s.admission.SetFullVoter(fullest(s.Replica().CommittedMembers().Voters))
		s.watchForgetting()
	}
}
