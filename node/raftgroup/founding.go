package raftgroup

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage"
)

const (
	// foundersPause is the first pause between two checks whether the other founders of a group
	// have started it. It doubles up to foundersPauseMax. foundersLook bounds one check.
	foundersPause    = 50 * time.Millisecond
	foundersPauseMax = 400 * time.Millisecond
	foundersLook     = 500 * time.Millisecond
)

// founds returns the first voters of a group that this node founds. It returns nil if this node
// does not found the group, or if the group is known to be here or to have left.
func (g *Group) founds() []string {
	if g.cfg.Known() {
		return nil
	}
	return g.cfg.FirstVoters
}

// found writes the first voters into the log of a group without entries. Unlike Raft's own
// function, it completes an interrupted attempt: Raft's function writes a term first, and then
// takes the group for founded.
func found(stores *storage.Stores, voters []string) error {
	last, err := stores.Log.LastIndex()
	if err != nil {
		return fmt.Errorf("reading the last index: %w", err)
	}
	if _, ok := stores.Snapshots.Newest(); ok || last > 0 {
		return nil
	}
	if err := stores.Stable.SetUint64([]byte("CurrentTerm"), 1); err != nil {
		return fmt.Errorf("writing the first term: %w", err)
	}
	var first raft.Configuration
	for _, id := range voters {
		first.Servers = append(first.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(id),
			Address: raft.ServerAddress(id)})
	}
	entry := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(first)}
	if err := stores.Log.StoreLog(entry); err != nil {
		return fmt.Errorf("writing the first configuration: %w", err)
	}
	return nil
}

// standWhenFounded makes the first voter of a new group stand for election once a majority of the
// voters has started the group, unless the group has a leader by then. An earlier campaign would
// fail, and the next would come only an election timeout later. The other voters stand when they
// miss a leader.
func (g *Group) standWhenFounded(ctx context.Context, voters []string) {
	if voters[0] != g.cfg.Self {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g.running.Go(func() {
		select {
		case <-g.done:
			cancel()
		case <-ctx.Done():
		}
	})
	for pause := foundersPause; g.reached(ctx, voters[1:])+1 <= len(voters)/2; pause = min(2*pause, foundersPauseMax) {
		if _, leader := g.instance().LeaderWithID(); leader != "" {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
	if err := g.stand(); err != nil {
		g.Note("standing for election", err)
	}
}

// reached counts the servers that have started the group.
func (g *Group) reached(ctx context.Context, servers []string) int {
	ctx, cancel := context.WithTimeout(ctx, foundersLook)
	defer cancel()
	transport := g.instance().transport
	var there atomic.Int32
	var asking sync.WaitGroup
	for _, server := range servers {
		asking.Go(func() {
			if transport.Reach(ctx, raft.ServerID(server)) == nil {
				there.Add(1)
			}
		})
	}
	asking.Wait()
	return int(there.Load())
}
