// Package peer carries Raft's messages and calls between nodes: greetings, frames, limits, and the
// Raft transport of each group, all on one port. See DESIGN.md beside this file.
package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/access/connlimit"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/outcome"
)

const (
	// handshakeTimeout bounds a whole handshake, so that a silent stranger holds a connection only
	// briefly.
	handshakeTimeout = 5 * time.Second
	// handshakesMax bounds the handshakes under way. A further connection closes one that is in its
	// handshake and takes its slot.
	handshakesMax = 128
	// rpcTimeout is the I/O deadline of one Raft message; for a snapshot it grows with the size.
	rpcTimeout = 10 * time.Second
	// connsPooled is the number of idle connections kept to each peer of a group.
	connsPooled = 3
	// connsPeerMax bounds the connections that a stream takes from one peer: those of its pool, and
	// one for each of its goroutines that found the pool empty. A further one closes the connection
	// that was silent for longest, because the peer has lost that one.
	connsPeerMax = 8
	// connsStreamMax bounds the connections that a stream takes from all peers together, whatever
	// names they claim.
	connsStreamMax = 256
)

// Mux shares one listener among all groups of a node and the calls between nodes. A handshake on
// each connection names the protocol version, cluster, group, sender and receiver. Both sides check
// them, because Raft itself would take entries from any stranger.
type Mux struct {
	cfg      Config
	refusals refusals      // remembers those that were logged
	changed  atomic.Uint64 // connections that were closed because their data was changed in transit
	format   atomic.Uint32 // the format in which the node writes; strangers are told

	done       chan struct{}
	running    sync.WaitGroup
	handshakes *connlimit.Limiter // limits the handshakes under way

	mu      sync.Mutex
	streams map[string]*stream // by group
	conns   map[*trackedConn]struct{}
	closed  bool
}

// Config configures a Mux. It is read once, by New. All fields are required, except where it says
// otherwise.
type Config struct {
	// ClusterID is the id of the cluster, Self the server id of this node.
	ClusterID, Self string
	// Shards is the number of shards of the cluster, Founding how several nodes founded it, nil if
	// they did not. Strangers are told both.
	Shards   int
	Founding *founding.Plan
	// Room returns how many bytes the disk has for the snapshots of peers. Full reports whether it has
	// no room for entries. Both are called from any goroutine.
	Room func() uint64
	Full func() bool
	// Listener accepts the connections of peers; New takes it over. It is nil if the node listens for
	// no peers.
	Listener net.Listener
	// Dial connects to an address that Resolve returned; nil stands for TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Resolve returns the addresses of a server, at least one, the likeliest first.
	Resolve func(serverID string) ([]string, error)
	// Logger receives refusals. RaftLogger receives what the Raft library says of its transports.
	Logger     *slog.Logger
	RaftLogger hclog.Logger
}

// New returns a mux and starts to accept. The caller must close it.
func New(cfg Config) *Mux {
	if cfg.Dial == nil {
		cfg.Dial = dialTCP
	}
	m := &Mux{
		cfg: cfg, done: make(chan struct{}), handshakes: connlimit.New(handshakesMax),
		streams: map[string]*stream{}, conns: map[*trackedConn]struct{}{},
	}
	if m.cfg.Listener != nil {
		m.running.Go(m.accept)
	}
	return m
}

// SetFormat sets the format in which the node writes its log, which strangers are told.
func (m *Mux) SetFormat(format fsm.Format) { m.format.Store(uint32(format)) }

// ChangedConns counts the connections that were closed because bytes had been changed in transit.
func (m *Mux) ChangedConns() uint64 { return m.changed.Load() }

// Transport returns a new Raft transport for a group. It is closed by the Raft instance that uses
// it.
func (m *Mux) Transport(group string) *Transport {
	s := m.open(group)
	inner := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: s, MaxPool: connsPooled, Timeout: rpcTimeout, Logger: m.cfg.RaftLogger,
		MaxRPCsInFlight: 1, // a pipeline wedges after a follower's disk stalled, until the leader changes
	})
	return newTransport(inner, s)
}

