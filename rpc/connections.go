package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/access/connlimit"
)

// fullPeriod is the shortest time between two warnings about too many connections.
const fullPeriod = time.Minute

// connections bounds the connections of clients. A new connection takes the slot of one without a
// call; sessions and connections with calls keep theirs. A call counts once its caller is
// authenticated, or else a caller without a token could fill the port with calls that never end.
type connections struct {
	limiter *connlimit.Limiter
	most    int
	logger  *slog.Logger
	closed  prometheus.Counter

	mu    sync.Mutex
	said  time.Time
	since int // closed since then
}

// newConnections registers the metrics. 0 is no bound.
func newConnections(most int, logger *slog.Logger, registry prometheus.Registerer) (*connections, error) {
	if most == 0 {
		return nil, nil
	}
	c := &connections{limiter: connlimit.New(most), most: most, logger: logger,
		closed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "belfry_client_connections_closed_total",
			Help: "Connections of clients without a call of a known caller, and newcomers, closed because there were too many.",
		})}
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "belfry_client_connections", Help: "Connections of clients.",
	},
		func() float64 { return float64(c.limiter.InUse()) })
	for _, m := range []prometheus.Collector{c.closed, open} {
		if err := registry.Register(m); err != nil {
			return nil, fmt.Errorf("registering the metrics of connections: %w", err)
		}
	}
	return c, nil
}

// Bounded returns a listener on which s has at most so many connections. Its callers are not
// authenticated, so a new connection may take the slot of any other. Bounded sets s.ConnState and
// must be called before s serves.
func Bounded(l net.Listener, s *http.Server, most int) net.Listener {
	c := &connections{
		limiter: connlimit.New(most), most: most, logger: slog.New(slog.DiscardHandler),
		closed: prometheus.NewCounter(prometheus.CounterOpts{}),
	}
	s.ConnState = c.changed
	return c.around(l)
}

// around returns a listener whose connections are bounded. Its server must have changed as
// ConnState.
func (c *connections) around(l net.Listener) net.Listener {
	if c == nil {
		return l
	}
	return &boundedListener{l, c}
}

// connectionKey finds a connection in the contexts of its calls.
type connectionKey struct{}

// within is the http.Server.ConnContext that goes with around.
func (c *connections) within(ctx context.Context, conn net.Conn) context.Context {
	if bounded := boundedOf(conn); bounded != nil {
		return context.WithValue(ctx, connectionKey{}, bounded)
	}
	return ctx
}

// known records that the caller of a call is authenticated.
func known(r *http.Request) {
	if bounded, ok := r.Context().Value(connectionKey{}).(*boundedConn); ok {
		bounded.known()
	}
}

// boundedOf returns the bounded connection below conn, nil if there is none.
func boundedOf(conn net.Conn) *boundedConn {
	for {
		if bounded, ok := conn.(*boundedConn); ok {
			return bounded
		}
		outer, ok := conn.(interface{ NetConn() net.Conn }) // TLS, or a connection that was begun by http1
		if !ok {
			return nil
		}
		conn = outer.NetConn()
	}
}

// changed is the http.Server.ConnState that goes with around.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	bounded := boundedOf(conn)
	switch {
	case bounded == nil:
	case state == http.StateHijacked:
		bounded.slot.Pin() // if the slot was taken, the connection is closed and its reader fails
	case state == http.StateActive, state == http.StateIdle:
		bounded.setBusy(state == http.StateActive)
	}
}

// full counts a connection that was closed because there were too many, and logs it at most once in
// fullPeriod.
func (c *connections) full(from net.Addr) {
	c.closed.Inc()
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since++
	if now.Sub(c.said) < fullPeriod {
		return
	}
	c.logger.Warn("there are too many connections of clients; those that have had no call for longest are closed",
		slog.Int("most", c.most),
		slog.Int("closed", c.since), slog.String("newest", from.String()))
	c.said, c.since = now, 0
}

// boundedListener is a listener whose connections have slots.
type boundedListener struct {
	net.Listener
	connections *connections
}

// Accept waits for the next connection that gets a slot.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		slot, evicted := l.connections.limiter.Acquire(conn)
		if evicted || slot == nil {
			l.connections.full(conn.RemoteAddr())
		}
		if slot != nil {
			return &boundedConn{Conn: conn, slot: slot}, nil
		}
		_ = conn.Close() // all others have calls
	}
}

// boundedConn is a connection with a slot.
type boundedConn struct {
	net.Conn
	slot *connlimit.Slot

	mu sync.Mutex
	// busy: it has calls. pinned: its slot is pinned for one of them.
	busy, pinned bool
}

// setBusy records whether the connection has calls. Their callers are not authenticated yet.
func (c *boundedConn) setBusy(busy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy, c.pinned = busy, false
	c.slot.Unpin()
}

// known pins the slot while there are calls. The call itself may have ended, if the client
// cancelled it.
func (c *boundedConn) known() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy && !c.pinned {
		c.pinned = true
		c.slot.Pin() // if the slot was taken, the connection is closed and its reader fails
	}
}

// beginCall records a call of an authenticated caller.
func (c *boundedConn) beginCall() {
	c.mu.Lock()
	c.busy = true
	c.mu.Unlock()
	c.known()
}

// NetConn returns the connection without its slot.
func (c *boundedConn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends the bytes to the client, if the connection can. net/http does so before it closes a
// connection with unread bytes.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.slot.Release()
	return c.Conn.Close()
}
