package gossip

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Member is another node of this cluster, or of none yet, as gossip knows it.
type Member struct {
	Info
	// GossipAddr is where its gossip listens.
	GossipAddr netip.AddrPort
	// Alive is false if it fell silent or took its leave. A silent node may be well and cut off, or
	// slow: nothing follows from silence.
	Alive bool
	// Since is when it became what Alive says, on this node's clock.
	Since time.Time
}

const (
	// membersMax bounds the nodes that are remembered; of the silent ones those that fell silent first
	// are forgotten.
	membersMax = 1024
	// clashAfter is how long two nodes must answer to one name before it is called a clash. A node
	// that starts again as another incarnation or at another address is one node; the library takes up
	// to half a minute to notice that the old one is gone.
	clashAfter = time.Minute
)

// members is the table of nodes. It is the library's delegate: the library calls it with its own
// lock held, so that nothing here calls the library back.
type members struct {
	logger   *slog.Logger
	problems *problems
	addr     netip.AddrPort // this node's
	allowed  func(netip.Addr) bool

	mu        sync.Mutex
	self      Info
	encoded   []byte
	byID      map[string]*Member
	conflicts map[string]*addrConflict // by server id
	changed   chan struct{}            // closed at the next change
}

// addrConflict is one server id that is reported at two addresses.
type addrConflict struct {
	one, two    netip.AddrPort
	first, last time.Time
}

var (
	errForeign = errors.New("it belongs to another cluster")
	errMember  = errors.New("it cannot be a member")
)

// NodeMeta returns this node's description.
func (m *members) NodeMeta(int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.encoded
}

// NotifyMsg does nothing; there are no user messages.
func (m *members) NotifyMsg([]byte) {}

// GetBroadcasts returns nothing, as NotifyMsg.
func (m *members) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns nothing, as NotifyMsg.
func (m *members) LocalState(bool) []byte { return nil }

// MergeRemoteState does nothing, as NotifyMsg.
func (m *members) MergeRemoteState([]byte, bool) {}

// NotifyAlive decides whether the library may take a node in. It is asked about each sign of life
// that names a node, on every way.
func (m *members) NotifyAlive(n *memberlist.Node) error {
	info, addr, err := m.describe(n)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.foreign(info) {
		return nil
	}
	// It may have become a member before it had a cluster, or before this node had one.
	m.drop(info.ServerID)
	m.reportForeign(info, addr)
	return errForeign
}

// NotifyMerge decides whether this node and another one exchange what they know. A state in which
// all are of another cluster is refused as a whole. Of a mixed one, as a node without a cluster may
// send it, NotifyAlive refuses what is foreign.
func (m *members) NotifyMerge(nodes []*memberlist.Node) error {
	acceptable := 0
	for _, n := range nodes {
		if n.State == memberlist.StateAlive && m.NotifyAlive(n) == nil {
			acceptable++
		}
	}
	if acceptable == 0 {
		return errForeign
	}
	return nil
}

// NotifyJoin takes in a node that the library thinks alive.
func (m *members) NotifyJoin(n *memberlist.Node) { m.alive(n) }

// NotifyUpdate takes over what a node says of itself now.
func (m *members) NotifyUpdate(n *memberlist.Node) { m.alive(n) }

// NotifyLeave notes that a node is silent: it does not answer, or took its leave.
func (m *members) NotifyLeave(n *memberlist.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	member := m.byID[n.Name]
	if member == nil || !member.Alive {
		return
	}
	member.Alive, member.Since = false, time.Now()
	m.logger.Info("gossip: a node is silent", "node", member.Name, "server_id", member.ServerID, "addr",
		member.GossipAddr.String())
	m.notify()
}

// NotifyConflict records that a server id is reported at another address than the one that is
// known to answer.
func (m *members) NotifyConflict(existing, other *memberlist.Node) {
	_, one, err := m.describe(existing)
	_, two, err2 := m.describe(other)
	if err != nil || err2 != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	seen := m.conflicts[existing.Name]
	if seen == nil || now.Sub(seen.last) > clashAfter {
		if len(m.conflicts) >= membersMax {
			clear(m.conflicts)
		}
		seen = &addrConflict{first: now}
		m.conflicts[existing.Name] = seen
	}
	seen.one, seen.two, seen.last = one, two, now
}

// describe reads what a node says of itself.
func (m *members) describe(n *memberlist.Node) (Info, netip.AddrPort, error) {
	info, err := decodeInfo(n.Meta)
	if err != nil {
		return Info{}, netip.AddrPort{}, err
	}
	ip, ok := netip.AddrFromSlice(n.Addr)
	addr := netip.AddrPortFrom(ip.Unmap(), n.Port)
	if !ok || ip.IsUnspecified() || n.Port == 0 || n.Name != info.ServerID || !m.allowed(ip) {
		return Info{}, netip.AddrPort{}, fmt.Errorf("%w: server id %q at %v", errMember, n.Name, addr)
	}
	return info, addr, nil
}

