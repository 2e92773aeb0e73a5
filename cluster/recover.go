package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/recovery"
)

// gossipFile is the file of gossip in a data directory. It has addresses of the old cluster's
// nodes.
const gossipFile = "gossip-addresses.json"

// Recovery is recovery.Recovery with an adapted catalog: its one node is this one, which runs all
// shards.
type Recovery struct {
	*recovery.Recovery
	dir string
}

// OpenRecovery opens the data directory of a stopped node for recovery; see node.OpenRecovery. It
// refuses a directory without a catalog.
func OpenRecovery(dir string, logger *slog.Logger) (*Recovery, error) {
	var self identity.Identity
	inner, err := node.OpenRecovery(
		node.RecoveryConfig{Dir: dir, Logger: logger, Others: func(group, clusterID string) (node.Machine, error) {
			if group != catalog.GroupName {
				return nil, fmt.Errorf("this program knows no group %q", group)
			}
			return catalog.NewSoleMachine(self, clusterID), nil
		}})
	if err != nil {
		return nil, err
	}
	self = inner.Identity()
	has := func(g recovery.Group) bool { return g.Group == catalog.GroupName && (g.LastIndex > 0 || g.Done) }
	if !slices.ContainsFunc(inner.Groups(), has) {
		return nil, errors.Join(fmt.Errorf("%s holds nothing of the catalog: this node had only just joined", dir),
			inner.Close())
	}
	return &Recovery{Recovery: inner, dir: dir}, nil
}

// Run makes the recovery; see recovery.Recovery.
func (r *Recovery) Run() error {
	if err := os.Remove(filepath.Join(r.dir, gossipFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the addresses of the other nodes: %w", err)
	}
	return r.Recovery.Run()
}
