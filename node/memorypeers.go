package node

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// peerMemoryFor is how long it counts that another node said that its memory is full. It says so again twice a second.
const peerMemoryFor = 10 * time.Second

// peerMemory is which other nodes said lately that their memory is full. A follower cannot refuse what its leader has logged, so leaders refuse puts
// while a voter of theirs is full.
type peerMemory struct {
	mu       sync.Mutex
	byServer map[string]fullPeer
}

// fullPeer is what a node whose memory is full said, and when.
type fullPeer struct {
	figures *MemoryError
	said    time.Time
}

// MemoryFull returns the figures of this node if its memory is so full that puts are refused, else nil.
func (n *Node) MemoryFull() *MemoryError {
	if !n.memory.full.Load() {
		return nil
	}
	used, _ := n.memory.used()
	return &MemoryError{Used: used, Limit: n.memory.limit}
}

// NotePeerMemory takes note of how another node answered the question for its memory: full is nil if it has enough, err not nil if it did not
// answer. It must be called again while a node does not answer.
func (n *Node) NotePeerMemory(server string, full *MemoryError, err error) {
	p := &n.memory.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.byServer)
	switch {
	case err == nil && full != nil:
		p.byServer[server] = fullPeer{full, time.Now()}
	case err == nil, time.Since(p.byServer[server].said) >= peerMemoryFor:
		delete(p.byServer, server)
	}
	if before > 0 || len(p.byServer) > 0 {
		n.judgePeers()
	}
}

// reviewPeers forgets what nodes said too long ago that nobody asks any more, and what those said that are voters of no shard here: a node that was
// removed must not stop puts.
func (n *Node) reviewPeers() {
	p := &n.memory.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.byServer) == 0 {
		return
	}
	voters := map[string]bool{}
	for _, s := range n.here() {
		for _, server := range s.replica.committedMembers().Voters {
			voters[server] = true
		}
	}
	maps.DeleteFunc(p.byServer, func(server string, full fullPeer) bool {
		return !voters[server] || time.Since(full.said) >= peerMemoryFor
	})
	n.judgePeers()
}

// judgePeers has the shards here know which of their voters are full. peerMemory.mu is held.
func (n *Node) judgePeers() {
	for _, s := range n.here() {
		s.admission.votersFull.Store(n.memory.peers.fullest(s.replica.committedMembers().Voters))
		s.watchForgetting()
	}
}

// fullest returns the figures of the voter that has the least memory left, nil if none is full. mu is held.
func (p *peerMemory) fullest(voters []string) (found *MemoryError) {
	for _, server := range slices.Sorted(slices.Values(voters)) {
		full := p.byServer[server].figures
		if full != nil && (found == nil || full.Limit-min(full.Limit, full.Used) < found.Limit-min(found.Limit, found.Used)) {
			found = full
		}
	}
	return found
}
