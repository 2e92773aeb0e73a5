// Package findings says what looks wrong in the state of a cluster, and what to do about it. 'belfry
// doctor' and the dashboard both show it.
package findings

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Finding is something that looks wrong.
type Finding struct {
	What string
	// Do says what to do about it.
	Do string
	// Advice says that nothing is wrong, but could be made safer.
	Advice bool
}

// report collects findings.
type report struct{ found []Finding }

func (r *report) find(what, do string) { r.found = append(r.found, Finding{What: what, Do: do}) }

// Of returns what looks wrong in a cluster, the most important first. If it finds nothing of its own,
// it returns the problems that the cluster reports itself. Advice comes last.
func Of(c *belfryv1.GetClusterResponse) []Finding {
	r := &report{}
	versions := map[string]bool{}
	for _, n := range c.Nodes {
		if n.Version != "" {
			versions[n.Version] = true
		}
		if len(n.UnreachedBy) > 0 {
			r.find(fmt.Sprintf("node %s cannot be reached by %s at %s", n.Name, strings.Join(n.UnreachedBy, ", "),
				n.PeerAddress),
				"look at the --advertise and --peer-listen of "+n.Name+
					", and at firewalls between these nodes; until they connect it leads nothing, and its replicas may fall behind")
		} else if n.State == belfryv1.NodeState_NODE_STATE_SILENT {
			r.find(fmt.Sprintf("node %s does not answer%s", n.Name, since(n)),
				"start it again; one that is lost for good is forgotten by 'belfry cluster remove "+n.Name+
					"', after its replicas were replaced")
		}
	}
	r.conditions(c.Nodes)
	leaderless, few, behind := "", "", ""
	for _, s := range c.Shards {
		if s.Leader == "" {
			leaderless += fmt.Sprintf(" %d (voters %s)", s.Shard, cmp.Or(strings.Join(s.Voters, ", "), "not known"))
		}
		if known := len(s.Voters) > 0; known && uint32(len(s.Voters)) < s.VotersWanted {
			few += fmt.Sprintf(" %d (%d of %d)", s.Shard, len(s.Voters), s.VotersWanted)
		}
		if s.ClockAhead != nil {
			r.find(fmt.Sprintf("CLOCK_AHEAD: the time of shard %d is %v ahead of the nodes' clocks", s.Shard,
				s.ClockAhead.AsDuration()), "put the clocks right first, then 'belfry cluster reset-clock' moves it back")
		}
		for _, replica := range s.Replicas {
			if replica.BehindSince != nil {
				behind += fmt.Sprintf(" shard %d on %s (since %s)", s.Shard, replica.Node,
					replica.BehindSince.AsTime().Format(time.RFC3339))
			}
		}
		r.digests(s)
	}
	if leaderless != "" {
		r.find("without a leader:"+leaderless,
			"a majority of the voters must run and reach each other's --peer-listen; if that cannot be any more, see 'belfry "+
				"recover --help'")
	}
	if few != "" {
		r.find("under-replicated:"+few,
			"start the nodes that are missing, or add others; the cluster's moves say what is done about it")
	}
	if behind != "" {
		r.find("replicas that are behind their leaders:"+behind,
			"if the leader cannot reach the node, repair that; else its disk or network is too slow, or it was away "+
				"and catches up")
	}
	if len(versions) > 1 {
		r.find(fmt.Sprintf("the nodes run %d versions", len(versions)),
			"finish the upgrade; until then the cluster writes the older format")
	}
	if len(r.found) == 0 && len(c.Problems) > 0 {
		r.find(strings.Join(c.Problems, "\n"), "see 'belfry cluster status'")
	}
	for _, advice := range c.Advice {
		r.found = append(r.found, Finding{What: advice, Do: "see 'belfry cluster settings --help' and 'belfry serve --help'",
			Advice: true})
	}
	return r.found
}

// conditions notes the troubles that single nodes have.
func (r *report) conditions(nodes []*belfryv1.Node) {
	for _, n := range nodes {
		for _, c := range n.Conditions {
			do := "other nodes lead until it has been over for half a minute"
			switch c.Kind {
			case "DISK_PRESSURE":
				do = "free space on the disk of its data directory, or give it more; " + do
			case "SLOW_DISK":
				do = "look at what else uses its disk ('iostat -x 1'), and at the disk's health; " + do
			case "MEMORY_PRESSURE":
				do = "give it more memory, or fewer and smaller jobs; " + do
			case "UNREACHABLE":
				do = "check its --advertise, and the firewall before its peer port; " + do
			}
			r.find(fmt.Sprintf("node %s has %s since %s: %s", n.Name, c.Kind, c.Since.AsTime().Format(time.RFC3339), c.Message),
				do)
		}
	}
}

// since says from when on a node does not answer.
func since(n *belfryv1.Node) string {
	if n.SilentSince == nil {
		return ""
	}
	return " since " + n.SilentSince.AsTime().Format(time.RFC3339)
}

// digests notes replicas that differ although they have applied the same.
func (r *report) digests(s *belfryv1.Shard) {
	at := map[uint64]*belfryv1.Replica{}
	for _, replica := range s.Replicas {
		other := at[replica.AppliedIndex]
		if replica.Silent || replica.Digest == "" {
			continue
		}
		if other != nil && other.Digest != replica.Digest {
			r.find(fmt.Sprintf("shard %d differs between %s and %s at index %d", s.Shard, other.Node, replica.Node,
				replica.AppliedIndex),
				"this should never be: please report it with the bundle of 'belfry doctor'; the replica that differs from most "+
					"is replaced by itself")
		}
		at[replica.AppliedIndex] = replica
	}
}
