package rpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/access/throng"
)

// fullPeriod is how long the log says nothing more of connections that were closed for want of room after it has.
const fullPeriod = time.Minute

// connections bounds the connections of clients. One that has no call makes room for the next; sessions, and connections with calls, stay. A call counts
// from where its caller has shown who he is, or else whoever has no token could fill the port with calls that do not end.
type connections struct {
	entered *throng.Throng
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
	c := &connections{entered: throng.New(most), most: most, logger: logger, closed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "belfry_client_connections_closed_total", Help: "Connections of clients without a call of a known caller, and newcomers, closed because there were too many.",
	})}
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "belfry_client_connections", Help: "Connections of clients."},
		func() float64 { return float64(c.entered.Taken()) })
	for _, m := range []prometheus.Collector{c.closed, open} {
		if err := registry.Register(m); err != nil {
			return nil, fmt.Errorf("registering the metrics of connections: %w", err)
		}
	}
	return c, nil
}

// Bounded returns a listener for a server that is about to serve on it, on which it has so many connections at most: as no caller shows who he is, each makes room
// for the next. It sets ConnState.
func Bounded(l net.Listener, s *http.Server, most int) net.Listener {
	c := &connections{entered: throng.New(most), most: most, logger: slog.New(slog.DiscardHandler), closed: prometheus.NewCounter(prometheus.CounterOpts{})}
	s.ConnState = c.changed
	return c.around(l)
}

// around returns a listener whose connections are bounded. Its server must tell changed.
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

// known notes that the caller of a call under way has shown who he is.
func known(r *http.Request) {
	if bounded, ok := r.Context().Value(connectionKey{}).(*boundedConn); ok {
		bounded.known()
	}
}

// boundedOf returns the connection below one that a server has; nil if there is no such.
func boundedOf(conn net.Conn) *boundedConn {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	bounded, _ := conn.(*boundedConn)
	return bounded
}

// changed is the http.Server.ConnState that goes with around.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	bounded := boundedOf(conn)
	switch {
	case bounded == nil:
	case state == http.StateHijacked:
		bounded.place.Settle() // if it was closed its reader finds out
	case state == http.StateActive, state == http.StateIdle:
		bounded.turns(state == http.StateActive)
	}
}

// full notes that a connection was closed for want of room.
func (c *connections) full(from net.Addr) {
	c.closed.Inc()
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since++
	if now.Sub(c.said) < fullPeriod {
		return
	}
	c.logger.Warn("there are too many connections of clients; those that have had no call for longest are closed", slog.Int("most", c.most),
		slog.Int("closed", c.since), slog.String("newest", from.String()))
	c.said, c.since = now, 0
}

// boundedListener is a listener whose connections have places.
type boundedListener struct {
	net.Listener
	connections *connections
}

// Accept waits for the next connection that finds a place.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		place, evicted := l.connections.entered.Enter(conn)
		if evicted || place == nil {
			l.connections.full(conn.RemoteAddr())
		}
		if place != nil {
			return &boundedConn{Conn: conn, place: place}, nil
		}
		_ = conn.Close() // all others have calls
	}
}

// boundedConn is a connection with a place.
type boundedConn struct {
	net.Conn
	place *throng.Place

	mu sync.Mutex
	// busy says that it has calls, kept that its place is kept for one of them.
	busy, kept bool
}

// turns notes that the connection has calls, or has none any more. Whose they are is not known yet.
func (c *boundedConn) turns(busy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy, c.kept = busy, false
	c.place.Wait()
}

// known keeps the place as long as there are calls. The call of which it is told may have ended, because the client took it back.
func (c *boundedConn) known() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy && !c.kept {
		c.kept = true
		c.place.Settle() // if it was closed its reader finds out
	}
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.place.Leave()
	return c.Conn.Close()
}
