package admit

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// peerMemoryFor is how long a report of another node that its memory is full counts. A full node
// repeats it twice a second.
const peerMemoryFor = 10 * time.Second

// peerMemory records the other nodes that reported lately that their memory is full. A follower
// cannot refuse entries that its leader has logged. So leaders refuse puts while one of their
// voters is full.
type peerMemory struct {
	mu       sync.Mutex
	byServer map[string]fullPeer
}

// fullPeer is the report of a node whose memory is full, and its time.
type fullPeer struct {
	figures *MemoryError
	said    time.Time
}

// NotePeer records the answer of another node to the question for its memory. full is nil if the
// node has enough memory; err is not nil if it did not answer. While a node does not answer, the
// caller must repeat the call. If something may have changed, it calls judge, one call at a time,
// with a function that returns the figures of the full voter with the least memory left.
func (m *Memory) NotePeer(server string, full *MemoryError, err error,
	judge func(fullest func(voters []string) *MemoryError)) {
	p := &m.peers
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
		judge(p.fullest)
	}
}

// ReviewPeers drops reports that are too old, also of nodes that are no longer asked, and reports
// of nodes that are not among voters, those of the shards here. So a removed node does not stop
// puts. For judge see NotePeer.
func (m *Memory) ReviewPeers(voters func() map[string]bool, judge func(fullest func(voters []string) *MemoryError)) {
	p := &m.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.byServer) == 0 {
		return
	}
	members := voters()
	maps.DeleteFunc(p.byServer, func(server string, full fullPeer) bool {
		return !members[server] || time.Since(full.said) >= peerMemoryFor
	})
	judge(p.fullest)
}

// fullest returns the figures of the full voter with the least memory left, nil if none is full. mu
// is held.
func (p *peerMemory) fullest(voters []string) (found *MemoryError) {
	for _, server := range slices.Sorted(slices.Values(voters)) {
		full := p.byServer[server].figures
		if full != nil && (found == nil || full.Limit-min(full.Limit, full.Used) < found.Limit-min(found.Limit, found.Used)) {
			found = full
		}
	}
	return found
}
