package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// Harness is the client name under which the lab itself asks nodes.
	Harness = "harness"
	// askMax is how long one question may take.
	askMax = 5 * time.Second
	// lookPause is the time between two looks at a condition.
	lookPause = 100 * time.Millisecond
	// leaderMax is how long a leader is waited for: an election after another fault takes seconds.
	leaderMax = 30 * time.Second
	// catalogVotersMax is how many voters the catalog has at most, as the cluster has it.
	catalogVotersMax = 5
)

// URL returns where a client reaches a node. Every client has a way of its own.
func (l *Lab) URL(client, node string) (string, error) {
	url, err := l.cfg.Network.ClientURL(client, node)
	if l.secrets != nil {
		url = strings.Replace(url, "http://", "https://", 1)
	}
	return url, err
}

// Admin returns a client for one node, which is not part of the history.
func (l *Lab) Admin(node string) (belfryv1connect.AdminServiceClient, error) {
	url, err := l.URL(Harness, node)
	if err != nil {
		return nil, err
	}
	web := &http.Client{Timeout: askMax}
	if l.secrets != nil {
		web.Transport = l.secrets.transport(node)
	}
	return belfryv1connect.NewAdminServiceClient(web, url), nil
}

// Status asks running nodes for the cluster until one answers.
func (l *Lab) Status(ctx context.Context) (*belfryv1.GetClusterResponse, error) {
	problems := []error{errors.New("no node says how the cluster is")}
	for _, n := range l.Running() {
		status, err := l.statusOf(ctx, n)
		if err == nil {
			return status, nil
		}
		problems = append(problems, err)
	}
	return nil, errors.Join(problems...)
}

// AwaitEverywhere asks each running node for the cluster until all of them say that it is as
// wanted. The error says what was seen last.
func (l *Lab) AwaitEverywhere(ctx context.Context, what string, yes func(*belfryv1.GetClusterResponse) bool) error {
	for _, n := range l.Running() {
		err := await(ctx, what+", as "+n.Name+" says", func(ctx context.Context) (*belfryv1.GetClusterResponse, error) {
			return l.statusOf(ctx, n)
		}, yes)
		if err != nil {
			return err
		}
	}
	return nil
}

// statusOf asks one node for the cluster.
func (l *Lab) statusOf(ctx context.Context, n *Node) (*belfryv1.GetClusterResponse, error) {
	admin, err := l.Admin(n.Name)
	if err != nil {
		return nil, err
	}
	ask, cancel := context.WithTimeout(ctx, askMax)
	defer cancel()
	status, err := admin.GetCluster(ask, &belfryv1.GetClusterRequest{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.Name, err)
	}
	return status, nil
}

// Leader returns a running node that leads as many shards as any other, once there is one that
// leads.
func (l *Lab) Leader(ctx context.Context) (most *Node, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaderMax)
	defer cancel()
	err = l.Await(ctx, "a node that runs and leads", func(status *belfryv1.GetClusterResponse) bool {
		most = leadsMost(status, l.Running())
		return most != nil
	})
	return most, err
}

// CatalogLeader returns a running node that leads the catalog, once there is one.
func (l *Lab) CatalogLeader(ctx context.Context) (leader *Node, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaderMax)
	defer cancel()
	err = l.Await(ctx, "a node that runs and leads the catalog", func(status *belfryv1.GetClusterResponse) bool {
		running := l.Running()
		i := slices.IndexFunc(running, func(n *Node) bool { return n.Name == status.GetCatalog().GetLeader() })
		if i >= 0 {
			leader = running[i]
		}
		return i >= 0
	})
	return leader, err
}

// leadsMost returns the node of some that leads most shards; nil if none leads any.
func leadsMost(status *belfryv1.GetClusterResponse, among []*Node) (most *Node) {
	leads := map[string]int{}
	for _, s := range status.GetShards() {
		leads[s.GetLeader()]++
	}
	for _, n := range among {
		if leads[n.Name] > 0 && (most == nil || leads[n.Name] > leads[most.Name]) {
			most = n
		}
	}
	return most
}

// Await asks for the cluster until it is as wanted. The error says what was seen last.
func (l *Lab) Await(ctx context.Context, what string, yes func(*belfryv1.GetClusterResponse) bool) error {
	return await(ctx, what, l.Status, yes)
}

func await(
	ctx context.Context, what string, look func(context.Context) (*belfryv1.GetClusterResponse, error),
	yes func(*belfryv1.GetClusterResponse) bool,
) error {
	var last *belfryv1.GetClusterResponse
	var lastErr error
	for {
		status, err := look(ctx)
		if err == nil {
			if last = status; yes(status) {
				return nil
			}
		}
		lastErr = err
		select {
		case <-ctx.Done():
			err := fmt.Errorf("waited in vain for %s: %w; problems last seen: %q", what, context.Cause(ctx), last.GetProblems())
			return errors.Join(err, lastErr)
		case <-time.After(lookPause):
		}
	}
}

// Healthy reports whether a cluster is whole. It has no problem, and all its nodes serve. All its
// shards have a leader and exactly their voters. The catalog has the voters that it should have,
// and all of them answer: with one more dead voter, the next loss of a node would cost it the
// majority.
func Healthy(s *belfryv1.GetClusterResponse) bool {
	for _, shard := range s.GetShards() {
		if shard.GetLeader() == "" || uint32(len(shard.GetVoters())) != shard.GetVotersWanted() ||
			len(shard.GetNonvoters()) > 0 {
			return false
		}
	}
	for _, n := range s.GetNodes() {
		if n.GetState() != belfryv1.NodeState_NODE_STATE_LIVE {
			return false
		}
	}
	catalog := s.GetCatalog()
	silent := slices.ContainsFunc(catalog.GetReplicas(), func(r *belfryv1.Replica) bool { return r.GetSilent() })
	return len(s.GetShards()) > 0 && len(s.GetProblems()) == 0 && catalog.GetLeader() != "" && !silent &&
		len(catalog.GetVoters()) == min(len(s.GetNodes()), catalogVotersMax)
}

// Converged reports whether all replicas of all shards have applied the same, with the same digest.
// One that was not heard of has not.
func Converged(s *belfryv1.GetClusterResponse) bool {
	for _, shard := range s.GetShards() {
		if shard.GetDigest() == "" || uint32(len(shard.GetReplicas())) < shard.GetVotersWanted() {
			return false
		}
		for _, r := range shard.GetReplicas() {
			if r.GetAppliedIndex() != shard.GetAppliedIndex() || r.GetDigest() != shard.GetDigest() {
				return false
			}
		}
	}
	return len(s.GetShards()) > 0
}
