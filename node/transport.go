package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// handshakeTimeout bounds a whole handshake, so that a silent stranger costs a connection for a moment only.
	handshakeTimeout = 5 * time.Second
	// handshakesMax bounds the handshakes under way; what connects beyond is closed at once.
	handshakesMax = 128
	// rpcTimeout is the I/O deadline of one Raft message; for a snapshot it grows with the size.
	rpcTimeout = 10 * time.Second
	// connsPooled is the number of idle connections kept to each peer of a group.
	connsPooled = 3
)

// Pre-vote keeps a node that was cut off from unseating a healthy leader. The library silently does without it if the
// transport does not offer it, so that is checked when this package is compiled.
var _ raft.WithPreVote = (*raft.NetworkTransport)(nil)

// mux shares one listener among all groups of a node. A handshake on each connection names the protocol version, cluster,
// group, sender and intended receiver, and is checked on both sides, because Raft itself takes any stranger's entries.
type mux struct {
	cluster, self string
	listener      net.Listener // nil if the node listens for no peers
	dial          func(ctx context.Context, addr string) (net.Conn, error)
	resolve       func(serverID string) (string, error)
	logger        *slog.Logger

	done    chan struct{}
	running sync.WaitGroup
	slots   chan struct{} // one for each handshake under way

	mu      sync.Mutex
	streams map[string]*stream      // by group
	conns   map[*trackedConn]string // to the group that each is for
	closed  bool
}

// newMux returns a mux for the server self and starts to accept.
func newMux(cfg Config, id *identity) *mux {
	m := &mux{
		cluster: id.ClusterID, self: id.serverID(), listener: cfg.Peers, dial: cfg.Dial, resolve: cfg.Resolve,
		logger: cfg.Logger, done: make(chan struct{}), slots: make(chan struct{}, handshakesMax),
		streams: map[string]*stream{}, conns: map[*trackedConn]string{},
	}
	if m.listener != nil {
		m.running.Go(m.accept)
	}
	return m
}

// transport returns a new Raft transport for a group. It is closed by the Raft instance that uses it.
func (m *mux) transport(group string) *raft.NetworkTransport {
	s := &stream{mux: m, group: group, accepted: make(chan net.Conn), done: make(chan struct{})}
	m.mu.Lock()
	m.streams[group] = s
	m.mu.Unlock()
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: s, MaxPool: connsPooled, Timeout: rpcTimeout, Logger: newRaftLogger(m.logger),
		MaxRPCsInFlight: 1, // a pipeline wedges after a follower's disk stalled, until the leader changes
	})
}

// close ends all connections and waits for the goroutines of the mux.
func (m *mux) close() {
	m.mu.Lock()
	m.closed = true
	for conn := range m.conns {
		_ = conn.Conn.Close() // ends its reader; there is nothing to lose
	}
	m.mu.Unlock()
	close(m.done)
	if m.listener != nil {
		_ = m.listener.Close()
	}
	m.running.Wait()
}

func (m *mux) accept() {
	for {
		conn, err := m.listener.Accept()
		if err != nil {
			select {
			case <-m.done:
				return
			case <-time.After(100 * time.Millisecond): // out of file descriptors, most likely
				m.logger.Warn("accepting a peer's connection failed", "error", err)
				continue
			}
		}
		select {
		case m.slots <- struct{}{}:
			m.running.Go(func() {
				defer func() { <-m.slots }()
				m.welcome(conn)
			})
		default:
			_ = conn.Close()
		}
	}
}

// welcome does the handshake on an accepted connection and hands it to its group.
func (m *mux) welcome(raw net.Conn) {
	conn, ok := m.track(raw, "")
	if !ok {
		return
	}
	s, err := m.answer(conn)
	if err == nil {
		select {
		case s.accepted <- conn:
			return
		case <-s.done:
			err = errors.New("the group is stopping")
		case <-m.done:
			err = errors.New("the node is stopping")
		}
	}
	_ = conn.Close()
	m.logger.Warn("a peer's connection was refused", "from", conn.RemoteAddr().String(), "error", err)
}

