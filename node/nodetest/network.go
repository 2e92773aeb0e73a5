package nodetest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/belfrydb/belfry/node/nodetest/pipetest"
)

// errCut is what a dial over a cut link gives.
var errCut = errors.New("nodetest: the link is cut")

// network connects nodes by name, through pipes in memory.
type network struct {
	mu        sync.Mutex
	listeners map[string]*pipetest.Listener
	cut       map[string]bool // nodes that reach no other node
	unheard   map[string]bool // nodes that no other node can connect to
	links     map[*link]struct{}
	random    *rand.Rand
	flips     float64 // the probability of a write to have one bit flipped
	flipped   int
	writes    atomic.Int64 // of all nodes
}

// link is one end of a connection.
type link struct {
	net.Conn
	network  *network
	from, to string
}

// Write counts, and may flip a bit on the way.
func (l *link) Write(data []byte) (int, error) {
	l.network.writes.Add(1)
	return l.Conn.Write(l.network.carried(data))
}

// Close closes this end, and forgets it.
func (l *link) Close() error {
	l.network.mu.Lock()
	delete(l.network.links, l)
	l.network.mu.Unlock()
	return l.Conn.Close()
}

func newNetwork() *network {
	return &network{
		listeners: map[string]*pipetest.Listener{}, cut: map[string]bool{}, unheard: map[string]bool{},
		links: map[*link]struct{}{}, random: rand.New(rand.NewPCG(11, 11)),
	}
}

// flip has each write have one bit flipped with a probability, from now on.
func (n *network) flip(probability float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.flips = probability
}

// flippedBits returns how many were flipped.
func (n *network) flippedBits() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.flipped
}

// carried returns what arrives of a write.
func (n *network) carried(data []byte) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.flips == 0 || len(data) == 0 || n.random.Float64() >= n.flips {
		return data
	}
	n.flipped++
	bit := n.random.IntN(8 * len(data))
	data = bytes.Clone(data)
	data[bit/8] ^= 1 << (bit % 8)
	return data
}

// isolate cuts a node off: its connections end, and new ones are refused.
func (n *network) isolate(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[name] = true
	for l := range n.links {
		if l.from == name || l.to == name {
			_ = l.Conn.Close() // a pipe's never fails
			delete(n.links, l)
		}
	}
}

// shield refuses all connections to a node: those that others opened end, and its own go on.
func (n *network) shield(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unheard[name] = true
	for l := range n.links {
		if l.to == name {
			_ = l.Conn.Close() // a pipe's never fails
			delete(n.links, l)
		}
	}
}

// heal ends isolate and shield.
func (n *network) heal(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cut, name)
	delete(n.unheard, name)
}

// joins reports whether two nodes reach each other.
func (n *network) joins(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.cut[from] && !n.cut[to] && !n.unheard[to]
}

// listen returns a listener for a node that starts.
func (n *network) listen(name string) *pipetest.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := pipetest.Listen(name)
	n.listeners[name] = l
	return l
}

// dialer returns the Dial of a node.
func (n *network) dialer(from string) func(ctx context.Context, to string) (net.Conn, error) {
	return func(ctx context.Context, to string) (net.Conn, error) {
		n.mu.Lock()
		l := n.listeners[to]
		refused := l == nil || n.cut[from] || n.cut[to] || n.unheard[to]
		near, far := net.Pipe()
		ends := [2]*link{{near, n, from, to}, {far, n, from, to}}
		if !refused {
			n.links[ends[0]], n.links[ends[1]] = struct{}{}, struct{}{}
		}
		n.mu.Unlock()
		if refused {
			return nil, errCut
		}
		select {
		case l.Conns() <- ends[1]:
			return ends[0], nil
		case <-l.Done():
		case <-ctx.Done():
		}
		return nil, errors.Join(errCut, ends[0].Close(), ends[1].Close())
	}
}

// nameOf returns the name in a server id: the address of its node in this network.
func nameOf(serverID string) (string, error) {
	name, _, ok := strings.Cut(serverID, ".")
	if !ok {
		return "", errors.New("nodetest: " + serverID + " is no server id")
	}
	return name, nil
}

// addressesOf returns the only address of a node.
func addressesOf(serverID string) ([]string, error) {
	name, err := nameOf(serverID)
	return []string{name}, err
}
