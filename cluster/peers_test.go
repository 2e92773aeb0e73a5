package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/nodetest/pipetest"
)

// pipes connects links in memory.
type pipes struct {
	mu    sync.Mutex
	links map[string]*pipeLink
	down  map[string]bool
	muted map[string]bool
	// dropped are the pairs of a link and another one to which it cannot connect: nothing comes through the connections that it made there.
	dropped map[[2]string]bool
	// breaks reports whether a connection breaks at what is written to a link; nil if none does.
	breaks func(to string, data []byte) bool
}

func newPipes() *pipes {
	return &pipes{links: map[string]*pipeLink{}, down: map[string]bool{}, muted: map[string]bool{}, dropped: map[[2]string]bool{}}
}

// pipeLink is one node's Link.
type pipeLink struct {
	*pipetest.Listener
	net   *pipes
	id    string
	mu    sync.Mutex
	conns []net.Conn
}

// pipeConn knows which node is at the other end.
type pipeConn struct {
	net.Conn
	peer string
}

func (c pipeConn) Peer() string { return c.peer }

// pipeEnd is one end of a connection between two links, through which nothing comes while one of them is muted.
type pipeEnd struct {
	net.Conn
	net      *pipes
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

// breakAt has connections break at what is written to a link and contains some text, until it is called without a link.
func (p *pipes) breakAt(link, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.breaks = func(to string, data []byte) bool { return to == link && bytes.Contains(data, []byte(text)) }
}

// mute stops all traffic of a link on connections that stay open: to the others it is a frozen
// process.
func (p *pipes) mute(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted[id] = true
}

// drop has what some links send to another one vanish, and what it answers, as a firewall does; its own connections go on. Or no longer.
func (p *pipes) drop(to string, drops bool, from ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range from {
		p.dropped[[2]string{id, to}] = drops
	}
}

func (p *pipes) link(id string) *pipeLink {
	l := &pipeLink{Listener: pipetest.Listen(id), net: p, id: id}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[id] = l
	return l
}

func (l *pipeLink) PeerListener() net.Listener { return l }

func (l *pipeLink) DialPeer(ctx context.Context, serverID string) (net.Conn, error) {
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

// isolate cuts a link off from all others, or no longer. All connections end; those that may be are made anew.
func (p *pipes) isolate(id string, cut bool) {
	p.mu.Lock()
	p.down[id] = cut
	links := slices.Collect(maps.Values(p.links))
	p.mu.Unlock()
	for _, l := range links {
		l.cut()
	}
}

// cut ends all connections to the link.
func (l *pipeLink) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// startPeers serves peers on a link until the test ends.
func startPeers(t *testing.T, link *pipeLink) *peers {
	t.Helper()
	p := newPeers(link, slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- p.serve(link) }()
	t.Cleanup(func() {
		if err := errors.Join(p.close(t.Context()), <-served); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return p
}

func TestPeerCall(t *testing.T) {
	network := newPipes()
	a, b := startPeers(t, network.link("a.1")), startPeers(t, network.link("b.2"))
	type question struct{ Text string }
	type reply struct{ From, Text string }
	handlePeer(b, "/echo", func(_ context.Context, from string, q question) (reply, error) { return reply{from, q.Text}, nil })
	got, err := callPeer[reply](t.Context(), a, "b.2", "/echo", question{"hello"})
	if err != nil || got != (reply{"a.1", "hello"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := callPeer[reply](t.Context(), a, "b.2", "/nothing", question{}); !errors.Is(err, node.ErrCanceled) {
		t.Errorf("a path that is not there: %v", err)
	}
	if _, err := callPeer[reply](t.Context(), a, "c.3", "/echo", question{}); !errors.Is(err, node.ErrNoLeader) || node.OutcomeOf(err) != node.NotApplied {
		t.Errorf("a node that is not there: %v", err)
	}
}

// TestPeerErrors keeps each error's identity, but for those that are about the node that was asked, and takes the worst outcome of an error that is two.
func TestPeerErrors(t *testing.T) {
	network := newPipes()
	a, b := startPeers(t, network.link("a.1")), startPeers(t, network.link("b.2"))
	var fail error
	handlePeer(b, "/fail", func(context.Context, string, struct{}) (struct{}, error) { return struct{}{}, fail })
	for name, want := range peerErrors() {
		fail = fmt.Errorf("because: %w", want)
		_, err := callPeer[struct{}](t.Context(), a, "b.2", "/fail", struct{}{})
		again := name == nameStopping || name == nameBehind || name == nameNotRelayed
		if again {
			if errors.Is(err, want) {
				t.Errorf("%s is said to be of the node that asked: %v", name, err)
			}
			want = node.ErrNoLeader
		}
		if !errors.Is(err, want) || errors.Is(err, node.ErrUnknownOutcome) != (name == "unknown_outcome") || errors.Is(err, errAgain) != again {
			t.Errorf("%s came as %v", name, err)
		}
	}
	for _, fail = range []error{errors.New("no idea"), fmt.Errorf("%w: %w", node.ErrUnknownOutcome, node.ErrShuttingDown)} {
		if _, err := callPeer[struct{}](t.Context(), a, "b.2", "/fail", struct{}{}); !errors.Is(err, node.ErrUnknownOutcome) || node.OutcomeOf(err) != node.Unknown {
			t.Errorf("%v came as %v", fail, err)
		}
	}
}

// TestPeerBreaks: a connection that breaks under a call leaves its outcome unknown, and the handler learns of it.
func TestPeerBreaks(t *testing.T) {
	network := newPipes()
	link := network.link("b.2")
	a, b := startPeers(t, network.link("a.1")), startPeers(t, link)
	ended := make(chan struct{})
	handlePeer(b, "/wait", func(ctx context.Context, _ string, _ struct{}) (struct{}, error) {
		link.cut()
		<-ctx.Done()
		close(ended)
		return struct{}{}, ctx.Err()
	})
	if _, err := callPeer[struct{}](t.Context(), a, "b.2", "/wait", struct{}{}); !errors.Is(err, node.ErrUnknownOutcome) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
	<-ended
}

// TestPeerErrorsForAnOlderNode: an error that came later has a name that the program before it knows, with the same outcome, since a name that it does not know
// is an unknown outcome to it.
func TestPeerErrorsForAnOlderNode(t *testing.T) {
	for _, c := range []struct {
		err   error
		older string
	}{
		{node.ErrMemoryFull, "disk_full"}, {&node.MemoryError{Used: 90, Limit: 100}, "disk_full"},
		{node.ErrTooFewVoters, "overloaded"}, {&node.VotersError{Have: 1, Want: 2}, "overloaded"},
		{node.ErrDiskFull, "disk_full"}, {node.ErrUnknownOutcome, "unknown_outcome"},
		{fmt.Errorf("%w: %w", node.ErrUnknownOutcome, node.ErrMemoryFull), "unknown_outcome"},
	} {
		sent := namePeerError(fmt.Errorf("shard-1: %w", c.err))
		var told struct{ Name string }
		if err := json.Unmarshal(sent, &told); err != nil || told.Name != c.older {
			t.Errorf("an older node reads %q of %v, want %q", told.Name, c.err, c.older)
		}
		if got := readPeerError(http.StatusConflict, sent); node.OutcomeOf(got) != node.OutcomeOf(c.err) {
			t.Errorf("%v came as %v", c.err, got)
		}
	}
}

// TestUnknownQuotaCrossesNodes: a leader that does not know its quota yet says so, and the caller
// learns it through any node.
func TestUnknownQuotaCrossesNodes(t *testing.T) {
	err := readPeerError(http.StatusConflict, namePeerError(fmt.Errorf("shard-1: %w: namespace %q", node.ErrShareUnknown, "t")))
	if !errors.Is(err, node.ErrShareUnknown) || node.OutcomeOf(err) != node.NotApplied {
		t.Errorf("it arrives as %v", err)
	}
}

// TestTooManyQueuesCrossNodes: the error of a namespace with too many queues reaches the caller
// through any node. A version that does not know the error reads it as one of a quota.
func TestTooManyQueuesCrossNodes(t *testing.T) {
	want := &node.QueuesError{Namespace: "t", Queue: "t/q", Used: 5, Free: 3, Max: 8}
	sent := namePeerError(fmt.Errorf("shard-1: %w", want))
	got, ok := errors.AsType[*node.QueuesError](readPeerError(http.StatusConflict, sent))
	if !ok || *got != *want || node.OutcomeOf(got) != node.NotApplied {
		t.Errorf("it arrives as %+v", got)
	}
	if older := readPeerError(http.StatusConflict, bytes.Replace(sent, []byte(`"queues"`), []byte(`"future"`), 1)); !errors.Is(older, node.ErrQuota) {
		t.Errorf("at an older node it arrives as %v", older)
	}
}

// TestCallsThatAreNotUnderstood are not carried out, and the caller knows.
func TestCallsThatAreNotUnderstood(t *testing.T) {
	for status, want := range map[int]node.Outcome{
		http.StatusBadRequest: node.NotApplied, http.StatusNotFound: node.NotApplied, http.StatusMethodNotAllowed: node.NotApplied,
		http.StatusInternalServerError: node.Unknown, http.StatusBadGateway: node.Unknown,
	} {
		if got := node.OutcomeOf(readPeerError(status, []byte("no"))); got != want {
			t.Errorf("status %d: %v, want %v", status, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		startPeers(t, network.link("b"))
		a := startPeers(t, network.link("a"))
		if _, err := callPeer[placement.Report](t.Context(), a, "b", "/later", struct{}{}); node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("a call that the other node does not know: %v", err)
		}
	})
}
