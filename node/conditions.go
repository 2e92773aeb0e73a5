package node

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/node/conditions"
)

// ConditionKind names a condition.
type ConditionKind = conditions.Kind

// Condition is trouble of one node that the others do not share.
type Condition = conditions.Condition

// The kinds of conditions.
const (
	DiskPressure   = conditions.DiskPressure
	MemoryPressure = conditions.MemoryPressure
	SlowDisk       = conditions.SlowDisk
	Unreachable    = conditions.Unreachable
)

// ConditionKinds returns all kinds that this version knows.
func ConditionKinds() []ConditionKind { return conditions.Kinds() }

const (
	// relief is the time after the start of DiskPressure in which the leaderships of this node move
	// to other nodes. Meanwhile calls wait for the next leader.
	relief = 3 * time.Second
	// conditionInterval is the time between two checks of the disk's free space and its writes.
	conditionInterval = time.Second
)

// RaiseCondition reports that the cause of a condition is present. It may be repeated; the latest
// message counts.
func (n *Node) RaiseCondition(kind ConditionKind, message string) { n.conditions.Raise(kind, message) }

// ClearCondition reports that the cause of a condition is gone. The condition ends if it is not
// raised again for half a minute. ClearCondition has no effect on a condition that was not raised.
func (n *Node) ClearCondition(kind ConditionKind) { n.conditions.Clear(kind) }

// Conditions returns the conditions of this node, in the order of their kinds.
func (n *Node) Conditions() []Condition { return n.conditions.Present() }

// runConditions watches the disk until ctx ends.
func (n *Node) runConditions(ctx context.Context) {
	tick := time.NewTicker(conditionInterval)
	defer tick.Stop()
	var times conditions.AppendTimes
	for {
		n.observeSpace()
		n.observeAppends(&times)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// relieved reports whether DiskPressure began a moment ago.
func (n *Node) relieved() bool {
	for range 2 {
		if since, ok := n.conditions.Since(DiskPressure); ok {
			return time.Since(since) < relief
		}
		n.observeSpace() // the next check may be a second away
	}
	return false
}

// observeSpace raises DiskPressure while too little of the disk is free.
func (n *Node) observeSpace() { n.conditions.ObserveSpace(n.space.Stats()) }

// observeAppends raises SlowDisk while the appends to the logs of all groups take long.
func (n *Node) observeAppends(times *conditions.AppendTimes) {
	var now conditions.Appends
	for _, g := range n.allGroups() {
		stats := g.StorageStats()
		now.Count += stats.Log.Append.Count
		now.Took += stats.Log.Append.Sum
	}
	times.Observe(n.conditions, now)
}
