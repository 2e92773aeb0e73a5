package server

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/belfrydb/belfry/cluster/gossip"
)

const (
	// probeMax bounds the question what listens at a join address, probeFor is how long its answer counts.
	probeMax = time.Second
	probeFor = 15 * time.Second
	// pendingMax is how long a first call may take before it is looked at what listens there.
	pendingMax = time.Second
	// ServedBy is the header that each answer of a Belfry server to its clients has: the name of the node.
	ServedBy = "Belfry-Served-By"

	correctAddress = "correct the address; it must be one that a node gossips at, by default port 7402"
)

// joinReport is what keeps a join address from leading to a cluster. It is for people.
type joinReport struct {
	text string
	// mistake: waiting does not help.
	mistake bool
}

// joinReporter finds out what is at the join addresses that lead nowhere.
type joinReporter struct {
	keyless bool // this node has no gossip key
	began   time.Time
	probes  map[string]probe // by address
}

// probe is what was found at an address.
type probe struct {
	at      time.Time
	text    string
	foreign bool // it said by its answer that it is no node of Belfry
}

func newJoinReporter(cfg Config) *joinReporter {
	return &joinReporter{keyless: cfg.GossipKeys == "", began: time.Now(), probes: map[string]probe{}}
}

// reports returns what is wrong with join addresses; none for those at which a node was reached.
func (r *joinReporter) reports(ctx context.Context, attempts []gossip.JoinAttempt) (all []joinReport) {
	for _, a := range attempts {
		if report := r.report(ctx, a); report.text != "" {
			all = append(all, report)
		}
	}
	return all
}

func (r *joinReporter) report(ctx context.Context, a gossip.JoinAttempt) joinReport {
	switch a.Outcome {
	case gossip.JoinReached:
		return joinReport{}
	case gossip.JoinUnresolved:
		return joinReport{text: fmt.Sprintf("join address %s: %s", a.Addr, a.Err)}
	case gossip.JoinNoConnection:
		return joinReport{text: fmt.Sprintf("nobody answers at join address %s: %s: start a node there, or %s", a.Addr, a.Err, correctAddress)}
	case gossip.JoinWrongKey:
		text := "give this node the cluster's gossip keys with --gossip-keys"
		if !r.keyless {
			text = "one of the two lacks the other's gossip key, or has none: compare the files of --gossip-keys"
		}
		return joinReport{fmt.Sprintf("the node at join address %s cannot read this node's gossip, nor this node that one's: %s", a.Addr, text), true}
	case gossip.JoinNotGossip:
		return joinReport{r.found(ctx, a.Addr).text, true}
	default:
		if time.Since(r.began) < pendingMax {
			return joinReport{}
		}
		return joinReport{text: r.found(ctx, a.Addr).text}
	}
}

// unheard says at which join address there may be a cluster that this node has not heard of; empty if there is none as far as can be known. Where another
// program answers there is none.
func (r *joinReporter) unheard(ctx context.Context, attempts []gossip.JoinAttempt) (why string) {
	for _, a := range attempts {
		switch a.Outcome {
		case gossip.JoinUnresolved, gossip.JoinNoConnection, gossip.JoinReached:
			continue
		case gossip.JoinNotGossip:
			if r.found(ctx, a.Addr).foreign {
				continue
			}
		case gossip.JoinPending, gossip.JoinWrongKey:
		}
		return "there may be one at join address " + a.Addr
	}
	return ""
}

// leaveOut says without which join addresses a cluster is founded because another program answers there.
func (r *joinReporter) leaveOut(ctx context.Context, logger *slog.Logger, attempts []gossip.JoinAttempt) {
	for _, a := range attempts {
		if a.Outcome == gossip.JoinNotGossip {
			logger.WarnContext(ctx, "founding without a join address", "why", r.found(ctx, a.Addr).text)
		}
	}
}

// found says what listens at an address that does not gossip, as it was found within the last seconds.
func (r *joinReporter) found(ctx context.Context, addr string) probe {
	if last, ok := r.probes[addr]; ok && time.Since(last.at) < probeFor {
		return last
	}
	now := look(ctx, addr)
	now.at = time.Now()
	r.probes[addr] = now
	return now
}

// look asks who listens at an address: it may be one of the other two ports of a node.
func look(ctx context.Context, addr string) probe {
	const instead = "join the address that it gossips at, by default port 7402"
	ctx, cancel := context.WithTimeout(ctx, probeMax)
	defer cancel()
	switch found := FindPort(ctx, addr); found.Kind {
	case PortPeers:
		return probe{text: fmt.Sprintf("join address %s is where %s is reached by its peers: %s", addr, found.Node, instead)}
	case PortClients:
		return probe{text: fmt.Sprintf("join address %s is where node %s is reached by clients: %s", addr, found.Node, instead)}
	case PortTLS:
		return probe{text: fmt.Sprintf("what listens at join address %s speaks TLS, as nodes do with clients: %s", addr, instead)}
	case PortWeb:
		return probe{foreign: true, text: fmt.Sprintf("at join address %s there is a web server, and no node of Belfry: %s", addr, correctAddress)}
	case PortGossip:
		return probe{text: fmt.Sprintf("the node that gossips at join address %s has not taken the call yet", addr)}
	case PortSilent, PortOther:
	}
	return probe{text: fmt.Sprintf("what listens at join address %s does not gossip as Belfry does: %s", addr, correctAddress)}
}
