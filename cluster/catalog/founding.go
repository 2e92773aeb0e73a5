package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// Founder is one of the nodes that found a cluster together.
type Founder struct {
	ServerID, Zone string
}

// FoundingConfig is the description of a new cluster of several nodes.
type FoundingConfig struct {
	// Founders are the nodes. The first one makes the cluster's id.
	Founders []Founder
	Shards   int
	// Settings are the first settings of the cluster; a zero stands for the default.
	Settings Settings
	// RequiresTokens says that the first founder requires tokens of its callers.
	RequiresTokens bool
}

// foundingSettings is the content of node.Founding.Settings.
type foundingSettings struct {
	Settings       Settings `json:"settings"`
	RequiresTokens bool     `json:"guarded,omitempty"`
}

// FoundingFormat is the format that a cluster founded by several nodes speaks from the start. All
// founders read it.
const FoundingFormat fsm.Format = 2

// VotersMax is the largest number of the catalog's voters. All other nodes follow it without
// a vote.
const VotersMax = 5

// NewFounding plans a cluster that several nodes found together. Each shard has as many voters as
// the replication factor says, if there are enough nodes. The voters are spread over zones, and
// evenly over nodes. The voters of the catalog are the first five nodes. MinVoters is a majority of
// a shard's voters, unless it is set.
func NewFounding(cfg FoundingConfig) (*node.Founding, error) {
	first := cfg.Settings.withDefaults()
	f := &node.Founding{Format: FoundingFormat}
	for _, founder := range cfg.Founders {
		f.Servers = append(f.Servers, founder.ServerID)
	}
	for at := range min(len(f.Servers), VotersMax) {
		f.Groups = append(f.Groups, at)
	}
	held, leads := make([]int, len(f.Servers)), make([]int, len(f.Servers))
	for range cfg.Shards {
		var voters []int
		zones := map[string]int{}
		for range min(len(f.Servers), first.Factor) {
			at := leastOf(len(f.Servers), func(i int) bool { return !slices.Contains(voters, i) }, func(a, b int) int {
				return cmp.Or(cmp.Compare(zones[cfg.Founders[a].Zone], zones[cfg.Founders[b].Zone]), cmp.Compare(held[a], held[b]))
			})
			voters = append(voters, at)
			zones[cfg.Founders[at].Zone]++
			held[at]++
		}
		slices.SortStableFunc(voters, func(a, b int) int { return cmp.Compare(leads[a], leads[b]) })
		leads[voters[0]]++
		f.Shards = append(f.Shards, voters)
	}
	if cfg.Settings.MinVoters == 0 {
		cfg.Settings.MinVoters = min(len(f.Servers), first.Factor)/2 + 1
	}
	settings, err := json.Marshal(foundingSettings{Settings: cfg.Settings, RequiresTokens: cfg.RequiresTokens})
	if err != nil {
		return nil, fmt.Errorf("encoding the first settings of the cluster: %w", err)
	}
	f.Settings = settings
	return f, nil
}

// leastOf returns the least of the permitted numbers below n, and the first of several that are
// equal.
func leastOf(n int, may func(int) bool, compare func(a, b int) int) int {
	best := -1
	for i := range n {
		if may(i) && (best < 0 || compare(i, best) < 0) {
			best = i
		}
	}
	return best
}

// recordPause is the time between two attempts to record how the cluster was founded.
const recordPause = 100 * time.Millisecond

// RecordFounding adds a cluster that several nodes founded to the catalog. The catalog's leader
// calls it before placement begins. It goes on until it has succeeded or ctx ends. It writes the
// record of the cluster last, so that the next leader repeats an interrupted attempt. resolve
// returns the addresses of a server, the likeliest first.
func (c *Catalog) RecordFounding(
	ctx context.Context, f *node.Founding, resolve func(serverID string) ([]string, error),
) {
	for !c.Recorded() {
		err := c.recordFounded(ctx, f, resolve)
		if err == nil || ctx.Err() != nil {
			return
		}
		c.logger.Warn("recording the cluster that was founded", "error", err)
		select {
		case <-time.After(recordPause):
		case <-ctx.Done():
			return
		}
	}
}

// Recorded reports whether the catalog here has the record of its cluster.
func (c *Catalog) Recorded() (recorded bool) {
	c.view(func(m *machine) { recorded = m.state.Foundation != (foundation{}) })
	return recorded
}

// recordFounded is one attempt of RecordFounding.
func (c *Catalog) recordFounded(
	ctx context.Context, f *node.Founding, resolve func(serverID string) ([]string, error),
) error {
	nodes, placements := c.Nodes(), c.Placements()
	var first foundingSettings
	if err := json.Unmarshal(f.Settings, &first); err != nil {
		return fmt.Errorf("reading the first settings of the cluster: %w", err)
	}
	var commands []command
	for i, server := range f.Servers {
		n := Node{Name: NameOf(server), ServerID: server, Format: FoundingFormat,
			RequiresTokens: first.RequiresTokens && i == 0}
		if server == c.self.ServerID {
			n = c.self
		} else if addrs, err := resolve(server); err == nil {
			n.PeerAddr = addrs[0]
		}
		if !slices.ContainsFunc(nodes, func(n Node) bool { return n.ServerID == server }) {
			commands = append(commands, command{Join: &n})
		}
	}
	for shard := range uint32(c.found.Shards) { //nolint:gosec // at most 1,024
		if !slices.ContainsFunc(placements, func(p Placement) bool { return p.Shard == shard }) {
			commands = append(commands, command{Place: &Placement{Shard: shard, Servers: f.Voters(ShardGroup(shard))}})
		}
	}
	commands = append(commands, command{Raise: &raise{FoundingFormat}}, command{Settle: &first.Settings},
		command{Found: &c.found})
	for _, cmd := range commands {
		if cmd.Join != nil {
			cmd.Silent = c.namesakes(cmd.Join)
		}
		out, err := c.propose(ctx, cmd)
		if err != nil {
			return err
		}
		if out.verdict != done && out.verdict != gone {
			return errors.New("the catalog refused what the cluster was founded with")
		}
	}
	return nil
}

// namesakes returns the other recorded servers of a node's name. A founder that lost its disk may
// have been admitted as a new node before it was recorded as a founder. It must be recorded
// nevertheless, because its places go to the new node.
func (c *Catalog) namesakes(of *Node) (servers []string) {
	for _, n := range c.Nodes() {
		if n.Name == of.Name && n.ServerID != of.ServerID {
			servers = append(servers, n.ServerID)
		}
	}
	return servers
}
