package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/node"
)

const (
	// probeMax bounds the question what listens at an address, probeFor is how long its answer counts.
	probeMax = time.Second
	probeFor = 15 * time.Second
	// pendingMax is how long a first call may take before it is looked at what listens there.
	pendingMax = time.Second
	// servedBy is the header that each answer of a Belfry server to its clients has.
	servedBy = "Belfry-Served-By"
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
	at   time.Time
	text string
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
	case gossip.JoinNobody:
		return joinReport{text: fmt.Sprintf("nobody answers at join address %s: %s: start a node there, or correct the address; it must be one that a node gossips at, by default port 7402", a.Addr, a.Err)}
	case gossip.JoinWrongKey:
		text := "give this node the cluster's gossip keys with --gossip-keys"
		if !r.keyless {
			text = "one of the two lacks the other's gossip key, or has none: compare the files of --gossip-keys"
		}
		return joinReport{fmt.Sprintf("the node at join address %s cannot read this node's gossip, nor this node that one's: %s", a.Addr, text), true}
	case gossip.JoinStranger:
		return joinReport{r.found(ctx, a.Addr), true}
	default:
		if time.Since(r.began) < pendingMax {
			return joinReport{}
		}
		return joinReport{text: r.found(ctx, a.Addr)}
	}
}

// found says what listens at an address that does not gossip, as it was found within the last seconds.
func (r *joinReporter) found(ctx context.Context, addr string) string {
	if last, ok := r.probes[addr]; ok && time.Since(last.at) < probeFor {
		return last.text
	}
	ctx, cancel := context.WithTimeout(ctx, probeMax)
	defer cancel()
	text := look(ctx, addr)
	r.probes[addr] = probe{time.Now(), text}
	return text
}

// look asks who listens at an address: it may be one of the other two ports of a node.
func look(ctx context.Context, addr string) string {
	const instead = "join the address that it gossips at, by default port 7402"
	found := make(chan string, 2) // empty for nothing
	go func() {
		intro, err := node.Hello(ctx, nil, addr)
		if err != nil {
			found <- ""
			return
		}
		found <- fmt.Sprintf("join address %s is where %s is reached by its peers: %s", addr, intro.ServerID, instead)
	}()
	go func() {
		switch name, ok := askClientPort(ctx, addr); {
		case !ok:
			found <- ""
		case name == "":
			found <- fmt.Sprintf("at join address %s there is a web server, and no node of Belfry: correct the address; it must be one that a node gossips at, by default port 7402", addr)
		default:
			found <- fmt.Sprintf("join address %s is where node %s is reached by clients: %s", addr, name, instead)
		}
	}()
	for range cap(found) {
		if text := <-found; text != "" {
			return text
		}
	}
	return fmt.Sprintf("what listens at join address %s does not gossip as Belfry does: correct the address; it must be one that a node gossips at, by default port 7402", addr)
}

// askClientPort asks whether an address is where a server answers clients. ok: it speaks HTTP; the name is empty if it is no Belfry.
func askClientPort(ctx context.Context, addr string) (name string, ok bool) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/livez", nil)
	if err != nil {
		return "", false
	}
	once := &http.Transport{DisableKeepAlives: true}
	response, err := once.RoundTrip(request)
	if err != nil {
		return "", false
	}
	defer response.Body.Close()
	return response.Header.Get(servedBy), true
}
