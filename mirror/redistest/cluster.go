package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

// slots is how many a Redis Cluster has.
const slots = 16384

// Cluster is a Redis Cluster of several servers.
type Cluster struct {
	// Primaries have the slots, in equal parts and in order. Replicas follow the first of them.
	Primaries, Replicas []*Server
}

// StartCluster runs a Redis Cluster and returns when all of its servers say that it is ready. One
// that is silent for two seconds has failed.
func StartCluster(t testing.TB, primaries, replicas int, opts ...Option) *Cluster {
	t.Helper()
	c := &Cluster{}
	opts = append(opts, WithConfig("cluster-enabled", "yes"), WithConfig("cluster-node-timeout", "2000"),
		func(s *settings) { s.cluster, s.member = true, true })
	for n := range primaries + replicas {
		s := Start(t, opts...)
		s.do(t, "CLUSTER", "SET-CONFIG-EPOCH", n+1)
		if n > 0 {
			host, port, err := net.SplitHostPort(c.Primaries[0].address)
			if err != nil {
				t.Fatal(err)
			}
			s.do(t, "CLUSTER", "MEET", host, port)
		}
		if n < primaries {
			s.do(t, "CLUSTER", "ADDSLOTSRANGE", slots*n/primaries, slots*(n+1)/primaries-1)
			c.Primaries = append(c.Primaries, s)
		} else {
			c.Replicas = append(c.Replicas, s)
		}
	}
	c.await(t, "it is ready", func(s *Server, ctx context.Context) error {
		info, err := s.client.ClusterInfo(ctx).Result()
		for _, line := range []string{"cluster_state:ok", fmt.Sprintf("cluster_known_nodes:%d", primaries+replicas)} {
			if err == nil && !strings.Contains(info, line+"\r\n") {
				err = fmt.Errorf("it does not say %s: %s", line, info)
			}
		}
		return err
	})
	for _, s := range c.Replicas {
		s.do(t, "CLUSTER", "REPLICATE", c.Primaries[0].ID(t))
		if err := s.await("it follows", s.follows); err != nil {
			t.Fatal(err)
		}
	}
	first := c.Primaries[0].ID(t)
	c.await(t, "it knows the replicas", func(s *Server, ctx context.Context) error {
		nodes, err := s.client.ClusterNodes(ctx).Result()
		if known := strings.Count(nodes, "slave "+first); err == nil && known != replicas {
			err = fmt.Errorf("it knows %d", known)
		}
		return err
	})
	return c
}

// await waits until all servers of the cluster are ready.
func (c *Cluster) await(t testing.TB, what string, ready func(*Server, context.Context) error) {
	t.Helper()
	for _, s := range append(append([]*Server(nil), c.Primaries...), c.Replicas...) {
		if err := s.await(what, func(ctx context.Context) error { return ready(s, ctx) }); err != nil {
			t.Fatal(err)
		}
	}
}

// URL returns where clients reach the cluster.
func (c *Cluster) URL() string { return strings.Replace(c.Primaries[0].URL(), "://", "+cluster://", 1) }

// Owner is the primary that had the slot of a key at first.
func (c *Cluster) Owner(t testing.TB, key string) (*Server, int64) {
	t.Helper()
	slot, err := c.Primaries[0].client.ClusterKeySlot(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	for n, s := range c.Primaries {
		if slot < int64(slots*(n+1)/len(c.Primaries)) {
			return s, slot
		}
	}
	return nil, slot
}

// Move gives a slot to another primary. Between begins once both know that it moves, while keys are
// still where they were; then they go, and then it is theirs.
func (c *Cluster) Move(t testing.TB, slot int64, from, to *Server, between func()) {
	t.Helper()
	to.do(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.ID(t))
	from.do(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.ID(t))
	between()
	host, port, err := net.SplitHostPort(to.address)
	if err != nil {
		t.Fatal(err)
	}
	for {
		keys, err := from.client.ClusterGetKeysInSlot(t.Context(), int(slot), 100).Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			from.do(t, "MIGRATE", host, port, key, 0, 5000)
		}
	}
	to.do(t, "CLUSTER", "SETSLOT", slot, "NODE", to.ID(t))
	from.do(t, "CLUSTER", "SETSLOT", slot, "NODE", to.ID(t))
}

// Promoted waits until a replica is a primary, in a cluster that is ready.
func (s *Server) Promoted() {
	s.t.Helper()
	err := s.await("it is a primary", func(ctx context.Context) error {
		role, err := s.info(ctx, "replication", "role")
		if err == nil && role != "master" {
			err = fmt.Errorf("it is a %s", role)
		}
		info, asked := s.client.ClusterInfo(ctx).Result()
		if asked == nil && !strings.Contains(info, "cluster_state:ok\r\n") {
			asked = fmt.Errorf("the cluster is not ready: %s", info)
		}
		return errors.Join(err, asked)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// ID is what a cluster calls the server.
func (s *Server) ID(t testing.TB) string {
	t.Helper()
	id, err := s.client.Do(t.Context(), "CLUSTER", "MYID").Text()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// do carries out a command that has no method.
func (s *Server) do(t testing.TB, args ...any) {
	t.Helper()
	if err := s.client.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}
