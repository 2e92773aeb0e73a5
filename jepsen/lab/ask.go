package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
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
)

// URL returns where a client reaches a node. Every client has a way of its own.
func (l *Lab) URL(client, node string) (string, error) { return l.cfg.Network.ClientURL(client, node) }

// Admin returns a client for one node, which is not part of the history.
func (l *Lab) Admin(node string) (belfryv1connect.AdminServiceClient, error) {
	url, err := l.cfg.Network.ClientURL(Harness, node)
	if err != nil {
		return nil, err
	}
	return belfryv1connect.NewAdminServiceClient(&http.Client{Timeout: askMax}, url), nil
}

// Status asks running nodes for the cluster until one answers.
func (l *Lab) Status(ctx context.Context) (*belfryv1.GetClusterResponse, error) {
	problems := []error{errors.New("no node says how the cluster is")}
	for _, n := range l.Running() {
		admin, err := l.Admin(n.Name)
		if err != nil {
			return nil, err
		}
		ask, cancel := context.WithTimeout(ctx, askMax)
		status, err := admin.GetCluster(ask, &belfryv1.GetClusterRequest{})
		cancel()
		if err == nil {
			return status, nil
		}
		problems = append(problems, fmt.Errorf("%s: %w", n.Name, err))
	}
	return nil, errors.Join(problems...)
}

// Leader returns a running node that leads as many shards as any other.
func (l *Lab) Leader(ctx context.Context) (*Node, error) {
	status, err := l.Status(ctx)
	if err != nil {
		return nil, err
	}
	leads := map[string]int{}
	for _, s := range status.GetShards() {
		leads[s.GetLeader()]++
	}
	up := l.Running()
	if len(up) == 0 {
		return nil, errors.New("no node runs")
	}
	return slices.MaxFunc(up, func(a, b *Node) int { return leads[a.Name] - leads[b.Name] }), nil
}

// Await asks for the cluster until it is as wanted. The error says what was seen last.
func (l *Lab) Await(ctx context.Context, what string, yes func(*belfryv1.GetClusterResponse) bool) error {
	var last *belfryv1.GetClusterResponse
	var lastErr error
	for {
		status, err := l.Status(ctx)
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

// Healthy reports whether a cluster has no problem, and all its shards have a leader, their voters, and nobody else.
func Healthy(s *belfryv1.GetClusterResponse) bool {
	for _, shard := range s.GetShards() {
		if shard.GetLeader() == "" || uint32(len(shard.GetVoters())) != shard.GetVotersWanted() || len(shard.GetNonvoters()) > 0 {
			return false
		}
	}
	return len(s.GetShards()) > 0 && len(s.GetProblems()) == 0 && s.GetCatalog().GetLeader() != ""
}

// Converged reports whether all replicas of all shards have applied the same, with the same digest. One that was not heard of has not.
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
