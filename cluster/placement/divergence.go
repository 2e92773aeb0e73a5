package placement

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/node"
)

// Divergence records that a replica of a group does not have the state that most voters have.
type Divergence struct {
	Group string           `json:"group"`
	Right node.IndexDigest `json:"right"`
}

// compare looks for replicas that differ from the others, and has them set aside.
func (p *Placer) compare(ctx context.Context, w *world, catalogGroup *worldShard, reports map[string]*Report) {
	ctx, cancel := context.WithTimeout(ctx, ChangeWait)
	defer cancel()
	var asking sync.WaitGroup
	look := func(group string, s *worldShard) {
		wrong, undecided := diverged(group, s, reports)
		if undecided && !p.undecided[group] {
			p.logger.Error("replicas differ and none of their states is that of most voters", "group", group)
		}
		p.undecided[group] = undecided
		for server, right := range wrong {
			asking.Go(func() {
				p.logger.Error("a replica differs from the others", "group", group, "server", server, "index", right.Index)
				if err := p.nodes.Quarantine(ctx, server, Divergence{group, right}); err != nil &&
					!errors.Is(err, node.ErrDisproved) {
					p.logger.Error("a replica that differs could not be set aside", "group", group, "server", server, "error", err)
				}
			})
		}
	}
	for i := range w.shards {
		look(catalog.ShardGroup(w.shards[i].shard), &w.shards[i])
	}
	look(catalog.GroupName, catalogGroup)
	asking.Wait()
}

// diverged returns the members of a group whose digest at some index is not the digest of most
// voters, each with the correct digest. undecided says that members differ at an index at which
// most voters do not agree.
func diverged(group string, s *worldShard, reports map[string]*Report) (wrong map[string]node.IndexDigest,
	undecided bool) {
	members := slices.Concat(s.voters, s.nonvoters)
	seen := map[uint64]map[string]uint64{} // by index and member
	for _, id := range members {
		g := reports[id].Group(group)
		if g == nil {
			continue
		}
		for _, d := range g.Digests {
			if seen[d.Index] == nil {
				seen[d.Index] = map[string]uint64{}
			}
			seen[d.Index][id] = d.Digest
		}
	}
	wrong = map[string]node.IndexDigest{}
	for index, digests := range seen {
		votes := map[uint64]int{}
		for id, digest := range digests {
			if slices.Contains(s.voters, id) {
				votes[digest]++
			}
		}
		right, agreed := digestOfMost(votes, len(s.voters))
		for id, digest := range digests {
			switch {
			case agreed && digest != right:
				wrong[id] = node.IndexDigest{Index: index, Digest: right}
			case !agreed && len(votes) > 1:
				undecided = true
			}
		}
	}
	return wrong, undecided
}

// digestOfMost returns the digest that more than half of the voters have.
func digestOfMost(votes map[uint64]int, voters int) (digest uint64, ok bool) {
	for digest, n := range votes {
		if 2*n > voters {
			return digest, true
		}
	}
	return 0, false
}
