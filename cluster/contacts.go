package cluster

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

// pathReach asks a node whom it cannot reach. That it answers shows that it can be reached itself.
const pathReach = "/reach"

const (
	// probeInterval is the time between two questions to a node, probeWait how long one answer may take.
	probeInterval = 500 * time.Millisecond
	probeWait     = time.Second
	// A node counts as unreached when unreachedProbes questions in a row have failed and the last answer is unreachedAfter old. From detourAfter on, calls
	// go by another node, if one question was refused or two failed.
	unreachedProbes = 2
	unreachedAfter  = 2500 * time.Millisecond
	detourAfter     = time.Second
	// answerFor is how long an answer counts.
	answerFor = probeWait + 2*probeInterval
	// refusedAfter is when calls to a node that nobody reaches are refused at once. Until then they wait, unsent, for another leader: a leader that a
	// majority of the voters does not reach gives up before that.
	refusedAfter = unreachedAfter + leaderWait
)

// reachAnswer is the answer to pathReach.
type reachAnswer struct {
	// Unreached are the servers that the node cannot reach.
	Unreached []string `json:"unreached,omitempty"`
	// Memory says that the node's memory is full, and how much it has in use.
	Memory *node.MemoryError `json:"memory,omitempty"`
}

// Unreached is a node that another one cannot connect to.
type Unreached struct {
	ServerID string `json:"serverId"`
	// Address is where it was tried.
	Address string `json:"address,omitempty"`
	// For is how long it has not been reached.
	For time.Duration `json:"forNanos"`
	// Calls: it runs, for it calls the node that does not reach it.
	Calls bool `json:"calls,omitempty"`
}

// contacts is which other nodes this one reaches over the connections that calls use, and what they say of the others.
type contacts struct {
	self string
	ask  func(ctx context.Context, server string) (reachAnswer, error)

	mu       sync.Mutex
	byServer map[string]*contact
}

// contact is what is known of one node.
type contact struct {
	reached  time.Time // when it answered last, or was first asked
	failures int       // questions in a row that it did not answer
	asking   bool
	called   time.Time // when it asked this node last
	// quick: the last question failed before its time was up. The node, or the way to it, refused.
	quick bool
	// answered is when it said last whom it does not reach; zero if it does not understand the question.
	answered  time.Time
	unreached []string
	// objects is since when each answer has said that it does not reach this node; zero if the last one has not.
	objects time.Time
}

func newContacts(self string, ask func(ctx context.Context, server string) (reachAnswer, error)) *contacts {
	return &contacts{self: self, ask: ask, byServer: map[string]*contact{}}
}

// of returns what is known of a server. mu is held.
func (c *contacts) of(server string) *contact {
	known := c.byServer[server]
	if known == nil {
		known = &contact{}
		c.byServer[server] = known
	}
	return known
}

// probe asks those servers that are not being asked, and forgets those that are not among them. It waits for no answer.
func (c *contacts) probe(ctx context.Context, servers []string, running *sync.WaitGroup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for server := range c.byServer {
		if !slices.Contains(servers, server) {
			delete(c.byServer, server)
		}
	}
	for _, server := range servers {
		known := c.of(server)
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
			answer, err := c.ask(asked, server)
			c.heard(known, answer, err)
		})
	}
}

// heard notes how a question ended.
func (c *contacts) heard(known *contact, answer reachAnswer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known.asking = false
	if err != nil && !errors.Is(err, errNotUnderstood) {
		timeout, ok := errors.AsType[net.Error](err)
		known.quick = !ok || !timeout.Timeout()
		known.failures++
		return
	}
	known.failures, known.reached = 0, time.Now()
	if err != nil {
		return
	}
	known.answered, known.unreached = known.reached, answer.Unreached
	if !slices.Contains(answer.Unreached, c.self) {
		known.objects = time.Time{}
	} else if known.objects.IsZero() {
		known.objects = known.answered
	}
}

// answer answers a server that asks.
func (c *contacts) answer(from string) (a reachAnswer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(from).called = time.Now()
	for server, known := range c.byServer {
		if known.isUnreached() {
			a.Unreached = append(a.Unreached, server)
		}
	}
	slices.Sort(a.Unreached)
	return a
}

// isUnreached reports whether this node does not reach it.
func (k *contact) isUnreached() bool {
	return k.failures >= unreachedProbes && time.Since(k.reached) >= unreachedAfter
}

// isDoubtful reports whether calls to it should go another way. One answer that came too late does not count: it may only be slow.
func (k *contact) isDoubtful() bool {
	return k != nil && (k.failures > 1 || k.failures > 0 && k.quick) && time.Since(k.reached) >= detourAfter
}

// isFresh reports whether what it said still counts.
func (k *contact) isFresh() bool { return time.Since(k.answered) < answerFor }

// unreached returns the nodes that this one does not reach, by server id.
func (c *contacts) unreached(address func(server string) string) (all []Unreached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for server, known := range c.byServer {
		if known.isUnreached() {
			all = append(all, Unreached{ServerID: server, Address: address(server), For: time.Since(known.reached), Calls: time.Since(known.called) < answerFor})
		}
	}
	slices.SortFunc(all, func(a, b Unreached) int { return strings.Compare(a.ServerID, b.ServerID) })
	return all
}

// lost reports whether this node does not reach a server.
func (c *contacts) lost(server string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.byServer[server]
	return known != nil && known.isUnreached()
}

// doubts reports whether calls to a server should go another way.
func (c *contacts) doubts(server string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byServer[server].isDoubtful()
}

// detour returns the server by way of which calls to another one go, empty if they go straight there. It fails if they get there neither way: what is
// not sent may go to another leader.
func (c *contacts) detour(server string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.byServer[server]
	if !known.isDoubtful() {
		return "", nil
	}
	via := ""
	for other, k := range c.byServer {
		if other != server && k.failures == 0 && k.isFresh() && !slices.Contains(k.unreached, server) && (via == "" || other < via) {
			via = other
		}
	}
	if via == "" && known.isUnreached() {
		away, end := time.Since(known.reached), errAgain
		if away >= refusedAfter {
			end = errCutOff
		}
		return "", fmt.Errorf("%w: %w: this node has not reached %s for %v, nor does another node that it reaches", node.ErrNoLeader, end, server, away.Truncate(time.Second))
	}
	return via, nil
}

// objectors returns the servers that said lately that they do not reach this node, and said so before: one answer may be out of date.
func (c *contacts) objectors() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for server, known := range c.byServer {
		if known.isFresh() && !known.objects.IsZero() && known.answered.Sub(known.objects) >= probeInterval {
			all = append(all, server)
		}
	}
	slices.Sort(all)
	return all
}
