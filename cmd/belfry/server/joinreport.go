package server

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/rpc/portcheck"
)

const (
	// probeMax bounds a probe of a join address; probeFor is how long its result is valid.
	probeMax = time.Second
	probeFor = 15 * time.Second
	// pendingMax is how long a first call to a join address may take before the address is probed.
	pendingMax = time.Second

	correctAddress = "correct the address; it must be one that a node gossips at, by default port 7402"
)

// joinReport says, for people, why a join address does not lead to a cluster.
type joinReport struct {
	text string
	// mistake is set if waiting does not help.
	mistake bool
}

// joinReporter finds out what listens at the join addresses that lead to no node.
type joinReporter struct {
	keyless bool // this node has no gossip key
	began   time.Time
	probes  map[string]probe // by address
}

// probe is the result of a probe of an address.
type probe struct {
	at      time.Time
	text    string
	foreign bool // the answer shows that it is no node of Belfry
}

func newJoinReporter(cfg Config) *joinReporter {
	return &joinReporter{keyless: cfg.GossipKeys == "", began: time.Now(), probes: map[string]probe{}}
}

// reports returns what is wrong with the join addresses at which no node was reached.
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
		return joinReport{text: fmt.Sprintf("nobody answers at join address %s: %s: start a node there, or %s", a.Addr, a.Err,
			correctAddress)}
	case gossip.JoinWrongKey:
		text := "give this node the cluster's gossip keys with --gossip-keys"
		if !r.keyless {
			text = "one of the two lacks the other's gossip key, or has none: compare the files of --gossip-keys"
		}
		return joinReport{fmt.Sprintf(
			"the node at join address %s cannot read this node's gossip, nor this node that one's: %s", a.Addr, text), true}
	case gossip.JoinNotGossip:
		return joinReport{r.found(ctx, a.Addr).text, true}
	default:
		if time.Since(r.began) < pendingMax {
			return joinReport{}
		}
		return joinReport{text: r.found(ctx, a.Addr).text}
	}
}

// unheard names a join address at which there may be a cluster that this node has not heard of. It
// is empty if there is none, as far as this node can find out. An address at which another program
// answers has none.
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

// leaveOut logs the join addresses that the founding of a cluster ignores, because another program
// answers there.
func (r *joinReporter) leaveOut(ctx context.Context, logger *slog.Logger, attempts []gossip.JoinAttempt) {
	for _, a := range attempts {
		if a.Outcome == gossip.JoinNotGossip {
			logger.WarnContext(ctx, "founding without a join address", "why", r.found(ctx, a.Addr).text)
		}
	}
}

// found returns what listens at an address that does not gossip, by a probe within the last
// probeFor.
func (r *joinReporter) found(ctx context.Context, addr string) probe {
	if last, ok := r.probes[addr]; ok && time.Since(last.at) < probeFor {
		return last
	}
	now := look(ctx, addr)
	now.at = time.Now()
	r.probes[addr] = now
	return now
}

// look probes what listens at an address. It may be one of the other two ports of a node.
func look(ctx context.Context, addr string) probe {
	const instead = "join the address that it gossips at, by default port 7402"
	ctx, cancel := context.WithTimeout(ctx, probeMax)
	defer cancel()
	switch found := PortProbes().Find(ctx, addr); found.Kind {
	case portcheck.Peers:
		return probe{text: fmt.Sprintf("join address %s is where %s is reached by its peers: %s", addr, found.Node, instead)}
	case portcheck.Clients:
		return probe{text: fmt.Sprintf("join address %s is where node %s is reached by clients: %s", addr, found.Node,
			instead)}
	case portcheck.TLS:
		return probe{text: fmt.Sprintf("what listens at join address %s speaks TLS, as nodes do with clients: %s", addr,
			instead)}
	case portcheck.Web:
		return probe{
			foreign: true,
			text:    fmt.Sprintf("at join address %s there is a web server, and no node of Belfry: %s", addr, correctAddress),
		}
	case portcheck.Gossip:
		return probe{text: fmt.Sprintf("the node that gossips at join address %s has not taken the call yet", addr)}
	case portcheck.Silent, portcheck.Other:
	}
	return probe{text: fmt.Sprintf("what listens at join address %s does not gossip as Belfry does: %s", addr,
		correctAddress)}
}
