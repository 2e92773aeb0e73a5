package doctor

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"strings"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// skewMax is how far the server's time may be from this machine's: half the clock bound, and the
	// second to which a Date is rounded.
	skewMax = 1250 * time.Millisecond
	// certificateSoon is how long before its end a certificate should have been replaced.
	certificateSoon = 14 * 24 * time.Hour
	// filesMost is the part of the files a process may have open that should not be in use.
	filesMost = 0.8
)

// Cluster notes what looks wrong in a cluster.
func (b *Bundle) Cluster(c *belfryv1.GetClusterResponse) {
	said := len(b.Findings)
	versions := map[string]bool{}
	for _, n := range c.Nodes {
		if n.Version != "" {
			versions[n.Version] = true
		}
		if len(n.UnreachedBy) > 0 {
			b.Find(fmt.Sprintf("node %s cannot be reached by %s at %s", n.Name, strings.Join(n.UnreachedBy, ", "),
				n.PeerAddress),
				"look at the --advertise and --peer-listen of "+n.Name+
					", and at firewalls between these nodes; until they connect it leads nothing, and its replicas may fall behind")
		} else if n.State == belfryv1.NodeState_NODE_STATE_SILENT {
			b.Find(fmt.Sprintf("node %s does not answer%s", n.Name, since(n)),
				"start it again; one that is lost for good is forgotten by 'belfry cluster remove "+n.Name+
					"', after its replicas were replaced")
		}
	}
	b.conditions(c.Nodes)
	leaderless, few, behind := "", "", ""
	for _, s := range c.Shards {
		if s.Leader == "" {
			leaderless += fmt.Sprintf(" %d (voters %s)", s.Shard, cmp.Or(strings.Join(s.Voters, ", "), "not known"))
		}
		if known := len(s.Voters) > 0; known && uint32(len(s.Voters)) < s.VotersWanted {
			few += fmt.Sprintf(" %d (%d of %d)", s.Shard, len(s.Voters), s.VotersWanted)
		}
		if s.ClockAhead != nil {
			b.Find(fmt.Sprintf("CLOCK_AHEAD: the time of shard %d is %v ahead of the nodes' clocks", s.Shard,
				s.ClockAhead.AsDuration()), "put the clocks right first, then 'belfry cluster reset-clock' moves it back")
		}
		for _, r := range s.Replicas {
			if r.BehindSince != nil {
				behind += fmt.Sprintf(" shard %d on %s (since %s)", s.Shard, r.Node, r.BehindSince.AsTime().Format(time.RFC3339))
			}
		}
		b.digests(s)
	}
	if leaderless != "" {
		b.Find("without a leader:"+leaderless,
			"a majority of the voters must run and reach each other's --peer-listen; if that cannot be any more, see 'belfry "+
				"recover --help'")
	}
	if few != "" {
		b.Find("under-replicated:"+few,
			"start the nodes that are missing, or add others; what is done about it is below \"moves\" in cluster.json")
	}
	if behind != "" {
		b.Find("replicas that are behind their leaders:"+behind,
			"if the leader cannot reach the node, repair that; else its disk or network is too slow, or it was away "+
				"and catches up")
	}
	if len(versions) > 1 {
		b.Find(fmt.Sprintf("the nodes run %d versions", len(versions)),
			"finish the upgrade; until then the cluster writes the older format")
	}
	for _, advice := range c.Advice {
		b.Find("advice: "+advice, "see 'belfry cluster settings --help'")
	}
	if len(b.Findings) == said && len(c.Problems) > 0 {
		b.Find(strings.Join(c.Problems, "\n"), "see 'belfry cluster status'")
	}
}

