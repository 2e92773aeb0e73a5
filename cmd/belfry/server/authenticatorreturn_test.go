package server_test

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestRestartWithoutRootTokens: a node without root tokens, whose cluster requires tokens, refuses
// calls without one when it restarts too. The leaders of its shards would accept what it forwards
// before its catalog shows which node requires tokens.
func TestRestartWithoutRootTokens(t *testing.T) {
	t.Parallel()
	configs, _ := oneWithRootTokens(t)
	open := startAll(t, configs)()[1]
	put := func() error {
		_, err := queues(open).Put(t.Context(), &belfryv1.PutRequest{Queue: "q"})
		return err
	}
	await(t, "the put to be refused for want of a token", func() bool {
		return connect.CodeOf(put()) == connect.CodeUnauthenticated
	})
	await(t, "its shard to have two voters", func() bool { return hasVoters(open.Status().Shards, len(configs)) })
	stop(t, open)
	open = start(t, configs[1])
	await(t, "the node to hear from its cluster", func() bool {
		if put() == nil {
			t.Fatal("a put without a token was taken")
		}
		select {
		case <-open.Ready():
			return connect.CodeOf(put()) == connect.CodeUnauthenticated
		default:
			return false
		}
	})
}

// hasVoters reports whether the first of some groups has so many voters.
func hasVoters(groups []node.GroupStatus, voters int) bool {
	return len(groups) > 0 && len(groups[0].Voters) == voters
}

// TestRestartAlone: a node of a cluster without tokens answers its operator when it restarts while
// the other nodes are down.
func TestRestartAlone(t *testing.T) {
	t.Parallel()
	configs, _ := oneWithRootTokens(t)
	configs[0].RootTokens = ""
	servers := startAll(t, configs)()
	look := func() error {
		_, err := admin(servers[1]).GetCluster(t.Context(), &belfryv1.GetClusterRequest{})
		return err
	}
	for _, s := range servers {
		<-s.Ready()
	}
	await(t, "the node to say what it knows", func() bool { return look() == nil })
	await(t, "its catalog to have two voters", func() bool { return hasVoters(servers[1].Status().Groups, len(configs)) })
	for _, s := range servers {
		stop(t, s)
	}
	servers[1] = start(t, configs[1])
	if err := look(); err != nil {
		t.Errorf("alone it says: %v", err)
	}
}
