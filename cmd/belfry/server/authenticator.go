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
	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// authenticator has the root tokens of a file and the tokens of the catalog. It implements
// auth.Authenticator. Without a file it requires no tokens, unless another node of the cluster
// does: then it requires those of the catalog.
type authenticator struct {
	file, dir string // of root tokens, and of data
	roots     atomic.Pointer[map[string]*tokens.Record]
	catalog   *catalog.Catalog // set before the first call
	logger    *slog.Logger
	// wasOpen: when the node ran last, no node of its cluster required tokens, as far as it knew.
	wasOpen bool
	// catalogCurrent is set once the catalog has had, since the start, all that its leader had.
	// Before that, an unknown token may have been created while the node was down, and a known one
	// may have ended.
	catalogCurrent atomic.Bool
	// warned is set once the node has logged that it requires tokens because other nodes do.
	warned atomic.Bool
}

// refreshPause is the pause between attempts to refresh the catalog.
const refreshPause = 100 * time.Millisecond

// openFile is in the data directory of a node that knows that no node of its cluster requires
// tokens. The catalog of a node that starts lags or is empty, and the leaders of its shards may
// already accept the calls that it forwards. So only its knowledge from before the start can allow
// every call until the catalog has caught up.
const openFile = "open-to-all"

// loadAuthenticator reads the file of root tokens, if there is one.
func loadAuthenticator(cfg Config) (*authenticator, error) {
	g := &authenticator{file: cfg.RootTokens, dir: cfg.Dir, logger: cfg.Logger}
	g.roots.Store(&map[string]*tokens.Record{})
	if err := g.reload(); err != nil {
		return nil, &ConfigError{fmt.Sprintf("--root-tokens: %s", err)}
	}
	return g, nil
}

// reload reads the file of root tokens again. If the file is not valid, the earlier tokens stay.
func (g *authenticator) reload() error {
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

// readOpenAccessFile reads what the node knew when it ran last. It is called before the first call.
func (g *authenticator) readOpenAccessFile() {
	_, err := os.Stat(filepath.Join(g.dir, openFile))
	g.wasOpen = err == nil
}

// refreshCatalog sets catalogCurrent if the catalog has caught up with its leader.
func (g *authenticator) refreshCatalog(ctx context.Context) {
	g.catalogCurrent.Store(g.catalog.Refresh(ctx) == nil)
}

// followCatalog waits until the catalog is current. From then on, until ctx ends, it writes for the
// next start whether calls need tokens.
func (g *authenticator) followCatalog(ctx context.Context, confirmed <-chan struct{}) {
	select {
	case <-confirmed:
	case <-ctx.Done():
		return
	}
	for g.refreshCatalog(ctx); !g.catalogCurrent.Load(); g.refreshCatalog(ctx) {
		select {
		case <-time.After(refreshPause):
		case <-ctx.Done():
			return
		}
	}
	for {
		altered := g.catalog.TokensRequiredAltered()
		if err := g.writeOpenAccessFile(g.catalog.TokensRequiredBy() == ""); err != nil {
			g.logger.Error("keeping for the next start whether the cluster asks for tokens", "error", err)
		}
		select {
		case <-altered:
		case <-ctx.Done():
			return
		}
	}
}

// writeOpenAccessFile records for the next start whether calls need no token.
func (g *authenticator) writeOpenAccessFile(open bool) error {
	name, fsys := filepath.Join(g.dir, openFile), disk.OSFS{}
	_, err := os.Stat(name)
	switch {
	case open == (err == nil):
		return nil
	case open:
		return disk.ReplaceFile(fsys, name, nil)
	default:
		return errors.Join(fsys.Remove(name), fsys.SyncDir(g.dir))
	}
}

// OpenAccess implements auth.Authenticator.
func (g *authenticator) OpenAccess() (bool, error) {
	if g.file != "" {
		return false, nil
	}
	requiredBy := g.catalog.TokensRequiredBy()
	switch {
	case requiredBy == "" && !g.wasOpen && !g.catalogCurrent.Load():
		return false, fmt.Errorf("this node has not heard yet whether its cluster asks for tokens: %w", node.ErrNoLeader)
	case requiredBy == "":
		return true, nil
	}
	if !g.warned.Swap(true) {
		g.logger.Warn("other nodes of this cluster ask their callers for tokens, and so does this one; it knows no root "+
			"tokens, as it was started without --root-tokens", "node", requiredBy)
	}
	return false, nil
}

// Token implements auth.Authenticator.
func (g *authenticator) Token(id string) (*tokens.Record, error) {
	if root, ok := (*g.roots.Load())[id]; ok {
		return root, nil
	}
	if !g.catalogCurrent.Load() {
		return nil, fmt.Errorf("this node has not heard yet which tokens there are: %w", node.ErrNoLeader)
	}
	record, _ := g.catalog.Token(id)
	return record, nil
}
