package main

import (
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/local"
	"github.com/belfrydb/belfry/node"
)

// TestNodeWhosePortsWereTakenStartsAtOthers: what listens where the stopped node did does not keep
// it from coming back.
func TestNodeWhosePortsWereTakenStartsAtOthers(t *testing.T) {
	t.Parallel()
	host := testHost()
	err := host.WithTrio(t.Context(), func(int, int) {}, func(three *local.Trio) error {
		stopped, err := three.StopLeader(t.Context(), "orders")
		if err != nil {
			return err
		}
		cfg := three.Configs[three.Stopped]
		for _, address := range []string{cfg.Listen, cfg.PeerListen, cfg.GossipListen} {
			if l, err := net.Listen("tcp", address); err == nil { // else another program has taken it
				defer l.Close()
			}
		}
		started, err := three.StartAgain(t.Context())
		if err != nil || started != stopped {
			return fmt.Errorf("%s was stopped, and %s started again: %w", stopped, started, err)
		}
		await(t, "it to hear of a leader of each shard", func() bool {
			shards := three.Servers[three.Stopped].Status().Shards
			return len(shards) == local.TrioShards && !slices.ContainsFunc(shards, func(g node.GroupStatus) bool {
				return g.Leader == ""
			})
		})
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