// open returns a new stream for the connections that name a group.
func (m *Mux) open(group string) *stream {
	s := &stream{mux: m, group: group, accepted: make(chan *framedConn), done: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.streams[group] = s
	return s
}

// Close ends all connections and waits for the goroutines of the mux.
func (m *Mux) Close() {
	m.mu.Lock()
	m.closed = true
	for conn := range m.conns {
		_ = conn.Conn.Close() // ends its reader; there is nothing to lose
	}
	m.mu.Unlock()
	close(m.done)
	if m.cfg.Listener != nil {
		_ = m.cfg.Listener.Close()
	}
	m.running.Wait()
}

func (m *Mux) accept() {
	for {
		conn, err := m.cfg.Listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return // no connection will come any more
			}
			select {
			case <-m.done:
				return
			case <-time.After(100 * time.Millisecond): // out of file descriptors, most likely
				m.cfg.Logger.Warn("accepting a peer's connection failed", "error", err)
				continue
			}
		}
		slot, _ := m.handshakes.Acquire(conn)
		if slot == nil {
			_ = conn.Close()
			continue
		}
		m.running.Go(func() {
			defer slot.Release()
			m.welcome(conn, slot)
		})
	}
}

// welcome does the handshake on an accepted connection and hands it to its group.
func (m *Mux) welcome(raw net.Conn, slot *connlimit.Slot) {
	conn, ok := m.track(raw)
	if !ok {
		return
	}
	s, err := m.answer(conn)
	if err == nil && s == nil {
		_ = conn.Close() // it was a Hello, which needs no connection
		return
	}
	if err == nil && !slot.Pin() {
		err = passing{errors.New("another connection took its slot")}
	}
	if err == nil {
		timeout := time.NewTimer(handshakeTimeout)
		defer timeout.Stop()
		select {
		case s.accepted <- newFramedConn(conn):
			return
		case <-s.done:
			err = passing{errors.New("the group is stopping")}
		case <-m.done:
			err = passing{errors.New("the node is stopping")}
		case <-timeout.C:
			err = fmt.Errorf("nobody took the connection for %v", handshakeTimeout)
		}
	}
	_ = conn.Close()
	if changed(err) {
		m.changed.Add(1)
	}
	if m.refusals.fresh(conn.RemoteAddr(), err) {
		m.cfg.Logger.Log(context.Background(), refusalLevel(err), "a peer's connection was refused", "from",
			conn.RemoteAddr().String(), "error", err)
	}
}

// answer reads a greeting, answers it, and returns the stream of the group that it names; none for
// a Hello.
func (m *Mux) answer(conn *trackedConn) (*stream, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, fmt.Errorf("setting a deadline: %w", err)
	}
	hello, err := readGreeting(conn)
	if err != nil {
		return nil, err
	}
	if hello.isStranger() {
		return nil, m.introduce(conn)
	}
	m.mu.Lock()
	s := m.streams[hello.group]
	m.mu.Unlock()
	verdict := m.judge(hello, s)
	if verdict == accepted && disproved(conn.Conn, hello.sender) != nil {
		verdict = refusedProof
	}
	if verdict == accepted && !m.assign(conn, hello) {
		verdict = refusedCrowd
	}
	reply := greeting{
		version: protocolVersion, verdict: verdict,
		cluster: m.cfg.ClusterID, group: hello.group, sender: m.cfg.Self, receiver: hello.sender,
	}
	if err := writeGreeting(conn, reply); err != nil {
		return nil, err
	}
	if verdict != accepted {
		return nil, &refusedError{verdict: verdict, hello: hello, self: m.cfg.Self}
	}
	return s, conn.SetDeadline(time.Time{})
}

