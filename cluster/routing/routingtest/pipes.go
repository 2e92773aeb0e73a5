// Package routingtest connects nodes in memory, for tests. Connections can be cut, muted and
// broken.
package routingtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node/nodetest/pipetest"
)

// Network connects links in memory.
type Network struct {
	mu    sync.Mutex
	links map[string]*Link
	down  map[string]bool
	muted map[string]bool
	// dropped are the pairs of a link and another one to which it cannot connect: nothing comes
	// through the connections that it made there.
	dropped map[[2]string]bool
	// breaks reports whether a connection breaks at what is written to a link; nil if none does.
	breaks func(to string, data []byte) bool
}

// NewNetwork returns a network without nodes.
func NewNetwork() *Network {
	return &Network{
		links: map[string]*Link{}, down: map[string]bool{}, muted: map[string]bool{}, dropped: map[[2]string]bool{},
	}
}

// Link is one node's Link.
type Link struct {
	*pipetest.Listener
	net   *Network
	id    string
	mu    sync.Mutex
	conns []net.Conn
}

// pipeConn knows which node is at the other end.
type pipeConn struct {
	net.Conn
	peer string
}

// Peer returns the server id of the other end.
func (c pipeConn) Peer() string { return c.peer }

// pipeEnd is one end of a connection between two links, through which nothing comes while one of
// them is muted.
type pipeEnd struct {
	net.Conn
	net      *Network
	from, to string
	dialled  [2]string // by whom, and whom
}

func (c pipeEnd) Write(b []byte) (int, error) {
	c.net.mu.Lock()
	muted := c.net.muted[c.from] || c.net.muted[c.to] || c.net.dropped[c.dialled]
	breaks := c.net.breaks != nil && c.net.breaks(c.to, b)
	c.net.mu.Unlock()
	if breaks {
		return 0, errors.Join(io.ErrClosedPipe, c.Close())
	}
	if muted {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// BreakAt has connections break at what is written to a link and contains some text, until it is
// called without a link.
func (p *Network) BreakAt(link, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.breaks = func(to string, data []byte) bool { return to == link && bytes.Contains(data, []byte(text)) }
}

// Mute stops all traffic of a link on connections that stay open: to the others it is a frozen
// process.
func (p *Network) Mute(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted[id] = true
}

// Drop makes what some links send to another one vanish, and what it answers, as a firewall does.
// Its own connections go on.
func (p *Network) Drop(to string, from ...string) { p.drop(to, true, from) }

// Pass ends Drop.
func (p *Network) Pass(to string, from ...string) { p.drop(to, false, from) }

func (p *Network) drop(to string, drops bool, from []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range from {
		p.dropped[[2]string{id, to}] = drops
	}
}

// Link returns the link of a node, which it adds to the network.
func (p *Network) Link(id string) *Link {
	l := &Link{Listener: pipetest.Listen(id), net: p, id: id}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[id] = l
	return l
}

// PeerListener implements routing.Link.
func (l *Link) PeerListener() net.Listener { return l }

// DialPeer implements routing.Link.
func (l *Link) DialPeer(ctx context.Context, serverID string) (net.Conn, error) {
	l.net.mu.Lock()
	dialled := [2]string{l.id, serverID}
	dropped := l.net.dropped[dialled]
	to, down := l.net.links[serverID], l.net.down[serverID] || l.net.down[l.id]
	l.net.mu.Unlock()
	if to == nil || down {
		return nil, fmt.Errorf("nobody is at %q", serverID)
	}
	if dropped {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	one, other := net.Pipe()
	here, there := pipeEnd{one, l.net, l.id, serverID, dialled}, pipeEnd{other, l.net, serverID, l.id, dialled}
	to.mu.Lock()
	to.conns = append(to.conns, pipeConn{there, l.id})
	to.mu.Unlock()
	select {
	case to.Conns() <- pipeConn{there, l.id}:
		return here, nil
	case <-to.Done():
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Isolate cuts a link off from all others. All connections end; the permitted ones are made anew.
func (p *Network) Isolate(id string) { p.isolate(id, true) }

// Reconnect ends Isolate. All connections end and are made anew.
func (p *Network) Reconnect(id string) { p.isolate(id, false) }

func (p *Network) isolate(id string, cut bool) {
	p.mu.Lock()
	p.down[id] = cut
	links := slices.Collect(maps.Values(p.links))
	p.mu.Unlock()
	for _, l := range links {
		l.Cut()
	}
}

// Cut ends all connections to the link.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// Served returns the link of a server.
func (p *Network) Served(id string) *Link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.links[id]
}

// Open returns how many connections to the link are open, of those that were made.
func (l *Link) Open() (open, made int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		if conn.SetWriteDeadline(time.Time{}) == nil { // it fails on one that either side has closed
			open++
		}
	}
	return open, len(l.conns)
}
