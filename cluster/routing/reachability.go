package routing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node"
)

// pathReach asks a node which others it cannot reach. An answer shows that the node itself is
// reachable.
const pathReach = "/reach"

const (
	// ProbeInterval is the time between two probes of a node, probeWait the time limit of one.
	ProbeInterval = 500 * time.Millisecond
	probeWait     = time.Second
	// A node counts as unreached when unreachedProbes probes in a row have failed and the last
	// answer is unreachedAfter old. After relayAfter, calls go through a relay if one probe was
	// refused or two failed.
	unreachedProbes = 2
	unreachedAfter  = 2500 * time.Millisecond
	relayAfter      = time.Second
	// answerFor is how long an answer counts.
	answerFor = probeWait + 2*ProbeInterval
	// refusedAfter is when calls to a node that no other node reaches are refused at once. Until
	// then they wait, unsent, for another leader: a leader that a majority of the voters does not
	// reach gives up before that.
	refusedAfter = unreachedAfter + LeaderWait
)

// reachAnswer is the answer to pathReach.
type reachAnswer struct {
	// Unreached are the servers that the node cannot reach.
	Unreached []string `json:"unreached,omitempty"`
	// Memory says that the node's memory is full, and how much it has in use.
	Memory *node.MemoryError `json:"memory,omitempty"`
}

// Reachability records which other nodes this node reaches over the connections that calls use,
// and what they say of each other.
type Reachability struct {
	self string
	ask  func(ctx context.Context, server string) (reachAnswer, error)

	mu       sync.Mutex
	byServer map[string]*peerReachability
}

// peerReachability is this node's knowledge of one other node.
type peerReachability struct {
	reached  time.Time // when it last answered, or was first probed
	failures int       // failed probes in a row
	asking   bool
	called   time.Time // when it last probed this node
	// refused: the last probe failed before its time limit. The node, or the way to it, refused it.
	refused bool
	// answered is when it last said which nodes it does not reach; zero if it does not know the
	// call.
	answered  time.Time
	unreached []string
	// objectsSince is when its answers started to say that it does not reach this node; zero if the
	// last one does not.
	objectsSince time.Time
}

func newReachability(self string, ask func(ctx context.Context, server string) (reachAnswer, error)) *Reachability {
	return &Reachability{self: self, ask: ask, byServer: map[string]*peerReachability{}}
}

// peer returns the knowledge of a server. mu is held.
func (r *Reachability) peer(server string) *peerReachability {
	known := r.byServer[server]
	if known == nil {
		known = &peerReachability{}
		r.byServer[server] = known
	}
	return known
}

// Probe probes those servers that have no probe under way, and forgets servers that are not in the
// list. It waits for no answer.
func (r *Reachability) Probe(ctx context.Context, servers []string, running *sync.WaitGroup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for server := range r.byServer {
		if !slices.Contains(servers, server) {
			delete(r.byServer, server)
		}
	}
	for _, server := range servers {
		known := r.peer(server)
		if known.asking {
			continue
		}
		known.asking = true
		if known.reached.IsZero() {
			known.reached = time.Now()
		}
		running.Go(func() {
			asked, cancel := context.WithTimeout(ctx, probeWait)
			defer cancel()
			answer, err := r.ask(asked, server)
			r.recordProbe(known, answer, err)
		})
	}
}

// recordProbe records the result of a probe.
func (r *Reachability) recordProbe(known *peerReachability, answer reachAnswer, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known.asking = false
	if err != nil && !errors.Is(err, errNotUnderstood) {
		timeout, ok := errors.AsType[net.Error](err)
		known.refused = !ok || !timeout.Timeout()
		known.failures++
		return
	}
	known.failures, known.reached = 0, time.Now()
	if err != nil {
		return
	}
	known.answered, known.unreached = known.reached, answer.Unreached
	if !slices.Contains(answer.Unreached, r.self) {
		known.objectsSince = time.Time{}
	} else if known.objectsSince.IsZero() {
		known.objectsSince = known.answered
	}
}

// answerProbe answers the probe of a server.
func (r *Reachability) answerProbe(from string) (a reachAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peer(from).called = time.Now()
	for server, known := range r.byServer {
		if known.isUnreached() {
			a.Unreached = append(a.Unreached, server)
		}
	}
	slices.Sort(a.Unreached)
	return a
}

// isUnreached reports whether this node does not reach it.
func (p *peerReachability) isUnreached() bool {
	return p.failures >= unreachedProbes && time.Since(p.reached) >= unreachedAfter
}

// isSuspect reports whether calls to it should go through a relay. One late answer does not count:
// the node may only be slow.
func (p *peerReachability) isSuspect() bool {
	return p != nil && (p.failures > 1 || p.failures > 0 && p.refused) && time.Since(p.reached) >= relayAfter
}

// isFresh reports whether its last answer still counts.
func (p *peerReachability) isFresh() bool { return time.Since(p.answered) < answerFor }

// LostPeer is a node that this one does not reach.
type LostPeer struct {
	Server string
	Away   time.Duration // how long it has not been reached
	Calls  bool          // it calls this node, so it runs
}

// Unreached returns the nodes that this one does not reach, by server id.
func (r *Reachability) Unreached() (all []LostPeer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for server, known := range r.byServer {
		if known.isUnreached() {
			all = append(all, LostPeer{
				Server: server, Away: time.Since(known.reached), Calls: time.Since(known.called) < answerFor,
			})
		}
	}
	slices.SortFunc(all, func(a, b LostPeer) int { return strings.Compare(a.Server, b.Server) })
	return all
}

// isUnreached reports whether this node does not reach a server.
func (r *Reachability) isUnreached(server string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.byServer[server]
	return known != nil && known.isUnreached()
}

// isSuspect reports whether calls to a server should go through a relay.
func (r *Reachability) isSuspect(server string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byServer[server].isSuspect()
}

// relayFor returns the server that relays calls to another one; empty if calls go straight. It
// fails if calls get there neither way: a call that was not sent may go to another leader.
func (r *Reachability) relayFor(server string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.byServer[server]
	if !known.isSuspect() {
		return "", nil
	}
	via := ""
	for other, k := range r.byServer {
		reaches := k.failures == 0 && k.isFresh() && !slices.Contains(k.unreached, server)
		if other != server && reaches && (via == "" || other < via) {
			via = other
		}
	}
	if via == "" && known.isUnreached() {
		away, end := time.Since(known.reached), errAgain
		if away >= refusedAfter {
			end = errCutOff
		}
		return "", fmt.Errorf("%w: %w: this node has not reached %s for %v, nor does another node that it reaches",
			node.ErrNoLeader, end, server, away.Truncate(time.Second))
	}
	return via, nil
}

// Objectors returns the servers whose last two answers or more, lately, say that they do not reach
// this node. A single answer may be out of date.
func (r *Reachability) Objectors() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for server, known := range r.byServer {
		if known.isFresh() && !known.objectsSince.IsZero() && known.answered.Sub(known.objectsSince) >= ProbeInterval {
			all = append(all, server)
		}
	}
	slices.Sort(all)
	return all
}