// judge returns the answer to a greeting. s is the stream of its group, nil if there is none.
func (m *Mux) judge(hello greeting, s *stream) verdict {
	switch {
	case hello.version != protocolVersion:
		return refusedVersion
	case hello.cluster != m.cfg.ClusterID:
		return refusedCluster
	case hello.receiver != m.cfg.Self:
		return refusedReceiver
	case hello.sender == m.cfg.Self || hello.sender == "":
		return refusedSender
	case s == nil:
		return refusedGroup
	default:
		return accepted
	}
}

// connect connects to a server for a group. It tries the addresses of the server in order, until
// one answers. After it returns, ctx has no effect on the connection.
func (m *Mux) connect(ctx context.Context, group, server string) (*framedConn, error) {
	addrs, err := m.cfg.Resolve(server)
	if err != nil {
		return nil, &unreachedError{cause: fmt.Errorf("resolving server %q: %w", server, err)}
	}
	var failed *unreachedError
	for _, addr := range addrs {
		conn, err := m.connectAt(ctx, group, server, addr)
		next, ok := errors.AsType[*unreachedError](err)
		if !ok {
			return conn, err
		}
		if failed != nil {
			next = &unreachedError{cause: fmt.Errorf("%w; %w", failed.cause, next.cause), answered: failed.answered ||
				next.answered}
		}
		failed = next
	}
	return nil, failed
}

// connectAt dials a server at an address and does the handshake.
func (m *Mux) connectAt(ctx context.Context, group, server, addr string) (*framedConn, error) {
	dialling, dialled := context.WithTimeout(ctx, dialTimeout)
	raw, err := m.cfg.Dial(dialling, addr)
	dialled()
	if err != nil {
		return nil, &unreachedError{cause: fmt.Errorf("dialling server %q: %w", server, err)}
	}
	conn, ok := m.track(raw)
	if !ok {
		return nil, outcome.ErrShuttingDown
	}
	m.label(conn, group, server, addr)
	if err = disproved(raw, server); err == nil {
		err = during(ctx, conn, func() error { return m.greet(conn, group, server) })
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = conn.Close()
		return nil, &unreachedError{cause: fmt.Errorf("greeting server %q at %s: %w", server, addr, err), answered: true}
	}
	return newFramedConn(conn), nil
}

// during runs a handshake, which ends with ctx or after handshakeTimeout. The deadline of the
// handshake stays on the connection.
func during(ctx context.Context, conn net.Conn, handshake func() error) error {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(0, 0)) }) // in the past
	err := handshake()
	if !stop() {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}

// greet sends a greeting on a dialled connection and checks the answer.
func (m *Mux) greet(conn net.Conn, group, server string) error {
	hello := greeting{version: protocolVersion, cluster: m.cfg.ClusterID, group: group, sender: m.cfg.Self,
		receiver: server}
	if err := writeGreeting(conn, hello); err != nil {
		return err
	}
	reply, err := readGreeting(conn)
	if err != nil {
		return err
	}
	want := greeting{version: protocolVersion, cluster: m.cfg.ClusterID, group: group, sender: server,
		receiver: m.cfg.Self}
	if reply.verdict != accepted {
		return fmt.Errorf("%s: by %s", reply.verdict, reply)
	}
	if reply != want {
		return fmt.Errorf("the answer is %s, not %s", reply, want)
	}
	return nil
}

// track makes sure that conn is closed with the mux. It reports false, and closes conn, if the mux
// is closed already.
func (m *Mux) track(conn net.Conn) (*trackedConn, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		_ = conn.Close()
		return nil, false
	}
	tracked := &trackedConn{Conn: conn, mux: m}
	m.conns[tracked] = struct{}{}
	return tracked, true
}

// label records the group, the peer and the address of a dialled connection.
func (m *Mux) label(conn *trackedConn, group, peer, addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	conn.group, conn.peer, conn.dialled = group, peer, addr
}

// CloseStale closes the dialled connections to an address that their server does not have any more.
func (m *Mux) CloseStale() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.conns {
		if c.dialled == "" {
			continue
		}
		if addrs, err := m.cfg.Resolve(c.peer); err == nil && !slices.Contains(addrs, c.dialled) {
			delete(m.conns, c)
			_ = c.Conn.Close() // its user gets an error and dials again
			m.cfg.Logger.Info("a connection was closed, since the node is not at that address any more", "server_id", c.peer,
				"addr", c.dialled)
		}
	}
}

