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

// overhear returns dial with connections that call meddle before they send such a message. closed
// is closed with the connection.
func overhear(dial func(context.Context, string) (net.Conn, error),
	meddle func(closed <-chan struct{})) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return &overheard{Conn: conn, meddle: meddle, closed: make(chan struct{})}, nil
	}
}

// overheard is such a connection.
type overheard struct {
	net.Conn
	meddle func(closed <-chan struct{})
	once   sync.Once
	closed chan struct{}
}

// Write sends p.
func (c *overheard) Write(p []byte) (int, error) {
	if len(p) > frameHead && p[frameHead] == timeoutNow {
		c.meddle(c.closed)
	}
	return c.Conn.Write(p)
}

// Close closes the connection.
func (c *overheard) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A leader that was deposed while it waited for the answer to its handing over goes on believing
// that it is handing over, as long as the answer is out (hashicorp/raft issue 696). Elected again,
// it leads and takes nothing: only another instance of Raft helps.
func TestLeaderThatBelievesItIsHandingOver(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var gagged atomic.Bool // such a message stays on its way until its connection is closed, whatever its deadline
		gag := func(closed <-chan struct{}) {
			if gagged.Load() {
				<-closed
			}
		}
		c := New(t, Options{Dir: dir, Configure: func(cfg *node.Config) { cfg.Dial = overhear(cfg.Dial, gag) }})
		do(t, c.Leader(0), put("w"))
		c.Converge(0)
		wedged := c.Leader(0)
		gagged.Store(true)
		if err := wedged.Node.TransferLeader(t.Context(), "shard-0", c.Followers(0)[0].ServerID); err == nil {
			t.Fatal("a handing over of which nobody heard has succeeded")
		}
		gagged.Store(false)
		c.Isolate(wedged)
		c.LeaderExcept(0, wedged)
		c.Await("it knows that it leads no more", func() bool { return wedged.status(0).Role != node.Leader })
		c.Heal(wedged)
		c.Converge(0)
		entrust(t, c, wedged)
		do(t, c.Leader(0), put("x")) // the leader after the restart
		entrust(t, c, wedged)
		if leader := c.Leader(0); leader != wedged {
			t.Errorf("%s leads, want the one that was restarted", leader.name)
		}
		do(t, c.Leader(0), put("y"))
		c.Converge(0)
	})
}
