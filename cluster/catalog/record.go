package catalog

import (
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// QueueState is the state of a queue between its creation and its deletion.
type QueueState string

// The states.
const (
	// Creating: the record exists, but not every shard concerned knows of the queue yet.
	Creating QueueState = "creating"
	// Active: all partitions were opened.
	Active QueueState = "active"
	// Deleting: the queue's settings and jobs do not count any more. The record stays until no
	// shard holds a part of the queue.
	Deleting QueueState = "deleting"
)

// QueueConfig is the record of a queue. A queue without a record has one partition, in its home
// shard, and default settings.
type QueueConfig struct {
	Name       string
	Partitions uint32
	State      QueueState
	// Version is the index of the last change of the settings in the catalog's log. It grows with
	// every change, also across deletion and a new creation.
	Version  uint64
	Settings fsm.Settings
}

// Node is the record of a node.
type Node struct {
	Name     string `json:"name"`
	ServerID string `json:"serverId"`
	// PeerAddr is where its peers reach the node; empty if it does not listen for peers.
	PeerAddr string `json:"peerAddr,omitempty"`
	// ClientAddr is where clients reach the node. Zone is its failure domain.
	ClientAddr string `json:"clientAddr,omitempty"`
	Zone       string `json:"zone,omitempty"`
	// Format is the latest format that the node reads; 0 is the first.
	Format fsm.Format `json:"format,omitempty"`
	// Draining: placement empties the node.
	Draining bool `json:"draining,omitempty"`
	// RequiresTokens: the node requires tokens of its callers. While one node of a cluster does, all
	// do.
	RequiresTokens bool `json:"guarded,omitempty"`
}

// Placement records the nodes that should run a replica of a shard: its members in Raft, those
// about to become members, and those about to leave. A node starts and stops its replicas by it.
type Placement struct {
	Shard uint32 `json:"shard"`
	// Servers are server ids in order.
	Servers []string `json:"servers"`
}

// clone returns a copy that shares no memory.
func (p Placement) clone() Placement {
	p.Servers = slices.Clone(p.Servers)
	return p
}

// queueRecord and settingsRecord are the stored form of the records. The names are part of the
// format. Fields may be added; no field may change its meaning. A test fills every field by
// reflection, so that it notices a setting that is not stored.
type queueRecord struct {
	Name       string         `json:"name"`
	Partitions uint32         `json:"partitions"`
	State      QueueState     `json:"state"`
	Version    uint64         `json:"version"`
	Settings   settingsRecord `json:"settings"`
}

type settingsRecord struct {
	TTR            time.Duration     `json:"ttrNanos,omitempty"`
	MaxAttempts    uint32            `json:"maxAttempts,omitempty"`
	MaxAttemptsSet bool              `json:"maxAttemptsSet,omitempty"`
	RetryDelays    []time.Duration   `json:"retryDelaysNanos,omitempty"`
	DedupWindow    time.Duration     `json:"dedupWindowNanos,omitempty"`
	DedupWindowSet bool              `json:"dedupWindowSet,omitempty"`
	DedupForever   bool              `json:"dedupForever,omitempty"`
	MaxInFlight    uint64            `json:"maxInFlight,omitempty"`
	MaxJobs        uint64            `json:"maxJobs,omitempty"`
	MaxBytes       uint64            `json:"maxBytes,omitempty"`
	PutsPerSecond  uint64            `json:"putsPerSecond,omitempty"`
	Overdue        fsm.OverduePolicy `json:"overdue,omitempty"`
	OverduePeriod  time.Duration     `json:"overduePeriodNanos,omitempty"`
	OverdueAfter   time.Duration     `json:"overdueAfterNanos,omitempty"`
	ExpireToDead   bool              `json:"expireToDead,omitempty"`
	Paused         bool              `json:"paused,omitempty"`
	PausedUntil    fsm.Time          `json:"pausedUntilNanos,omitempty"`
	Keys           fsm.KeySettings   `json:"keys,omitzero"`
}

// config returns the record as callers see it. It shares no memory with r.
func (r *queueRecord) config() QueueConfig {
	return QueueConfig{
		Name: r.Name, Partitions: r.Partitions, State: r.State, Version: r.Version,
		Settings: fsm.Settings(r.Settings).Clone(),
	}
}