// assign records the group and the peer of an accepted connection, and makes room for it among
// those of its peer. It reports false if the stream has too many.
func (m *Mux) assign(conn *trackedConn, hello greeting) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all, same int
	var silent *trackedConn
	for c := range m.conns {
		if !c.inbound || c.group != hello.group {
			continue
		}
		all++
		if c.peer != hello.sender {
			continue
		}
		same++
		if silent == nil || c.heard.Load() < silent.heard.Load() {
			silent = c
		}
	}
	if same >= connsPeerMax {
		delete(m.conns, silent)
		_ = silent.Conn.Close() // its reader ends
	} else if all >= connsStreamMax {
		return false
	}
	conn.group, conn.peer, conn.inbound = hello.group, hello.sender, true
	return true
}

// drop forgets a stream and closes its group's connections. Raft's transport does not close those
// that it accepted: it leaves that to the peers.
func (m *Mux) drop(s *stream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(s)
	for conn := range m.conns {
		if conn.group == s.group {
			delete(m.conns, conn)
			_ = conn.Conn.Close()
		}
	}
}

// forget removes a stream, so that greetings for it are refused. mu is held.
func (m *Mux) forget(s *stream) {
	if m.streams[s.group] == s {
		delete(m.streams, s.group)
	}
}

// trackedConn is a connection that its mux closes at the latest when the mux itself is closed. Its
// deadlines are those of the inner connection.
type trackedConn struct {
	net.Conn
	mux   *Mux
	heard atomic.Int64 // time of the last read, in nanoseconds

	// Guarded by mux.mu until the handshake is over, and constant after.
	group, peer string // peer is the other side's server id
	inbound     bool
	dialled     string // the address, if this side dialled
}

// Read reads from the connection.
func (c *trackedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.heard.Store(time.Now().UnixNano())
	return n, err
}

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.mux.mu.Lock()
	delete(c.mux.conns, c)
	c.mux.mu.Unlock()
	return c.Conn.Close()
}

// stream takes the connections that name one group. It is the group's raft.StreamLayer. Its
// addresses are server ids.
type stream struct {
	mux      *Mux
	group    string
	accepted chan *framedConn
	done     chan struct{}
	once     sync.Once
}

// Accept waits for the next connection for the group. It returns an inboundConn, which limits what
// the peer may send.
func (s *stream) Accept() (net.Conn, error) {
	conn, err := s.next()
	if err != nil {
		return nil, err
	}
	return newInboundConn(conn), nil
}

// next waits for the next connection for the group.
func (s *stream) next() (*framedConn, error) {
	select {
	case conn := <-s.accepted:
		return conn, nil
	case <-s.done:
		return nil, net.ErrClosed
	case <-s.mux.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and the group's connections.
func (s *stream) Close() error {
	s.closeAccept()
	s.mux.drop(s)
	return nil
}

// closeAccept ends Accept.
func (s *stream) closeAccept() { s.once.Do(func() { close(s.done) }) }

// Addr returns the server id of this node.
func (s *stream) Addr() net.Addr { return serverAddr(s.mux.cfg.Self) }

// Dial connects to the server with the given id.
func (s *stream) Dial(server raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := s.mux.connect(ctx, s.group, string(server))
	if err != nil {
		return nil, err
	}
	return &outboundConn{framedConn: conn}, nil
}

// reach connects to the server with the given id, and hangs up.
func (s *stream) reach(ctx context.Context, server raft.ServerID) error {
	conn, err := s.mux.connect(ctx, s.group, string(server))
	if err != nil {
		return err
	}
	return conn.Close()
}

// serverAddr is a server id as an address.
type serverAddr string

// Network returns "belfry".
func (serverAddr) Network() string { return "belfry" }

// String returns the server id.
func (a serverAddr) String() string { return string(a) }
