package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/belfrydb/belfry/cluster/catalog"
)

// Directory knows at which address each node listens for its peers. Raft's addresses are server
// ids. They are looked up here at each dialling, so that a changed address is no change of
// members. The newest source counts: the catalog's record, or what gossip or a greeting said
// since. Its methods may be called from any goroutine.
type Directory struct {
	mu       sync.Mutex
	recorded map[string]string // by server id, from the catalog
	heard    map[string]string
}

// NewDirectory returns an empty directory.
func NewDirectory() *Directory {
	return &Directory{recorded: map[string]string{}, heard: map[string]string{}}
}

// Resolve returns where a server may be, for node.Config.Resolve: first the address where it was
// last seen, then the recorded one. It fails if another server was last seen at the recorded
// address, such as a new incarnation of the same name: no call goes to another server than the one
// named.
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

// resolveRecord returns the recorded address, unless another server was seen there. mu is held.
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

// Hear stores the address at which a server was last seen. A server that was seen there before is
// there no more.
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

// record stores the present records of the catalog. A record that has changed is newer than the
// address where the node was seen. A record that is new here, as at the start of this node, may be
// older. A server that is not recorded any more is forgotten.
func (d *Directory) record(nodes []catalog.Node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.recorded {
		if !slices.ContainsFunc(nodes, func(n catalog.Node) bool { return n.ServerID == id }) {
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
