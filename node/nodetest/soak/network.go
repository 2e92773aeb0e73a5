package soak

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node/nodetest/pipetest"
)

// errCut is what a dial over a cut link gives.
var errCut = errors.New("soak: the link is cut")

// way is one direction between two nodes, by name.
type way struct{ from, to string }

// network connects the lives of nodes through pipes in memory.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	refused   map[way]int // connections end at once, and none is made
	lossy     map[way]int // what is sent disappears
	delay     map[way]time.Duration
	links     map[*link]struct{}
	changed   chan struct{} // closed at each change of refused and lossy
}

func newNetwork() *network {
	return &network{
		listeners: map[string]*listener{}, refused: map[way]int{}, lossy: map[way]int{}, delay: map[way]time.Duration{},
		links: map[*link]struct{}{}, changed: make(chan struct{}),
	}
}

// link is one end of a connection.
type link struct {
	net.Conn
	network  *network
	from, to *life

	mu   sync.Mutex
	lost bool // something sent disappeared, so nothing that follows can be understood
	once sync.Once
	done chan struct{} // closed with the link
}

// Close closes this end, and forgets it.
func (l *link) Close() error {
	l.once.Do(func() { close(l.done) })
	l.network.mu.Lock()
	delete(l.network.links, l)
	l.network.mu.Unlock()
	return l.Conn.Close()
}

// Read waits while the node is paused.
func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.from.gate.pass(l.done)
	return n, err
}

// Write sends, unless the network loses it.
func (l *link) Write(p []byte) (int, error) {
	l.from.gate.pass(l.done)
	l.network.mu.Lock()
	lossy, delay := l.network.lossy[way{l.from.name, l.to.name}] > 0, l.network.delay[way{l.from.name, l.to.name}]
	l.network.mu.Unlock()
	l.mu.Lock()
	l.lost = l.lost || lossy
	lossy = l.lost
	l.mu.Unlock()
	if lossy {
		return len(p), nil
	}
	if delay > 0 {
		t := time.NewTimer(delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-l.done:
			return 0, net.ErrClosed
		}
	}
	return l.Conn.Write(p)
}

// alter changes the faults of ways by n: 1 to begin, -1 to end.
func (w *network) alter(faults map[way]int, ways []way, n int) {
	w.mu.Lock()
	for _, at := range ways {
		faults[at] += n
	}
	close(w.changed)
	w.changed = make(chan struct{})
	var broken []*link
	for l := range w.links {
		at := way{l.from.name, l.to.name}
		l.mu.Lock()
		if w.refused[at] > 0 || l.lost && w.lossy[at] == 0 {
			broken = append(broken, l)
		}
		l.mu.Unlock()
	}
	w.mu.Unlock()
	for _, l := range broken {
		_ = l.Close() // a pipe's never fails; the other end reads io.EOF
	}
}

// setDelay sets how long what is sent takes.
func (w *network) setDelay(ways []way, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range ways {
		w.delay[at] = d
	}
}

// sever ends all connections of a life. It makes none afterwards, since dial and Accept look
// whether it is over.
func (w *network) sever(gone *life) {
	w.mu.Lock()
	var broken []*link
	for l := range w.links {
		if l.from == gone || l.to == gone {
			broken = append(broken, l)
		}
	}
	if w.listeners[gone.name] == gone.listener {
		delete(w.listeners, gone.name)
	}
	w.mu.Unlock()
	for _, l := range broken {
		_ = l.Close()
	}
}

// listen returns the listener of a life that begins.
func (w *network) listen(l *life) *listener {
	w.mu.Lock()
	defer w.mu.Unlock()
	in := &listener{pipetest.Listen(l.name), l}
	w.listeners[l.name] = in
	return in
}

// dialer returns the Dial of a life.
func (w *network) dialer(from *life) func(ctx context.Context, to string) (net.Conn, error) {
	return func(ctx context.Context, to string) (net.Conn, error) {
		for {
			conn, changed, err := w.dial(ctx, from, to)
			if changed == nil {
				return conn, err
			}
			select { // a lost packet gets no answer
			case <-changed:
			case <-ctx.Done():
				return nil, errCut
			case <-from.over:
				return nil, errCut
			}
		}
	}
}

// dial connects, or returns a channel to wait for if packets are lost on the way.
func (w *network) dial(ctx context.Context, from *life, to string) (net.Conn, <-chan struct{}, error) {
	there, back := way{from.name, to}, way{to, from.name}
	w.mu.Lock()
	in := w.listeners[to]
	if w.lossy[there] > 0 || w.lossy[back] > 0 {
		defer w.mu.Unlock()
		return nil, w.changed, nil
	}
	if in == nil || w.refused[there] > 0 || w.refused[back] > 0 || from.isOver() {
		w.mu.Unlock()
		return nil, nil, errCut
	}
	a, b := net.Pipe()
	near := &link{Conn: a, network: w, from: from, to: in.owner, done: make(chan struct{})}
	far := &link{Conn: b, network: w, from: in.owner, to: from, done: make(chan struct{})}
	w.links[near], w.links[far] = struct{}{}, struct{}{}
	w.mu.Unlock()
	select {
	case in.Conns() <- far:
		return near, nil, nil
	case <-in.Done():
	case <-ctx.Done():
	case <-from.over:
	}
	return nil, nil, errors.Join(errCut, near.Close(), far.Close())
}

// nameOf returns the name in a server id: the address of its node in this network.
func nameOf(serverID string) (string, error) {
	name, _, ok := strings.Cut(serverID, ".")
	if !ok {
		return "", errors.New("soak: " + serverID + " is no server id")
	}
	return name, nil
}

// addressesOf returns the only address of a node.
func addressesOf(serverID string) ([]string, error) {
	name, err := nameOf(serverID)
	return []string{name}, err
}

// listener is where a life takes connections.
type listener struct {
	*pipetest.Listener
	owner *life
}

// between returns the ways from each of some nodes to each of others.
func between(some, others []string) (ways []way) {
	for _, a := range some {
		for _, b := range others {
			if a != b {
				ways = append(ways, way{a, b})
			}
		}
	}
	return ways
}

// around returns the ways between a node and all others, in both directions.
func around(name string, all []string) []way {
	return slices.Concat(between([]string{name}, all), between(all, []string{name}))
}

// gate holds those who pass while it is closed.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // nil while the gate is open, closed when it opens
}

// shut closes the gate, and returns the function that opens it.
func (g *gate) shut() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		return func() {}
	}
	ch := make(chan struct{})
	g.open = ch
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.open = nil
		close(ch)
	}
}

// pass waits until the gate is open or done is closed.
func (g *gate) pass(done <-chan struct{}) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open == nil {
		return
	}
	select {
	case <-open:
	case <-done:
	}
}
