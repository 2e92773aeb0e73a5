// Package clock keeps time for shards and nodes.
//
// A [Source] is the system's clock, or a test's. A [Node] follows its wall clock and steps only
// when that is agreed upon. A [Shard] gives the timestamps of one shard, which never decrease. A
// [Comparer] compares the clocks of nodes. DESIGN.md has the rules.
package clock