// conditions notes the troubles that single nodes have.
func (b *Bundle) conditions(nodes []*belfryv1.Node) {
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
			b.Find(fmt.Sprintf("node %s has %s since %s: %s", n.Name, c.Kind, c.Since.AsTime().Format(time.RFC3339), c.Message),
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
func (b *Bundle) digests(s *belfryv1.Shard) {
	at := map[uint64]*belfryv1.Replica{}
	for _, r := range s.Replicas {
		other := at[r.AppliedIndex]
		if r.Silent || r.Digest == "" {
			continue
		}
		if other != nil && other.Digest != r.Digest {
			b.Find(fmt.Sprintf("shard %d differs between %s and %s at index %d", s.Shard, other.Node, r.Node, r.AppliedIndex),
				"this should never be: please report it with this bundle; the replica that differs from most is replaced by itself")
		}
		at[r.AppliedIndex] = r
	}
}

// Ready notes what /readyz?verbose says is wrong: what keeps the server from being ready, and what
// it warns of.
func (b *Bundle) Ready(status int, text string) {
	found := status == 200
	for line := range strings.Lines(text) {
		check, failed := strings.CutPrefix(strings.TrimSpace(line), "[-]")
		warning, warns := strings.CutPrefix(strings.TrimSpace(line), "[!]")
		if !failed && !warns {
			continue
		}
		if warns {
			check = warning
		}
		found = true
		do := "see 'belfry cluster status', and the log of the node"
		switch {
		case strings.HasPrefix(check, "disk"):
			do = "free space on the disk of the data directory, or give it more; other nodes lead until then, and a node that " +
				"is alone refuses puts"
		case strings.HasPrefix(check, "serving"):
			do = "nothing, if it was meant to stop"
		}
		if warns {
			b.Find("ready, with a "+check, do)
			continue
		}
		b.Find("not ready: "+check, do)
	}
	if !found { // it waits for its cluster, and says for whom
		b.Find("not ready: "+text,
			"what it waits for is in its words: that the others run, are reached at the addresses of --join, and have the "+
				"same --gossip-keys and --tls-ca")
	}
}

// Clock notes if the time that a server named is far from when it was asked and from when the
// answer was there.
func (b *Bundle) Clock(asked, answered, server time.Time) {
	if server.IsZero() {
		return
	}
	ahead := max(server.Sub(answered), 0)
	if behind := asked.Sub(server); behind > ahead {
		ahead = -behind
	}
	if ahead.Abs() > skewMax {
		b.Find(fmt.Sprintf("the server's clock is %v from this machine's", ahead.Round(time.Second)),
			"set the clocks of all nodes by NTP; a leader whose clock is more than 250ms from the others' leads no more")
	}
}

// Certificate notes when a certificate ends soon; whose says where it was seen.
func (b *Bundle) Certificate(whose string, cert *x509.Certificate, now time.Time) {
	left := cert.NotAfter.Sub(now)
	switch {
	case left <= 0:
		b.Find(fmt.Sprintf("the certificate of %s ended at %s", whose, cert.NotAfter.UTC().Format(time.RFC3339)),
			"make a new one with 'belfry cert', and send the node SIGHUP")
	case left < certificateSoon:
		b.Find(fmt.Sprintf("the certificate of %s ends at %s", whose, cert.NotAfter.UTC().Format(time.RFC3339)),
			"make a new one with 'belfry cert' before, and send the node SIGHUP")
	case now.Before(cert.NotBefore):
		b.Find(fmt.Sprintf("the certificate of %s begins at %s", whose, cert.NotBefore.UTC().Format(time.RFC3339)),
			"one of the two clocks is wrong")
	}
}

// Metrics notes what the metrics say is wrong.
func (b *Bundle) Metrics(text string) {
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		var name string
		var value float64
		if n, _ := fmt.Sscanf(line, "%s %g", &name, &value); n == 2 {
			values[name] = value
		}
	}
	if most, open := values["process_max_fds"], values["process_open_fds"]; most > 0 && open > filesMost*most {
		b.Find(fmt.Sprintf("the server has %.0f of %.0f files open that it may have", open, most),
			"raise its limit of open files (LimitNOFILE= in the unit), and look who keeps so many connections")
	}
	if changed := values["belfry_peer_changed_total"]; changed > 0 {
		b.Find(fmt.Sprintf("%.0f connections between nodes were ended because bytes had been changed on the way", changed),
			"something between the nodes damages data: network cards, their offloading, proxies, memory")
	}
}
