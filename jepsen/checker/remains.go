package checker

import (
	"hash/fnv"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
)

// drainSlack is how long before the end of the drain a job must have been available to be missed.
const drainSlack = 10 * time.Second

// partition is one part of a queue.
type partition struct {
	queue string
	n     uint32
}

// remains looks at what is left: jobs that the drain should have got, and partitions or jobs that two shards own.
func (c *check) remains(found *findings) {
	owners := map[partition]uint32{}
	jobs := map[idName]*ledger.Job{}
	shards := map[*ledger.Job]uint32{}
	for _, shard := range c.order_ {
		l := c.shards[shard]
		for i := range l.commands {
			if l.commands[i].Result.Created {
				c.owner(found, owners, l, &l.commands[i])
			}
		}
		for _, a := range l.books.Jobs() {
			if n := (idName{a.Queue.Name, a.ID}); a.ID != "" && a.Queue.Partitions > 1 {
				if other := jobs[n]; other != nil && shards[other] != shard && other.Queue.Partitions == a.Queue.Partitions {
					found.violated(30, c.since(max(a.PutAt, other.PutAt)), "job %q of %s was put into shards %d and %d", a.ID, a.Queue.Name,
						shards[other], shard)
				}
				jobs[n], shards[a] = a, shard
			}
			c.left(found, l, a)
		}
	}
}

// owner checks that a partition has one shard, and that a job is in the partition that its id says.
func (c *check) owner(found *findings, owners map[partition]uint32, l *shardLog, one *ledger.Command) {
	put, ok := one.Command.(*fsm.Put)
	if !ok {
		return
	}
	p := partition{put.Queue, put.Partition}
	found.look(30)
	if owner, known := owners[p]; known && owner != l.shard {
		found.violated(30, c.since(one.Entry.At), "partition %d of %s has jobs in shards %d and %d", p.n, p.queue,
			owner, l.shard)
	}
	owners[p] = l.shard
	if put.ID == "" {
		return
	}
	if want := partitionOf(put.ID, put.Partitions); want != put.Partition {
		found.violated(30, c.since(one.Entry.At), "job %q of %s was put into partition %d, and belongs into %d of %d", put.ID,
			put.Queue, put.Partition, want, put.Partitions)
	}
}

// left judges one job at the end.
func (c *check) left(found *findings, l *shardLog, a *ledger.Job) {
	if c.remembered(a) {
		return
	}
	found.look(1)
	switch {
	case a.State == fsm.Dead:
		found.count("jobs dead in the end", 1)
		return
	case a.State == fsm.Acked:
		return
	case !a.State.Held():
		found.count("jobs ended otherwise", 1)
		return
	}
	found.count("jobs left in the end", 1)
	drained := c.at(c.run.Drained - drainSlack)
	if c.run.Drained == 0 || a.Queue.Settings.PausedAt(drained) {
		return
	}
	available := a.AvailableSince()
	if a.State == fsm.Reserved {
		available = a.Until
	}
	if available < drained && (a.TTL == 0 || a.TTL > drained) {
		found.violated(1, c.run.Drained, "job %d of %s in shard %d (put at entry %d, state %d) was available from %v on "+
			"and was not drained by %v",
			a.Serial, a.Queue.Name, l.shard, a.Index, a.State, c.since(available), c.run.Drained)
	}
}

// partitionOf says once more where a job with an id of its client's choice belongs: FNV-1a over the
// hash's version, the id and eight zeros, finished as MurmurHash3 is. See DESIGN §6 and
// node.PartitionOf.
func partitionOf(id string, partitions uint32) uint32 {
	if partitions <= 1 {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte{1})
	h.Write([]byte(id))
	h.Write(make([]byte, 8))
	sum := h.Sum64()
	for _, multiplier := range [...]uint64{0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53} {
		sum ^= sum >> 33
		sum *= multiplier
	}
	sum ^= sum >> 33
	return uint32(sum % uint64(partitions))
}
