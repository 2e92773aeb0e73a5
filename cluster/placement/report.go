package placement

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// GroupReport is a node's report of its replica of a group.
type GroupReport struct {
	Group string `json:"group"`
	// Serving: this node leads the group and serves. Then Voters, Nonvoters and Commit are those of
	// the group. The members are those of the committed configuration, which is at position Members
	// of the group's log.
	Serving   bool     `json:"serving"`
	Term      uint64   `json:"term"`
	Voters    []string `json:"voters,omitempty"`
	Nonvoters []string `json:"nonvoters,omitempty"`
	Members   uint64   `json:"members,omitempty"`
	// Applied and Commit are log positions. Digest is the machine's digest at DigestIndex.
	Applied     uint64 `json:"applied"`
	Commit      uint64 `json:"commit"`
	Digest      uint64 `json:"digest,string"`
	DigestIndex uint64 `json:"digestIndex"`
	// Digests are digests at earlier entries, for comparison between replicas.
	Digests []node.IndexDigest `json:"digests,omitempty"`
	// Jobs is the number of jobs of a shard, and Clock its time; zero for other groups.
	Jobs  uint64   `json:"jobs"`
	Clock fsm.Time `json:"clockNanos,omitempty"`
	// Restoring: a restore of the shard has begun and not ended.
	Restoring bool `json:"restoring,omitempty"`
	// ClockAhead is the lead of a shard's time over the clocks if it exceeds the bound, else zero.
	ClockAhead time.Duration `json:"clockAheadNanos,omitempty"`
	// SnapshotAt is when the newest snapshot on the disk was written; zero if there is none.
	SnapshotAt time.Time `json:"snapshotAt,omitzero"`
}

// MirroredQueue is what a node's bridge between a queue of Redisson and one of Belfry has done since
// the node started. Counts are of this node: another one may do the work.
type MirroredQueue struct {
	// RedisQueue is the name that Redisson gives the queue, Queue that of Belfry.
	RedisQueue string `json:"redisQueue"`
	Queue      string `json:"queue"`
	// Waits says what the bridge waits for, for people; empty while it works.
	Waits string `json:"waits,omitempty"`
	// Came are entries that came from Redis, Delivered are due jobs put on Redisson's ready list. Dead
	// are due jobs for which Redisson has no form. SetAside are entries that Belfry cannot take. Failed
	// counts bridges that ended with an error and began again.
	Came      uint64 `json:"came,omitempty"`
	Delivered uint64 `json:"delivered,omitempty"`
	Dead      uint64 `json:"dead,omitempty"`
	SetAside  uint64 `json:"setAside,omitempty"`
	Failed    uint64 `json:"failed,omitempty"`
	// Left is how many entries Redis had at the last look, at the time Looked. The first of them was or
	// is due at Earliest. Both times are zero if there was none.
	Left     uint64    `json:"left,omitempty"`
	Looked   time.Time `json:"looked,omitzero"`
	Earliest time.Time `json:"earliest,omitzero"`
	// Lateness is how late the last job came on the ready list.
	Lateness time.Duration `json:"latenessNanos,omitempty"`
}

// Report is a node's report of itself.
type Report struct {
	ServerID string `json:"serverId"`
	// Process names the process of the node. It differs after each start.
	Process string `json:"process,omitempty"`
	// Version is the version of the node's software.
	Version string `json:"version,omitempty"`
	// ZoneData is the version of the node's time-zone data. Older nodes do not report it.
	ZoneData string `json:"zoneData,omitempty"`
	// Format is the latest format that the node reads; 0 is the first.
	Format fsm.Format    `json:"format,omitempty"`
	Groups []GroupReport `json:"groups"`
	// Quarantined are the groups whose replica the node has set aside.
	Quarantined []string `json:"quarantined,omitempty"`
	// Leaving: the node is about to stop.
	Leaving bool `json:"leaving,omitempty"`
	// Conditions are the node's conditions. Older nodes do not report them.
	Conditions []node.Condition `json:"conditions,omitempty"`
	// DiskFree is the free space of the data directory's disk in bytes; below DiskLow puts are refused.
	// Older nodes do not report them, nor ClockOffset.
	DiskFree uint64 `json:"diskFreeBytes,omitempty"`
	DiskLow  uint64 `json:"diskLowBytes,omitempty"`
	// ClockOffset is how far the node's clock is ahead of the median of the clocks that it compared
	// within the last minute, its own among them; nil if it compared none.
	ClockOffset *time.Duration `json:"clockOffsetNanos,omitempty"`
	// BackupAt is when the node last sent a complete backup; zero if it never did.
	BackupAt time.Time `json:"backupAt,omitzero"`
	// Mirrored are the queues of Redisson that the node bridges.
	Mirrored []MirroredQueue `json:"mirrored,omitempty"`
	// Unreached are the nodes that this node cannot connect to.
	Unreached []Unreached `json:"unreached,omitempty"`
	// Placement is reported by the node that leads the catalog.
	Placement *Status `json:"story,omitempty"`
}

// Change asks the leader of a group to change its members.
type Change struct {
	Group    string `json:"group"`
	Action   Action `json:"action"`
	ServerID string `json:"serverId"`
	// After is the GroupReport.Members that the change was planned from. The leader refuses the
	// change if there is a newer configuration. A transfer needs no After.
	After uint64 `json:"after,omitempty"`
	// Alive are the members that the change relies on. The leader refuses the change unless Need of
	// them have answered it in the last moment; a Need of 0 stands for all.
	Alive []string `json:"alive,omitempty"`
	Need  int      `json:"need,omitempty"`
}

// AskAll returns the reports of the nodes that answer, by server id.
func AskAll(ctx context.Context, all []catalog.Node, of Nodes) map[string]*Report {
	ctx, cancel := context.WithTimeout(ctx, AskWait)
	defer cancel()
	answers := make([]*Report, len(all))
	var asking sync.WaitGroup
	for i, n := range all {
		asking.Go(func() {
			if r, err := of.Report(ctx, n.ServerID); err == nil {
				answers[i] = &r
			}
		})
	}
	asking.Wait()
	reports := map[string]*Report{}
	for i, n := range all {
		if answers[i] != nil {
			reports[n.ServerID] = answers[i]
		}
	}
	return reports
}

// commits returns the position that the leader of each group has committed. A replaced leader may
// still claim to lead, and be far behind.
func commits(reports map[string]*Report) map[string]uint64 {
	all, terms := map[string]uint64{}, map[string]uint64{}
	for _, r := range reports {
		for i := range r.Groups {
			if g := &r.Groups[i]; g.Serving && g.Term >= terms[g.Group] {
				all[g.Group], terms[g.Group] = g.Commit, g.Term
			}
		}
	}
	return all
}

// Group returns the report on a group, nil if the node does not run it or did not answer.
func (r *Report) Group(name string) *GroupReport {
	if r == nil {
		return nil
	}
	if i := slices.IndexFunc(r.Groups, func(g GroupReport) bool { return g.Group == name }); i >= 0 {
		return &r.Groups[i]
	}
	return nil
}

// Unreached is a node to which another node cannot connect.
type Unreached struct {
	ServerID string `json:"serverId"`
	// Address is where it was tried.
	Address string `json:"address,omitempty"`
	// For is how long it has not been reached.
	For time.Duration `json:"forNanos"`
	// Calls: the node runs, since it calls the one that does not reach it.
	Calls bool `json:"calls,omitempty"`
}
