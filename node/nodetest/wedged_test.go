package nodetest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/node"
)

const (
	// frameHead is what precedes a message in its frame.
	frameHead = 12
	// timeoutNow is the first byte of the message by which Raft hands its leadership over.
	timeoutNow = 3
)

// gag keeps such messages on their way while it is on: until their connection is closed, whatever its deadline.
type gag struct{ on atomic.Bool }

// dialer returns dial with connections that are gagged.
func (g *gag) dialer(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return &gagged{Conn: conn, gag: g, closed: make(chan struct{})}, nil
	}
}

// gagged is a connection under a gag.
type gagged struct {
	net.Conn
	gag    *gag
	once   sync.Once
	closed chan struct{}
}

// Write sends p, unless it is gagged.
func (c *gagged) Write(p []byte) (int, error) {
	if c.gag.on.Load() && len(p) > frameHead && p[frameHead] == timeoutNow {
		<-c.closed
	}
	return c.Conn.Write(p)
}

// Close closes the connection.
func (c *gagged) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A leader that was deposed while it waited for the answer to its handing over goes on believing that it is handing over, as long as the answer is
// out (hashicorp/raft issue 696). Elected again, it leads and takes nothing: only another instance of Raft helps.
func TestLeaderThatBelievesItIsHandingOver(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g := &gag{}
		c := New(t, Options{Dir: dir, Configure: func(cfg *node.Config) { cfg.Dial = g.dialer(cfg.Dial) }})
		do(t, c.Leader(0), put("w"))
		c.Converge(0)
		wedged := c.Leader(0)
		g.on.Store(true)
		if err := wedged.Node.TransferLeader(t.Context(), "shard-0", c.Followers(0)[0].ServerID); err == nil {
			t.Fatal("a handing over of which nobody heard has succeeded")
		}
		g.on.Store(false)
		c.Isolate(wedged)
		c.LeaderExcept(0, wedged)
		c.Await("it knows that it leads no more", func() bool { return wedged.status(0).Role != node.Leader })
		c.Heal(wedged)
		c.Converge(0)
		entrust(t, c, wedged)
		do(t, c.Leader(0), put("x")) // whoever leads after the restart
		entrust(t, c, wedged)
		if leader := c.Leader(0); leader != wedged {
			t.Errorf("%s leads, want the one that was restarted", leader.name)
		}
		do(t, c.Leader(0), put("y"))
		c.Converge(0)
	})
}
