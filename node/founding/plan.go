// Package founding holds the plan of a cluster that several nodes found together. The nodes agree
// on it before the cluster exists, and tell it to nodes that join. It also has the names of the
// shards' groups, because the plan says which nodes vote in which group.
package founding

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/belfrydb/belfry/fsm"
)

// ShardsMax is the largest number of shards of a cluster.
const ShardsMax = 1024

// ShardPrefix begins the names of the shards' groups. No other group may have such a name.
const ShardPrefix = "shard-"

// ShardGroup returns the name of a shard's group.
func ShardGroup(shard uint32) string { return fmt.Sprintf("%s%d", ShardPrefix, shard) }

// Plan describes the start of a cluster that several nodes found together. It is made once, is
// the same on all of them, and never changes. Each of them writes the same first configuration,
// with all first voters, into the log of each group. So no group ever has fewer voters, and no
// entry is committed before a majority of them has it on disk.
type Plan struct {
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
	// Settings are the first settings of the cluster. Package cluster writes and reads them.
	Settings json.RawMessage `json:"settings,omitempty"`
}

// bytesMax bounds an encoded Plan, so that it fits into the answer to a stranger. 1,024
// shards with seven voters each fit.
const bytesMax = 60 << 10

// Check returns an error if the plan is not valid for so many shards.
func (f *Plan) Check(shards int) error {
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
	if size := len(f.Encode()); size > bytesMax {
		return fmt.Errorf("the founding takes %d bytes, at most %d: found the cluster with fewer nodes or shards",
			size, bytesMax)
	}
	return nil
}

// Encode returns the plan in the form in which nodes send it to each other.
func (f *Plan) Encode() []byte {
	data, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Sprintf("node: a founding cannot be encoded: %v", err)) // strings, integers, and JSON that was decoded
	}
	return data
}

// Voters returns the server ids of the first voters of a group; nil for a shard that the plan does
// not have.
func (f *Plan) Voters(group string) (voters []string) {
	first := f.Groups
	if number, isShard := strings.CutPrefix(group, ShardPrefix); isShard {
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