// foreign reports whether a node belongs to another cluster. Where one of the two has none yet,
// nothing is foreign.
func (m *members) foreign(i Info) bool {
	return m.self.Cluster != "" && i.Cluster != "" && m.self.Cluster != i.Cluster
}

func (m *members) reportForeign(i Info, addr netip.AddrPort) {
	m.problems.report(Problem{
		Kind: ForeignCluster, Addr: addr, Cluster: i.Cluster, Name: i.Name,
		Text: fmt.Sprintf("node %s at %v belongs to cluster %s, this node to %s; they do not mix: correct its or this "+
			"node's join addresses",
			i.Name, addr, i.Cluster, m.self.Cluster),
	})
}

// alive takes in a node, or what it says of itself now.
func (m *members) alive(n *memberlist.Node) {
	info, addr, err := m.describe(n)
	if err != nil || info.ServerID == m.selfInfo().ServerID {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.foreign(info) {
		return
	}
	member := m.byID[info.ServerID]
	if member == nil {
		if len(m.byID) >= membersMax && !m.dropSilent() {
			m.logger.Warn("gossip: too many nodes, passing over one", "addr", addr.String())
			return
		}
		member = &Member{}
		m.byID[info.ServerID] = member
	}
	if !member.Alive {
		member.Alive, member.Since = true, time.Now()
		m.logger.Info("gossip: a node is there", "node", info.Name, "server_id", info.ServerID, "addr", addr.String())
	}
	member.Info, member.GossipAddr = info, addr
	m.notify()
}

// dropSilent forgets the node that fell silent first. It reports whether there was one.
func (m *members) dropSilent() bool {
	var first *Member
	for _, member := range m.byID {
		if !member.Alive && (first == nil || member.Since.Before(first.Since)) {
			first = member
		}
	}
	if first == nil {
		return false
	}
	delete(m.byID, first.ServerID)
	return true
}

// forget removes a silent node and returns its address.
func (m *members) forget(serverID string) (netip.AddrPort, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	member := m.byID[serverID]
	if member == nil || member.Alive {
		return netip.AddrPort{}, false
	}
	m.drop(serverID)
	return member.GossipAddr, true
}

// drop removes a node from the table.
func (m *members) drop(serverID string) {
	if m.byID[serverID] != nil {
		delete(m.byID, serverID)
		m.notify()
	}
}

func (m *members) notify() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// change returns a channel that is closed at the next change.
func (m *members) change() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

func (m *members) selfInfo() Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self
}

// update replaces what this node says of itself, and drops those that are foreign to it now.
func (m *members) update(self Info, encoded []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.self, m.encoded = self, encoded
	for id, member := range m.byID {
		if m.foreign(member.Info) {
			m.drop(id)
			m.reportForeign(member.Info, member.GossipAddr)
		}
	}
}

// list returns the nodes in the order of their server ids.
func (m *members) list() []Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Member, 0, len(m.byID))
	for _, member := range m.byID {
		list = append(list, *member)
	}
	slices.SortFunc(list, func(a, b Member) int { return cmp.Compare(a.ServerID, b.ServerID) })
	return list
}

// reportClashes reports names that two nodes have been using for some time.
func (m *members) reportClashes() {
	all := m.list()
	self := m.selfInfo()
	all = append(all, Member{Info: self, GossipAddr: m.addr, Alive: true}) // since always
	now := time.Now()
	lasting := func(n Member) bool { return n.Alive && now.Sub(n.Since) > clashAfter }
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.Name == b.Name && lasting(a) && lasting(b) {
				m.reportClash(a.Name, a.GossipAddr, b.GossipAddr)
			}
		}
	}
	for id, seen := range m.lastingConflicts(now) {
		m.reportClash(id, seen.one, seen.two)
	}
}

// lastingConflicts returns the server ids that have been reported at two addresses for some time,
// and still are.
func (m *members) lastingConflicts(now time.Time) map[string]addrConflict {
	m.mu.Lock()
	defer m.mu.Unlock()
	lasting := make(map[string]addrConflict)
	for id, seen := range m.conflicts {
		switch {
		case now.Sub(seen.last) > clashAfter:
			delete(m.conflicts, id)
		case seen.last.Sub(seen.first) > clashAfter:
			lasting[id] = *seen
		}
	}
	return lasting
}

func (m *members) reportClash(name string, one, two netip.AddrPort) {
	if two.Compare(one) < 0 {
		one, two = two, one
	}
	m.problems.report(Problem{
		Kind: NameClash, Name: name, Addr: one, Other: two,
		Text: fmt.Sprintf("two live nodes are called %s, at %v and at %v: stop one of them, and start it with a name and a "+
			"data directory of its own", name, one, two),
	})
}
