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
	// given is the address that Resolve returned last for a server of which two are known.
	given map[string]string
}

// NewDirectory returns a directory that knows nobody.
func NewDirectory() *Directory {
	return &Directory{recorded: map[string]string{}, heard: map[string]string{}, given: map[string]string{}}
}

// Resolve returns the address of a server, for node.Config.Resolve. It fails if another server was heard of there last, such as a new incarnation
// of the same name: nobody is called under a name that is not his. Where the record is another than what was heard they take turns: who asks again did
// not get there, and what was heard may be as wrong as a record that is old.
func (d *Directory) Resolve(serverID string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	heard := d.heard[serverID]
	if heard != "" && d.given[serverID] != heard {
		if addr := d.recorded[serverID]; addr != "" && addr != heard {
			d.given[serverID] = heard
		}
		return heard, nil
	}
	delete(d.given, serverID)
	addr, err := d.resolveRecord(serverID)
	if err != nil && heard != "" {
		return heard, nil
	}
	return addr, err
}

// address returns the address at which a server was last tried, or would be; empty if none is known.
func (d *Directory) address(serverID string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return cmp.Or(d.given[serverID], d.heard[serverID], d.recorded[serverID])
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
	delete(d.given, serverID)
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
			delete(d.given, id)
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
