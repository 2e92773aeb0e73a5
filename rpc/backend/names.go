package backend

import (
	"strconv"
	"strings"
)

// CatalogGroup is the name of the catalog's group in statuses.
const CatalogGroup = "catalog"

// ShardGroupPrefix begins the names of the shards' groups.
const ShardGroupPrefix = "shard-"

// ShardGroup returns the name of a shard's group.
func ShardGroup(shard int) string { return ShardGroupPrefix + strconv.Itoa(shard) }

// NodeNames returns the names in server ids.
func NodeNames(servers []string) (all []string) {
	for _, id := range servers {
		name, _ := SplitServer(id)
		all = append(all, name)
	}
	return all
}

// SplitServer splits a Raft server id, name.incarnation. A name has no dot.
func SplitServer(id string) (name, incarnation string) {
	name, incarnation, _ = strings.Cut(id, ".")
	return name, incarnation
}
