package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/routing"
	"github.com/belfrydb/belfry/node"
)

// watchReachability probes the other nodes until ctx ends. It makes this node lead only groups
// whose voters reach it.
func (m *members) watchReachability(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(routing.ProbeInterval)
	defer tick.Stop()
	for {
		m.peers.Reachability().Probe(ctx, m.others(), &running)
		m.abstainIfUnreached()
		m.host.CloseStale()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// others returns the other recorded nodes. A node that has just started, and knows no leader of
// the catalog yet, knows no records; then it returns the members of the catalog's group. A node
// that no leader reaches must probe them, so that they know that it runs.
func (m *members) others() (all []string) {
	for _, n := range m.catalog.Nodes() {
		all = append(all, n.ServerID)
	}
	if len(all) == 0 {
		for _, g := range m.host.Status().Groups {
			all = append(all, slices.Concat(g.Voters, g.Nonvoters)...)
		}
		slices.Sort(all)
		all = slices.Compact(all)
	}
	return slices.DeleteFunc(all, func(server string) bool { return server == m.record.ServerID })
}

// abstainIfUnreached makes this node abstain from the elections of a group if a majority of the
// group's voters does not reach it. It also raises the condition that makes the node shed its
// leaderships. Without this, a node that no other node can connect to, because of a firewall or a
// wrong address, would be elected and keep leading: a leader sends, and followers answer. The calls
// of other nodes would not arrive.
//
// Only recent reports of these voters themselves count. If no voter can be asked, and at the start,
// this node has no such reports, and Raft decides alone.
func (m *members) abstainIfUnreached() {
	objectors := m.peers.Reachability().Objectors()
	if len(objectors) == 0 {
		m.host.ClearCondition(node.Unreachable)
		return
	}
	st := m.host.Status()
	sick := len(objectors) > (1+len(m.others()))/2
	for _, g := range slices.Concat(st.Shards, st.Groups) {
		against := 0
		for _, voter := range g.Voters {
			if slices.Contains(objectors, voter) {
				against++
			}
		}
		if against <= len(g.Voters)/2 {
			continue
		}
		sick = true
		if err := m.host.Abstain(g.Group); err != nil {
			// The replica was stopped a moment ago.
			m.config.Logger.Debug("abstaining from elections", "group", g.Group, "error", err)
		}
	}
	if !sick {
		m.host.ClearCondition(node.Unreachable)
		return
	}
	names := make([]string, len(objectors))
	for i, server := range objectors {
		names[i] = catalog.NameOf(server)
	}
	m.host.RaiseCondition(node.Unreachable,
		fmt.Sprintf("it cannot be reached by %s at %s: look at its --advertise and firewalls", strings.Join(names, ", "),
			m.config.PeerAddr))
}
