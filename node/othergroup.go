package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/peer"
	"github.com/belfrydb/belfry/node/raftgroup"
)

// GroupConfig describes a Raft group beside the shards.
type GroupConfig struct {
	// Name is 1 to 64 characters of [A-Za-z0-9_-] and the name of a directory. The names "hello"
	// and "calls" and those that begin with "shard-" are reserved.
	Name string
	// Machine is the group's machine in its first state.
	Machine Machine
	// Lead, if it is not nil, runs whenever this node begins to serve as the group's leader. ctx
	// ends with the leadership. Lead must return soon after, and its next call waits until it has.
	// It may propose.
	Lead func(ctx context.Context, g *Group)
}

// Group is a Raft group beside the shards, such as the catalog. Its methods may be called from any
// goroutine. It ends with its node.
type Group struct {
	group *raftgroup.Group
	lead  func(ctx context.Context, g *Group)
	// timeout is how long Propose waits for an outcome.
	timeout time.Duration
	led     chan struct{}
	once    sync.Once
}

// GroupReply is the answer to an entry of a Group.
type GroupReply = raftgroup.Reply

// StartGroup starts a group. It founds the group if this node founded the cluster and the group is
// new. If this node is the only voter, it waits until the group serves, or ctx ends.
func (n *Node) StartGroup(ctx context.Context, cfg GroupConfig) (*Group, error) {
	if !identity.ValidName(cfg.Name) {
		return nil, fmt.Errorf("group name %q is not 1 to %d characters of [A-Za-z0-9_-]", cfg.Name, identity.NameBytesMax)
	}
	if peer.Reserved(cfg.Name) || strings.HasPrefix(cfg.Name, founding.ShardPrefix) {
		return nil, fmt.Errorf("group name %q is taken", cfg.Name)
	}
	g := &Group{lead: cfg.Lead, timeout: n.cfg.ProposeTimeout, led: make(chan struct{})}
	of := n.groupConfig(cfg.Name, identity.GroupDir(n.cfg.Dir, cfg.Name))
	of.Machine, of.Lead = cfg.Machine, g.onLead
	g.group = raftgroup.New(of)
	if err := g.group.Start(ctx); err != nil {
		return nil, err
	}
	if !n.adopt(g) {
		return nil, errors.Join(outcome.ErrShuttingDown, g.group.Stop())
	}
	if err := n.founded(cfg.Name); err != nil {
		return nil, err
	}
	if !g.group.SoleVoter() {
		return g, nil
	}
	select {
	case <-g.led:
		return g, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for %s to begin: %w", cfg.Name, context.Cause(ctx))
	}
}

// adopt adds a group to those that end with the node. It reports false if the node is being shut
// down.
func (n *Node) adopt(g *Group) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopping {
		return false
	}
	n.groups = append(n.groups, g)
	return true
}

// onLead serves until ctx ends.
func (g *Group) onLead(ctx context.Context, l *raftgroup.Leadership) {
	if !g.group.Serve(l) {
		return
	}
	g.once.Do(func() { close(g.led) })
	if g.lead != nil {
		g.lead(ctx, g)
	}
	<-ctx.Done()
}

// Propose logs an entry and waits until it is applied here. See OutcomeOf for what an error means.
// The entry must not be changed until Propose returns; after an unknown outcome it must never be
// changed.
func (g *Group) Propose(ctx context.Context, entry []byte) (GroupReply, error) {
	return g.group.Propose(ctx, entry, g.timeout)
}

// View runs f on the machine as it is on this node, under a shared lock.
func (g *Group) View(f func(m Machine)) {
	g.group.Replica().View(func(m Machine, _ raftgroup.Position) { f(m) })
}

// Await waits until the entry at index is applied on this node. An entry of the members'
// configuration is never seen as applied.
func (g *Group) Await(ctx context.Context, index uint64) error {
	if err := g.group.Replica().Await(ctx, index); err != nil {
		return fmt.Errorf("%s: %w", g.group.Name(), err)
	}
	return nil
}

// Confirm returns an index that this node has applied, and that covers every entry that was
// answered before the call. This node must lead the group.
func (g *Group) Confirm(ctx context.Context) (uint64, error) {
	l, err := g.group.Leadership()
	if err != nil {
		return 0, err
	}
	index := g.group.Replica().AppliedIndex()
	if err := g.group.Confirm(ctx, l); err != nil {
		return 0, err
	}
	return index, nil
}

// AppliedIndex returns the index of the last entry that was applied on this node.
func (g *Group) AppliedIndex() uint64 { return g.group.Replica().AppliedIndex() }

// Spread tells the followers at once how far this node has committed. Without it, they learn that
// with the next entry, or within a second. This node should lead the group. Spread does not wait
// for a follower.
func (g *Group) Spread() { g.group.Spread() }

// Leader returns the server id of the group's leader as far as this node knows; empty if it knows
// none.
func (g *Group) Leader() string { return g.group.LeaderID() }

// Alone reports whether this node is the only voter.
func (g *Group) Alone() bool { return g.group.SoleVoter() }

// Serving reports whether this node leads the group and serves.
func (g *Group) Serving() bool { return g.group.Serves() }
