// Package conditions keeps the troubles of one node that other nodes do not share, and tells two of
// them from measurements: a disk that is nearly full and a disk that is slow. It knows no groups.
package conditions

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// Kind names a condition. The names follow the node conditions of Kubernetes.
type Kind string

// The kinds of conditions.
const (
	// DiskPressure: the disk of the data directory is nearly full.
	DiskPressure Kind = "DISK_PRESSURE"
	// MemoryPressure: the process is near its memory limit.
	MemoryPressure Kind = "MEMORY_PRESSURE"
	// SlowDisk: durable writes take far longer than they should.
	SlowDisk Kind = "SLOW_DISK"
	// Unreachable: most of the other nodes cannot open a connection to this node.
	Unreachable Kind = "UNREACHABLE"
)

// Kinds returns all kinds that this version knows.
func Kinds() []Kind {
	return []Kind{DiskPressure, MemoryPressure, SlowDisk, Unreachable}
}

// Condition is trouble of one node that the others do not share. A node with a condition keeps its
// replicas and votes. It transfers its leaderships to voters without a condition, and receives none
// while there is such a voter.
type Condition struct {
	Kind Kind `json:"kind"`
	// Message is a text for people: the measurement that raised the condition.
	Message string `json:"message"`
	// Since is when the condition began.
	Since time.Time `json:"since"`
}

// hold is how long the cause of a condition must be gone before the condition ends. It keeps
// leaderships from going back and forth.
const hold = 30 * time.Second

// Set holds the conditions of this node. Its methods may be called from any goroutine.
type Set struct {
	logger *slog.Logger

	mu     sync.Mutex
	byKind map[Kind]*raised
}

// raised is a condition that has not ended.
type raised struct {
	Condition
	// clearedAt is when the cause went away; zero while it is present.
	clearedAt time.Time
}

// NewSet returns a set without conditions. It logs when a condition begins and when it ends.
func NewSet(logger *slog.Logger) *Set {
	return &Set{logger: logger, byKind: map[Kind]*raised{}}
}

// Raise reports that the cause of a condition is present. It may be repeated; the latest message
// counts.
func (c *Set) Raise(kind Kind, message string) {
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

// Clear reports that the cause of a condition is gone. The condition ends if it is not raised again
// for half a minute. Clear has no effect on a condition that was not raised.
func (c *Set) Clear(kind Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.byKind[kind]; r != nil && r.clearedAt.IsZero() {
		r.clearedAt = time.Now()
	}
}

// Since returns when a condition began, and false if it is not present.
func (c *Set) Since(kind Kind) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.byKind[kind]; r != nil {
		return r.Since, true
	}
	return time.Time{}, false
}

// Present returns the conditions in the order of their kinds.
func (c *Set) Present() []Condition {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Condition
	for kind, r := range c.byKind {
		if !r.clearedAt.IsZero() && time.Since(r.clearedAt) >= hold {
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

// ObserveSpace raises DiskPressure while too little of the disk is free.
func (c *Set) ObserveSpace(space disk.SpaceStats) {
	if !space.Pressure {
		c.Clear(DiskPressure)
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
	c.Raise(DiskPressure, space.Shortage()+": "+effect)
}