// answer reads a greeting, answers it, and returns the stream of the group that it names.
func (m *mux) answer(conn *trackedConn) (*stream, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, fmt.Errorf("setting a deadline: %w", err)
	}
	hello, err := readGreeting(conn)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	s := m.streams[hello.group]
	m.mu.Unlock()
	verdict := accepted
	switch {
	case hello.version != protocolVersion:
		verdict = refusedVersion
	case hello.cluster != m.cluster:
		verdict = refusedCluster
	case hello.receiver != m.self:
		verdict = refusedReceiver
	case hello.sender == m.self || hello.sender == "":
		verdict = refusedSender
	case s == nil:
		verdict = refusedGroup
	}
	reply := greeting{
		version: protocolVersion, verdict: verdict,
		cluster: m.cluster, group: hello.group, sender: m.self, receiver: hello.sender,
	}
	if err := writeGreeting(conn, reply); err != nil {
		return nil, err
	}
	if verdict != accepted {
		return nil, fmt.Errorf("%s: %s", verdict, hello)
	}
	m.assign(conn, hello.group)
	return s, conn.SetDeadline(time.Time{})
}

// connect dials a server for a group and does the handshake.
func (m *mux) connect(group, server string, timeout time.Duration) (net.Conn, error) {
	addr, err := m.resolve(server)
	if err != nil {
		return nil, fmt.Errorf("resolving server %q: %w", server, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	raw, err := m.dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("dialling server %q: %w", server, err)
	}
	conn, ok := m.track(raw, group)
	if !ok {
		return nil, ErrShuttingDown
	}
	if err := m.greet(conn, group, server); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("greeting server %q at %s: %w", server, addr, err)
	}
	return conn, nil
}

// greet sends a greeting on a dialled connection and checks the answer.
func (m *mux) greet(conn net.Conn, group, server string) error {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
	hello := greeting{version: protocolVersion, cluster: m.cluster, group: group, sender: m.self, receiver: server}
	if err := writeGreeting(conn, hello); err != nil {
		return err
	}
	reply, err := readGreeting(conn)
	if err != nil {
		return err
	}
	want := greeting{version: protocolVersion, cluster: m.cluster, group: group, sender: server, receiver: m.self}
	if reply.verdict != accepted {
		return fmt.Errorf("%s: by %s", reply.verdict, reply)
	}
	if reply != want {
		return fmt.Errorf("the answer is %s, not %s", reply, want)
	}
	return conn.SetDeadline(time.Time{})
}

// track makes sure that conn is closed with the mux. It reports false, and closes conn, if the mux is closed already.
func (m *mux) track(conn net.Conn, group string) (*trackedConn, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		_ = conn.Close()
		return nil, false
	}
	tracked := &trackedConn{Conn: conn, mux: m}
	m.conns[tracked] = group
	return tracked, true
}

// assign notes the group of a connection.
func (m *mux) assign(conn *trackedConn, group string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, open := m.conns[conn]; open {
		m.conns[conn] = group
	}
}

// drop forgets a stream and closes its group's connections. Raft's transport leaves those that it accepted to their peers.
func (m *mux) drop(s *stream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.streams[s.group] == s {
		delete(m.streams, s.group)
	}
	for conn, group := range m.conns {
		if group == s.group {
			delete(m.conns, conn)
			_ = conn.Conn.Close()
		}
	}
}

// trackedConn is a connection that its mux closes if nobody else does.
type trackedConn struct {
	net.Conn
	mux *mux
}

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.mux.mu.Lock()
	delete(c.mux.conns, c)
	c.mux.mu.Unlock()
	return c.Conn.Close()
}

// stream is the raft.StreamLayer of one group. Its addresses are server ids.
type stream struct {
	mux      *mux
	group    string
	accepted chan net.Conn
	done     chan struct{}
	once     sync.Once
}

// Accept waits for the next connection for the group.
func (s *stream) Accept() (net.Conn, error) {
	select {
	case conn := <-s.accepted:
		return conn, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and the group's connections.
func (s *stream) Close() error {
	s.once.Do(func() {
		close(s.done)
		s.mux.drop(s)
	})
	return nil
}

// Addr returns the server id of this node.
func (s *stream) Addr() net.Addr { return serverAddr(s.mux.self) }

// Dial connects to the server with the given id.
func (s *stream) Dial(server raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return s.mux.connect(s.group, string(server), timeout)
}

// serverAddr is a server id as an address.
type serverAddr string

// Network returns "belfry".
func (serverAddr) Network() string { return "belfry" }

// String returns the server id.
func (a serverAddr) String() string { return string(a) }
