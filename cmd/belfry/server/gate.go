package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/cluster"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/rpc"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// gate knows the root tokens of a file and the tokens of the catalog. It implements rpc.Gate. Without a file it asks nobody for a token, unless another node of
// the cluster does: then it asks for those of the catalog.
type gate struct {
	file, dir string // of root tokens, and of data
	roots     atomic.Pointer[map[string]*tokens.Record]
	catalog   *cluster.Catalog // set before callers are let in
	logger    *slog.Logger
	// wasOpen: when the node ran last, no node of its cluster asked for tokens, as far as it had heard.
	wasOpen bool
	// told is set once the catalog has had, since the start, all that its leader had. Before, a token that is unknown may have been made while the node was
	// down, and one that is known have ended.
	told atomic.Bool
	// warned: that the node asks for tokens of which it was not told at its start is said once.
	warned atomic.Bool
}

// refreshPause is the pause between attempts to hear which tokens there are.
const refreshPause = 100 * time.Millisecond

// openFile is in the data directory of a node that knows that no node of its cluster asks for tokens. A node that starts has a catalog that is behind, or
// none at all, while its shards may have leaders that take what it passes on: only what it knew before says whether to let everybody in meanwhile.
const openFile = "open-to-all"

// loadGate reads the file of root tokens, if there is one.
func loadGate(cfg Config) (*gate, error) {
	g := &gate{file: cfg.RootTokens, dir: cfg.Dir, logger: cfg.Logger}
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

// recall reads what the node knew when it ran last. It is called before anybody is let in.
func (g *gate) recall() {
	_, err := os.Stat(filepath.Join(g.dir, openFile))
	g.wasOpen = err == nil
}

// hear notes that the catalog has what its leader has, if that is so.
func (g *gate) hear(ctx context.Context) {
	g.told.Store(g.catalog.Refresh(ctx) == nil)
}

// follow waits until it can be told which tokens there are, and keeps then for the next start whether calls need one, until ctx ends.
func (g *gate) follow(ctx context.Context, confirmed <-chan struct{}) {
	select {
	case <-confirmed:
	case <-ctx.Done():
		return
	}
	for g.hear(ctx); !g.told.Load(); g.hear(ctx) {
		select {
		case <-time.After(refreshPause):
		case <-ctx.Done():
			return
		}
	}
	for {
		altered := g.catalog.GuardAltered()
		if err := g.keep(g.catalog.Guard() == ""); err != nil {
			g.logger.Error("keeping for the next start whether the cluster asks for tokens", "error", err)
		}
		select {
		case <-altered:
		case <-ctx.Done():
			return
		}
	}
}

// keep has the next start know whether the cluster is open to all.
func (g *gate) keep(open bool) error {
	name, disk := filepath.Join(g.dir, openFile), storage.OSFS{}
	_, err := os.Stat(name)
	switch {
	case open == (err == nil):
		return nil
	case open:
		return storage.ReplaceFile(disk, name, nil)
	default:
		return errors.Join(disk.Remove(name), disk.SyncDir(g.dir))
	}
}

// Open implements rpc.Gate.
func (g *gate) Open() (bool, error) {
	if g.file != "" {
		return false, nil
	}
	guard := g.catalog.Guard()
	switch {
	case guard == "" && !g.wasOpen && !g.told.Load():
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
