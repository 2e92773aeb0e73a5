package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/cluster"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// gate knows the root tokens of a file and the tokens of the catalog. It implements rpc.Gate. Without a file it asks nobody for a token, unless another node of
// the cluster does: then it asks for those of the catalog.
type gate struct {
	file    string
	roots   atomic.Pointer[map[string]*tokens.Record]
	catalog *cluster.Catalog // set before callers are let in
	logger  *slog.Logger
	// newcomer: the node was in no cluster before it was started, and what it knows of the one that it is in it has yet to hear.
	newcomer bool
	// told is set once the catalog has had, since the start, all that its leader had. Before, a token that is unknown may have been made while the node was
	// down, and one that is known have ended.
	told atomic.Bool
	// warned: that the node asks for tokens of which it was not told at its start is said once.
	warned atomic.Bool
}

// refreshPause is the pause between attempts to hear which tokens there are.
const refreshPause = 100 * time.Millisecond

// loadGate reads the file of root tokens, if there is one.
func loadGate(cfg Config) (*gate, error) {
	g := &gate{file: cfg.RootTokens, logger: cfg.Logger}
	g.roots.Store(&map[string]*tokens.Record{})
	if err := g.reload(); err != nil {
		return nil, &ConfigError{fmt.Sprintf("--root-tokens: %s", err)}
	}
	return g, nil
}

// reload reads the file again. If it is not in order, what it said before holds.
func (g *gate) reload() error {
	if g.file == "" {
		return nil
	}
	all, err := tokens.ReadRootFile(g.file)
	if err != nil {
		return err
	}
	known := make(map[string]*tokens.Record, len(all))
	for i := range all {
		known[all[i].ID] = &all[i]
	}
	g.roots.Store(&known)
	return nil
}

// follow waits until it can be told which tokens there are, or ctx ends.
func (g *gate) follow(ctx context.Context, confirmed <-chan struct{}) {
	select {
	case <-confirmed:
	case <-ctx.Done():
		return
	}
	for g.catalog.Refresh(ctx) != nil {
		select {
		case <-time.After(refreshPause):
		case <-ctx.Done():
			return
		}
	}
	g.told.Store(true)
}

// Open implements rpc.Gate.
func (g *gate) Open() (bool, error) {
	if g.file != "" {
		return false, nil
	}
	guard, known := g.catalog.Guard()
	switch {
	case !known && g.newcomer && !g.told.Load():
		return false, fmt.Errorf("this node has not heard yet whether its cluster asks for tokens: %w", node.ErrNoLeader)
	case guard == "":
		return true, nil
	}
	if !g.warned.Swap(true) {
		g.logger.Warn("other nodes of this cluster ask their callers for tokens, and so does this one; it knows no root tokens, as it was started without --root-tokens", "node", guard)
	}
	return false, nil
}

// Token implements rpc.Gate.
func (g *gate) Token(id string) (*tokens.Record, error) {
	if root, ok := (*g.roots.Load())[id]; ok {
		return root, nil
	}
	if !g.told.Load() {
		return nil, fmt.Errorf("this node has not heard yet which tokens there are: %w", node.ErrNoLeader)
	}
	record, _ := g.catalog.Token(id)
	return record, nil
}

// AddToken implements rpc.TokenKeeper.
func (c *catalog) AddToken(ctx context.Context, t tokens.Record) error {
	err := c.inner.AddToken(ctx, t)
	if errors.Is(err, cluster.ErrTokens) {
		return &rpc.Fault{Reason: belfryv1.Reason_REASON_QUOTA, Message: err.Error()}
	}
	return err
}

// EndToken implements rpc.TokenKeeper.
func (c *catalog) EndToken(ctx context.Context, id string, at time.Time) (found bool, err error) {
	err = c.inner.EndToken(ctx, id, at)
	if errors.Is(err, cluster.ErrTokenUnknown) {
		return false, nil
	}
	return err == nil, err
}

// Tokens implements rpc.TokenKeeper.
func (c *catalog) Tokens() []*tokens.Record { return c.inner.Tokens() }
