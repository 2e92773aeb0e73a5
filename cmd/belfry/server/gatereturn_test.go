package server_test

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestReturnOfAnOpenNode: a node that was started without root tokens, and whose cluster asks for some, lets nobody in when it comes back either: its shards have
// leaders that take what it passes on before its catalog has heard who asks.
func TestReturnOfAnOpenNode(t *testing.T) {
	t.Parallel()
	configs, _ := halfGuarded(t)
	open := startAll(t, configs)()[1]
	put := func() error {
		_, err := queues(open).Put(t.Context(), &belfryv1.PutRequest{Queue: "q"})
		return err
	}
	await(t, "the put to be refused for want of a token", func() bool { return connect.CodeOf(put()) == connect.CodeUnauthenticated })
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

// TestReturnAlone: a node of a cluster that asks nobody for tokens is not mute for its operator when it comes back while the others are down.
func TestReturnAlone(t *testing.T) {
	t.Parallel()
	configs, _ := halfGuarded(t)
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
