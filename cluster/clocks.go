package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/cluster/routing"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/clock"
)

// The calls about time between nodes.
const (
	pathClock      = "/clock"
	pathResetClock = "/clock/reset"
)

// Clocks asks the other nodes of the cluster for the time, for node.Config.Clocks. A node is opened
// before it can call others. Clocks is therefore made first, and can ask once Open has received it.
// Its methods may be called from any goroutine.
type Clocks struct {
	mu    sync.Mutex
	peers *routing.Peers
}

// NewClocks returns Clocks that cannot ask yet.
func NewClocks() *Clocks { return &Clocks{} }

// errNoCalls says that this node does not call other nodes yet.
var errNoCalls = errors.New("this node does not call others yet")

// ReadClock implements clock.Peers.
func (c *Clocks) ReadClock(ctx context.Context, serverID string) (clock.Reading, error) {
	c.mu.Lock()
	p := c.peers
	c.mu.Unlock()
	if p == nil {
		return clock.Reading{}, errNoCalls
	}
	return routing.Call[clock.Reading](ctx, p, serverID, pathClock, struct{}{})
}

// setPeers gives c the connections for its questions.
func (c *Clocks) setPeers(p *routing.Peers) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peers = p
}

// clockHost is the part of a node's time that other nodes call. *node.Node implements it.
type clockHost interface {
	ReadClock() clock.Reading
	ResetClock(ctx context.Context, shard uint32) (node.ClockReset, error)
}

// answerClocks registers the calls about time.
func answerClocks(p *routing.Peers, host clockHost) {
	routing.Handle(p, pathClock, func(context.Context, string, struct{}) (clock.Reading, error) {
		return host.ReadClock(), nil
	})
	routing.Handle(p, pathResetClock, func(ctx context.Context, _ string, shard uint32) (node.ClockReset, error) {
		return host.ResetClock(ctx, shard)
	})
}

// ResetClock makes the leader of a shard, the server with the given id, move the shard's time back;
// see node.Node.ResetClock.
func (c *Cluster) ResetClock(ctx context.Context, leader string, shard uint32) (node.ClockReset, error) {
	ctx, cancel := context.WithTimeout(ctx, placement.ChangeWait)
	defer cancel()
	if leader == c.members.record.ServerID {
		return c.members.host.ResetClock(ctx, shard)
	}
	reset, err := routing.Call[node.ClockReset](ctx, c.peers, leader, pathResetClock, shard)
	if err != nil {
		return node.ClockReset{}, fmt.Errorf("moving the time of shard %d back at %s: %w", shard, leader, err)
	}
	return reset, nil
}

// clockAhead returns the lead of a shard's time over the clocks if it is an alarm, else zero.
func clockAhead(g *node.GroupStatus) time.Duration {
	if !g.ClockAhead {
		return 0
	}
	return g.ClockAheadBy
}

// clockOffset returns how far this node's clock is ahead of the median of its own and others' clocks;
// nil if there are no others.
func clockOffset(others []clock.PeerOffset) *time.Duration {
	if len(others) == 0 {
		return nil
	}
	ahead := []time.Duration{0}
	for _, o := range others {
		ahead = append(ahead, o.Ahead)
	}
	slices.Sort(ahead)
	n := len(ahead)
	return new(-(ahead[(n-1)/2] + ahead[n/2]) / 2)
}
