package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// Directory knows at which address each node listens for its peers. Raft's addresses are server ids, which are looked up here at
// each dialling, so that a changed address is no change of members. What was heard last counts: the catalog's record, or what
// gossip or a greeting said since. Its methods may be called from any goroutine.
type Directory struct {
	mu       sync.Mutex
	recorded map[string]string // by server id, from the catalog
	heard    map[string]string
}

// NewDirectory returns a directory that knows nobody.
func NewDirectory() *Directory {
	return &Directory{recorded: map[string]string{}, heard: map[string]string{}}
}

// Resolve returns where a server may be, for node.Config.Resolve: where it was heard of, then where it is recorded. It fails if another server was heard of
// at the recorded address last, such as a new incarnation of the same name: nobody is called under a name that is not his.
func (d *Directory) Resolve(serverID string) (addrs []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	heard := d.heard[serverID]
	if heard != "" {
		addrs = append(addrs, heard)
	}
	switch recorded, err := d.resolveRecord(serverID); {
	case err == nil && recorded != heard:
		return append(addrs, recorded), nil
	case err != nil && heard == "":
		return nil, err
	default:
		return addrs, nil
	}
}

// address returns the address at which a server is tried first; empty if none is known.
func (d *Directory) address(serverID string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return cmp.Or(d.heard[serverID], d.recorded[serverID])
}

// resolveRecord returns the recorded address, unless another server was heard of there. Called with mu held.
func (d *Directory) resolveRecord(serverID string) (string, error) {
	addr := d.recorded[serverID]
	if addr == "" {
		return "", fmt.Errorf("no address is known for server %q", serverID)
	}
	for other, taken := range d.heard {
		if taken == addr && other != serverID {
			return "", fmt.Errorf("the address of server %q, %s, is that of %q now", serverID, addr, other)
		}
	}
	return addr, nil
}

// Hear notes the address under which a server was heard of last. Whoever was heard of there before is there no more.
func (d *Directory) Hear(serverID, addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for other, taken := range d.heard {
		if taken == addr {
			delete(d.heard, other)
		}
	}
	d.heard[serverID] = addr
}

// record notes what the catalog says now. A record that changed is newer than what was heard before; one that is new here, as at the start of
// this node, may be older. Who was recorded and is no more is forgotten.
func (d *Directory) record(nodes []Node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.recorded {
		if !slices.ContainsFunc(nodes, func(n Node) bool { return n.ServerID == id }) {
			delete(d.recorded, id)
			delete(d.heard, id)
		}
	}
	for _, n := range nodes {
		before, known := d.recorded[n.ServerID]
		if known && before != n.PeerAddr {
			delete(d.heard, n.ServerID)
		}
		d.recorded[n.ServerID] = n.PeerAddr
	}
}

// servers returns the server ids that are known, in order.
func (d *Directory) servers() (all []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, known := range []map[string]string{d.heard, d.recorded} {
		for id := range known {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
