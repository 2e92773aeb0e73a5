package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/server"
)

const (
	// trioShards is one shard to lead for each node.
	trioShards = 3
	// trioStartMax is how long three nodes may take to become a cluster: seconds, or a minute on a busy machine.
	trioStartMax = 3 * time.Minute
	// trioLook is the time between two looks at how far they are.
	trioLook = 50 * time.Millisecond
	// trioListen is where each of them listens for clients, peers and gossip: at ports that are free.
	trioListen = "127.0.0.1:0"
)

// trio is a cluster of three nodes inside this process.
type trio struct {
	configs [3]server.Config
	servers [3]*server.Server // nil while stopped
	stopped int
}

// withTrio runs work with a cluster of three nodes, on data directories that it removes afterwards. It says how far they are while they form.
func (a *app) withTrio(ctx context.Context, forming func(voting, all int), work func(*trio) error) (err error) {
	dir, err := os.MkdirTemp("", "belfry-")
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t := &trio{}
	for i := range t.configs {
		name := fmt.Sprintf("n%d", i+1)
		t.configs[i] = a.ownServer(filepath.Join(dir, name))
		t.configs[i].NodeID, t.configs[i].Shards, t.configs[i].Alone, t.configs[i].SteadyAfter = name, trioShards, false, time.Second
		t.configs[i].Listen, t.configs[i].PeerListen, t.configs[i].GossipListen = trioListen, trioListen, trioListen
	}
	defer func() { err = errors.Join(err, t.stop(context.WithoutCancel(ctx))) }()
	if err := t.start(ctx, forming); err != nil {
		return err
	}
	return work(t)
}

// start starts the nodes and waits until each leads a shard and votes in all.
func (t *trio) start(ctx context.Context, forming func(voting, all int)) (err error) {
	for i := range t.configs {
		if i > 0 {
			t.configs[i].Join = []string{t.servers[0].GossipAddress()}
		}
		if t.servers[i], err = server.Start(ctx, t.configs[i]); err != nil {
			return fmt.Errorf("starting node %s: %w", t.configs[i].NodeID, err)
		}
		t.configs[i].Listen = t.servers[i].Address() // also when it starts again
		t.configs[i].PeerListen, t.configs[i].GossipListen = t.servers[i].PeerAddress(), t.servers[i].GossipAddress()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, trioStartMax, fmt.Errorf("the three nodes did not become a cluster in %s", trioStartMax))
	defer cancel()
	look := time.NewTicker(trioLook)
	defer look.Stop()
	for {
		voting, even := t.progress()
		forming(voting, trioShards*len(t.servers))
		if even && voting == trioShards*len(t.servers) {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// progress returns how many replicas vote, and whether each node leads a shard.
func (t *trio) progress() (voting int, even bool) {
	even = true
	for _, s := range t.servers {
		leads := 0
		for _, shard := range s.Status().Shards {
			if shard.Serving {
				leads++
				voting += len(shard.Voters)
			}
		}
		even = even && leads == 1
	}
	return voting, even
}

// urls returns where clients reach the nodes.
func (t *trio) urls() string {
	var all []string
	for _, s := range t.servers {
		all = append(all, s.URL())
	}
	return strings.Join(all, ",")
}

// StopLeader implements demo.Nodes.
func (t *trio) StopLeader(ctx context.Context, queue string) (string, error) {
	for i, s := range t.servers {
		if s != nil && s.Leads(queue) {
			t.stopped, t.servers[i] = i, nil
			return t.configs[i].NodeID, s.Stop(ctx)
		}
	}
	return "", fmt.Errorf("no node leads queue %s", queue)
}

// StartAgain implements demo.Nodes. A node whose ports were taken meanwhile starts at others: clients know the other two nodes, and those find it by gossip.
func (t *trio) StartAgain(ctx context.Context) (name string, err error) {
	cfg := t.configs[t.stopped]
	t.servers[t.stopped], err = server.Start(ctx, cfg)
	if errors.Is(err, syscall.EADDRINUSE) {
		cfg.Listen, cfg.PeerListen, cfg.GossipListen = trioListen, trioListen, trioListen
		t.servers[t.stopped], err = server.Start(ctx, cfg)
	}
	return cfg.NodeID, err
}

// stop stops the nodes that run.
func (t *trio) stop(ctx context.Context) error {
	var problems []error
	for _, s := range t.servers {
		if s != nil {
			problems = append(problems, s.Stop(ctx))
		}
	}
	return errors.Join(problems...)
}
