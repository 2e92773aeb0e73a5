package node

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// ConditionKind names a condition. The names follow the node conditions of Kubernetes.
type ConditionKind string

// The kinds of conditions.
const (
	// DiskPressure: the disk of the data directory is nearly full.
	DiskPressure ConditionKind = "DISK_PRESSURE"
	// MemoryPressure: the process is near its memory limit.
	MemoryPressure ConditionKind = "MEMORY_PRESSURE"
	// SlowDisk: durable writes take far longer than they should.
	SlowDisk ConditionKind = "SLOW_DISK"
	// Unreachable: most of the other nodes cannot open a connection to this node.
	Unreachable ConditionKind = "UNREACHABLE"
)

// ConditionKinds returns all kinds that this version knows.
func ConditionKinds() []ConditionKind {
	return []ConditionKind{DiskPressure, MemoryPressure, SlowDisk, Unreachable}
}

// Condition is trouble of one node that the others do not share. A node with a condition keeps its
// replicas and votes. It transfers its leaderships to voters without a condition, and receives none
// while there is such a voter.
type Condition struct {
	Kind ConditionKind `json:"kind"`
	// Message is a text for people: the measurement that raised the condition.
	Message string `json:"message"`
	// Since is when the condition began.
	Since time.Time `json:"since"`
}

const (
	// conditionHold is how long the cause of a condition must be gone before the condition ends. It
	// keeps leaderships from going back and forth.
	conditionHold = 30 * time.Second
	// relief is the time after the start of DiskPressure in which the leaderships of this node move
	// to other nodes. Meanwhile calls wait for the next leader.
	relief = 3 * time.Second
	// conditionInterval is the time between two checks of the disk's free space and its writes.
	conditionInterval = time.Second
)

// conditions are the conditions of this node.
type conditions struct {
	logger *slog.Logger

	mu     sync.Mutex
	byKind map[ConditionKind]*raised
}

// raised is a condition that has not ended.
type raised struct {
	Condition
	// clearedAt is when the cause went away; zero while it is present.
	clearedAt time.Time
}

func newConditions(logger *slog.Logger) *conditions {
	return &conditions{logger: logger, byKind: map[ConditionKind]*raised{}}
}

// RaiseCondition reports that the cause of a condition is present. It may be repeated; the latest
// message counts.
func (n *Node) RaiseCondition(kind ConditionKind, message string) { n.conditions.raise(kind, message) }

// ClearCondition reports that the cause of a condition is gone. The condition ends if it is not
// raised again for half a minute. ClearCondition has no effect on a condition that was not raised.
func (n *Node) ClearCondition(kind ConditionKind) { n.conditions.clear(kind) }

// Conditions returns the conditions of this node, in the order of their kinds.
func (n *Node) Conditions() []Condition { return n.conditions.present() }

func (c *conditions) raise(kind ConditionKind, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.byKind[kind]
	if r == nil {
		r = &raised{Condition: Condition{Kind: kind, Since: time.Now()}}
		c.byKind[kind] = r
		c.logger.Warn("this node has a condition; it hands its leaderships over", "condition", string(kind),
			"message", message)
	}
	r.Message, r.clearedAt = message, time.Time{}
}

func (c *conditions) clear(kind ConditionKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.byKind[kind]; r != nil && r.clearedAt.IsZero() {
		r.clearedAt = time.Now()
	}
}

// since returns when a condition began, and false if it is not present.
func (c *conditions) since(kind ConditionKind) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.byKind[kind]; r != nil {
		return r.Since, true
	}
	return time.Time{}, false
}

func (c *conditions) present() []Condition {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Condition
	for kind, r := range c.byKind {
		if !r.clearedAt.IsZero() && time.Since(r.clearedAt) >= conditionHold {
			delete(c.byKind, kind)
			c.logger.Info("a condition of this node has ended", "condition", string(kind), "seconds",
				time.Since(r.Since).Seconds())
			continue
		}
		all = append(all, r.Condition)
	}
	slices.SortFunc(all, func(a, b Condition) int { return strings.Compare(string(a.Kind), string(b.Kind)) })
	return all
}

// runConditions watches the disk until ctx ends.
func (n *Node) runConditions(ctx context.Context) {
	tick := time.NewTicker(conditionInterval)
	defer tick.Stop()
	var disk slowDisk
	for {
		n.observeSpace()
		n.observeAppends(&disk)
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
		if since, ok := n.conditions.since(DiskPressure); ok {
			return time.Since(since) < relief
		}
		n.observeSpace() // the next check may be a second away
	}
	return false
}

// observeSpace raises DiskPressure while too little of the disk is free.
func (n *Node) observeSpace() {
	space := n.space.Stats()
	if !space.Pressure {
		n.ClearCondition(DiskPressure)
		return
	}
	effect := "below it puts are refused"
	switch {
	case space.Exhausted:
		effect = "all that changes something is refused, and its replicas take no entries"
	case space.Scarce:
		effect = "all but acks, cancels and purges is refused"
	case space.Low:
		effect = "puts are refused"
	}
	n.RaiseCondition(DiskPressure, space.Shortage()+": "+effect)
}
