package admin

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/rpc/backend"
)

// unreachedNode is a running node to which other nodes cannot connect.
type unreachedNode struct {
	member *backend.Member
	// by are the nodes that cannot connect; address is the address that they tried.
	by      []*backend.Member
	address string
}

// unreached returns the running nodes to which others cannot connect, in the order of the members.
// It omits a node that neither answers nor calls any other node: that node is gone.
func (v *clusterView) unreached() (all []unreachedNode) {
	for i := range v.members {
		u := unreachedNode{member: &v.members[i]}
		runs := u.member.Answers
		for j := range v.members {
			for _, other := range v.members[j].Unreached {
				if other.ServerID == u.member.ServerID {
					u.by, u.address, runs = append(u.by, &v.members[j]), other.Address, runs || other.Calls
				}
			}
		}
		if runs && len(u.by) > 0 {
			all = append(all, u)
		}
	}
	return all
}

// reachProblems says which nodes cannot connect to which others. Two nodes that cannot connect in
// either direction are one problem.
func (v *clusterView) reachProblems() (texts []string) {
	all := v.unreached()
	cannot := func(from, to *backend.Member) bool {
		return slices.ContainsFunc(all, func(u unreachedNode) bool { return u.member == to && slices.Contains(u.by, from) })
	}
	at := func(m *backend.Member) string {
		for _, u := range all {
			if u.member == m && u.address != "" {
				return " at " + u.address
			}
		}
		return ""
	}
	for i, u := range all {
		var by []string
		for _, from := range u.by {
			if !cannot(u.member, from) {
				by = append(by, v.label(from))
			} else if slices.IndexFunc(all, func(other unreachedNode) bool { return other.member == from }) > i {
				texts = append(texts,
					fmt.Sprintf("nodes %s and %s cannot reach each other (%s%s, %s%s): look at the network and firewalls between them",
						v.label(u.member), v.label(from), v.label(u.member), at(u.member), v.label(from), at(from)))
			}
		}
		if len(by) > 0 {
			texts = append(texts,
				fmt.Sprintf("node %s cannot be reached by %s%s: look at its --advertise and firewalls", v.label(u.member), list(by),
					at(u.member)))
		}
	}
	return texts
}

// behind says, for each node, which of its replicas lag behind their leaders.
func (v *clusterView) behind() (texts []string) {
	for i := range v.members {
		m := &v.members[i]
		var groups []string
		for _, b := range m.Behind {
			groups = append(groups, fmt.Sprintf("%s (%d of %d entries)", b.Group, b.Applied, b.Commit))
		}
		if len(groups) > 0 {
			texts = append(texts,
				fmt.Sprintf("replicas on node %s are behind their leaders, and count for nothing until they have caught up: %s",
					v.label(m), list(groups)))
		}
	}
	return texts
}

// behindSince returns since when voters of a group lag behind their leader, by server id.
func (v *clusterView) behindSince(group string) map[string]*timestamppb.Timestamp {
	all := map[string]*timestamppb.Timestamp{}
	for i := range v.members {
		for _, b := range v.members[i].Behind {
			if b.Group == group {
				all[v.members[i].ServerID] = timestamppb.New(b.Since)
			}
		}
	}
	return all
}
