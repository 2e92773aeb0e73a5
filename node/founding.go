package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/storage"
)

// Founding describes the start of a cluster that several nodes found together. It is made once, is
// the same on all of them, and never changes. Each of them writes the same first configuration,
// with all first voters, into the log of each group. So no group ever has fewer voters, and no
// entry is committed before a majority of them has it on disk.
type Founding struct {
	// Servers are the server ids of the founding nodes.
	Servers []string `json:"servers"`
	// Shards are the first voters of each shard, as positions in Servers. The first voter of a
	// shard stands for election first.
	Shards [][]int `json:"shards"`
	// Groups are the first voters of each group besides the shards, in the same form.
	Groups []int `json:"groups"`
	// Format is the format of their logs from the first entry on; 0 is the first format. All of
	// them can read it.
	Format fsm.Format `json:"format,omitempty"`
	// Settings are the first settings of the cluster. This package only keeps them.
	Settings json.RawMessage `json:"settings,omitempty"`
}

// foundingBytesMax bounds an encoded Founding, so that it fits into the answer to a stranger. 1,024
// shards with seven voters each fit.
const foundingBytesMax = 60 << 10

// check returns an error if the founding is not valid for so many shards.
func (f *Founding) check(shards int) error {
	if len(f.Shards) != shards {
		return fmt.Errorf("the founding names voters for %d shards, not %d", len(f.Shards), shards)
	}
	if err := f.Format.Readable(); err != nil && f.Format != 0 {
		return fmt.Errorf("the founding: %w", err)
	}
	for _, voters := range append(slices.Clone(f.Shards), f.Groups) {
		if len(voters) == 0 {
			return errors.New("the founding names no voters for a group")
		}
		for i, at := range voters {
			if at < 0 || at >= len(f.Servers) || slices.Contains(voters[:i], at) {
				return fmt.Errorf("the founding names voter %d of %d servers", at, len(f.Servers))
			}
		}
	}
	if size := len(f.encode()); size > foundingBytesMax {
		return fmt.Errorf("the founding takes %d bytes, at most %d: found the cluster with fewer nodes or shards", size, foundingBytesMax)
	}
	return nil
}

// encode returns the founding in the form in which nodes send it to each other.
func (f *Founding) encode() []byte {
	data, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Sprintf("node: a founding cannot be encoded: %v", err)) // strings, integers, and JSON that was decoded
	}
	return data
}

// Voters returns the server ids of the first voters of a group.
func (f *Founding) Voters(group string) (voters []string) {
	first := f.Groups
	if number, isShard := strings.CutPrefix(group, shardPrefix); isShard {
		shard, err := strconv.Atoi(number)
		if err != nil || shard >= len(f.Shards) {
			return nil
		}
		first = f.Shards[shard]
	}
	for _, at := range first {
		voters = append(voters, f.Servers[at])
	}
	return voters
}

// firstVoters returns the first voters of a group that this node founds, alone or with others. It
// returns nil if this node does not found the group.
func (id *identity) firstVoters(group string) []string {
	switch {
	case id.Founder:
		return []string{id.serverID()}
	case id.Founding == nil:
		return nil
	}
	voters := id.Founding.Voters(group)
	if !slices.Contains(voters, id.serverID()) {
		return nil
	}
	return voters
}

// Founding returns the founding of this node's cluster; nil if one node founded it.
func (n *Node) Founding() *Founding { return n.id.Founding }

const (
	// foundersPause is the first pause between two checks whether the other founders of a group
	// have started it. It doubles up to foundersPauseMax. foundersLook bounds one check.
	foundersPause    = 50 * time.Millisecond
	foundersPauseMax = 400 * time.Millisecond
	foundersLook     = 500 * time.Millisecond
)

// founds returns the first voters of a group that this node founds. It returns nil if this node
// does not found the group, or if the group is known to be here or to have left.
func (g *group) founds() []string {
	if g.node.holds(g.name) || g.node.hasLeft(g.name) {
		return nil
	}
	return g.node.id.firstVoters(g.name)
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
		first.Servers = append(first.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
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
func (g *group) standWhenFounded(ctx context.Context, voters []string) {
	if voters[0] != g.node.id.serverID() {
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
		if _, leader := g.instance().LeaderWithID(); leader != "" || !sleep(ctx, pause) {
			return
		}
	}
	if err := g.stand(); err != nil {
		g.note("standing for election", err)
	}
}

// reached counts the servers that have started the group.
func (g *group) reached(ctx context.Context, servers []string) int {
	ctx, cancel := context.WithTimeout(ctx, foundersLook)
	defer cancel()
	transport := g.instance().transport
	var there atomic.Int32
	var asking sync.WaitGroup
	for _, server := range servers {
		asking.Go(func() {
			if transport.reach(ctx, raft.ServerID(server)) == nil {
				there.Add(1)
			}
		})
	}
	asking.Wait()
	return int(there.Load())
}
