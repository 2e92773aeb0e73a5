// Package quota divides the quotas of namespaces among the shards of a cluster, so that the shards
// of a namespace together never use more than its quota. A Record holds the division. The rules
// that change it are pure. An Allocator applies them on the node that leads a shard. See DESIGN.md
// beside this file.
package quota
