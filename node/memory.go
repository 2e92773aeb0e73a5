package node

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/raftgroup"
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

// forgetSlack is how long the pacer lets old records gather while memory is full, before it
// proposes an entry that forgets them.
const forgetSlack = time.Second

// dutyOf returns when the pacer must propose an entry, 0 for never: at the machine's next deadline,
// and while memory is full also when old records can be forgotten. Only entries forget, and a shard
// that refuses puts may log none.
func (s *shard) dutyOf(m *machine.Machine) fsm.Time {
	deadline, _ := m.NextDeadline()
	if !s.admission.MemoryFull() {
		return deadline
	}
	forget, ok := m.NextForget()
	if forget = forget.Add(forgetSlack); ok && (deadline == 0 || forget < deadline) {
		return forget
	}
	return deadline
}

// nextDuty is dutyOf of the shard's machine.
func (s *shard) nextDuty() (at fsm.Time) {
	s.Replica().View(func(m Machine, _ raftgroup.Position) { at = s.dutyOf(m.(shardMachine).m) })
	return at
}

// forgetsMore reports whether memory is full and another entry would forget more records. One entry
// forgets a bounded number.
func (s *shard) forgetsMore() (more bool) {
	if !s.admission.MemoryFull() {
		return false
	}
	s.Replica().View(func(m Machine, _ raftgroup.Position) {
		machine := m.(shardMachine).m
		at, ok := machine.NextForget()
		more = ok && at <= machine.Clock()
	})
	return more
}

// watchForgetting makes the pacer look for records to forget if memory is full. It may have become
// full since the last entry.
func (s *shard) watchForgetting() {
	if s.admission.MemoryFull() && s.Serves() {
		s.pacer.Moved(s.nextDuty())
	}
}
