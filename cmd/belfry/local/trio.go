package local

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
	"github.com/belfrydb/belfry/rpc"
	"github.com/belfrydb/belfry/rpc/ui"
)

const (
	// TrioShards is one shard to lead for each node.
	TrioShards = 3
	// trioStartMax is how long three nodes may take to become a cluster: seconds, or a minute on a
	// busy machine.
	trioStartMax = 3 * time.Minute
	// trioLook is the time between two looks at how far they are.
	trioLook = 50 * time.Millisecond
	// trioListen is where each of them listens for clients, peers and gossip: at ports that are free.
	trioListen = "127.0.0.1:0"
)

// Trio is a cluster of three nodes inside this process.
type Trio struct {
	Configs [3]server.Config
	Servers [3]*server.Server // nil while stopped
	Stopped int
}

// WithTrio runs work with a cluster of three nodes, on data directories that it removes afterwards.
// It says how far they are while they form.
func (h Host) WithTrio(ctx context.Context, forming func(voting, all int), work func(*Trio) error) (err error) {
	dir, err := os.MkdirTemp("", "belfry-")
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t := &Trio{}
	for i := range t.Configs {
		name := fmt.Sprintf("n%d", i+1)
		t.Configs[i] = h.OwnServer(filepath.Join(dir, name))
		t.Configs[i].NodeID, t.Configs[i].Shards, t.Configs[i].Alone, t.Configs[i].SteadyAfter = name, TrioShards, false,
			time.Second
		t.Configs[i].Listen, t.Configs[i].PeerListen, t.Configs[i].GossipListen = trioListen, trioListen, trioListen
		t.Configs[i].Dashboard.Mode = rpc.DashboardOn
	}
	defer func() { err = errors.Join(err, t.stop(context.WithoutCancel(ctx))) }()
	if err := t.start(ctx, forming); err != nil {
		return err
	}
	return work(t)
}

// start starts the nodes and waits until each leads a shard and votes in all.
func (t *Trio) start(ctx context.Context, forming func(voting, all int)) (err error) {
	for i := range t.Configs {
		if i > 0 {
			t.Configs[i].Join = []string{t.Servers[0].GossipAddress()}
		}
		if t.Servers[i], err = server.Start(ctx, t.Configs[i]); err != nil {
			return fmt.Errorf("starting node %s: %w", t.Configs[i].NodeID, err)
		}
		t.Configs[i].Listen = t.Servers[i].Address() // also when it starts again
		t.Configs[i].PeerListen, t.Configs[i].GossipListen = t.Servers[i].PeerAddress(), t.Servers[i].GossipAddress()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, trioStartMax,
		fmt.Errorf("the three nodes did not become a cluster in %s", trioStartMax))
	defer cancel()
	look := time.NewTicker(trioLook)
	defer look.Stop()
	for {
		voting, even := t.progress()
		forming(voting, TrioShards*len(t.Servers))
		if even && voting == TrioShards*len(t.Servers) {
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
func (t *Trio) progress() (voting int, even bool) {
	even = true
	for _, s := range t.Servers {
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

// Urls returns where clients reach the nodes.
func (t *Trio) Urls() string {
	var all []string
	for _, s := range t.Servers {
		all = append(all, s.URL())
	}
	return strings.Join(all, ",")
}

// Dashboard returns the address of the dashboard at a node that StopLeader would not stop for a queue,
// as things are now.
func (t *Trio) Dashboard(queue string) string {
	for _, s := range t.Servers {
		if s != nil && !s.Leads(queue) {
			return s.URL() + ui.DefaultPath
		}
	}
	return ""
}

// StopLeader implements demo.Nodes.
func (t *Trio) StopLeader(ctx context.Context, queue string) (string, error) {
	for i, s := range t.Servers {
		if s != nil && s.Leads(queue) {
			t.Stopped, t.Servers[i] = i, nil
			return t.Configs[i].NodeID, s.Stop(ctx)
		}
	}
	return "", fmt.Errorf("no node leads queue %s", queue)
}

// StartAgain implements demo.Nodes. A node whose ports were taken meanwhile starts at others:
// clients know the other two nodes, and those find it by gossip.
func (t *Trio) StartAgain(ctx context.Context) (name string, err error) {
	cfg := t.Configs[t.Stopped]
	t.Servers[t.Stopped], err = server.Start(ctx, cfg)
	if errors.Is(err, syscall.EADDRINUSE) {
		cfg.Listen, cfg.PeerListen, cfg.GossipListen = trioListen, trioListen, trioListen
		t.Servers[t.Stopped], err = server.Start(ctx, cfg)
	}
	return cfg.NodeID, err
}

// stop stops the nodes that run.
func (t *Trio) stop(ctx context.Context) error {
	var problems []error
	for _, s := range t.Servers {
		if s != nil {
			problems = append(problems, s.Stop(ctx))
		}
	}
	return errors.Join(problems...)
}
