package checker

import (
	"cmp"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
)

// drainSlack is how long before the end of the drain a job must have been available to be missed.
const drainSlack = 10 * time.Second

// idName is a job as clients name it.
type idName struct{ queue, id string }

// partition is one part of a queue.
type partition struct {
	queue string
	n     uint32
}

// remains looks at what is left: jobs that the drain should have got, and partitions or jobs that
// two shards own.
func (c *check) remains(found *finding.Set) {
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
			if n := (idName{a.Queue.Name, a.Put.Key + "\x00" + a.ID}); a.ID != "" && a.Queue.Partitions > 1 {
				if other := jobs[n]; other != nil && shards[other] != shard && other.Queue.Partitions == a.Queue.Partitions {
					found.Violated(30, c.since(max(a.PutAt, other.PutAt)), "job %q of %s was put into shards %d and %d", a.ID,
						a.Queue.Name,
						shards[other], shard)
				}
				jobs[n], shards[a] = a, shard
			}
			c.left(found, l, a)
		}
	}
}

// owner checks that a partition has one shard, and that a job is in the partition that its id says.
func (c *check) owner(found *finding.Set, owners map[partition]uint32, l *shardLog, one *ledger.Command) {
	put, ok := one.Command.(*fsm.Put)
	if !ok {
		return
	}
	p := partition{put.Queue, put.Partition}
	found.Look(30)
	if owner, known := owners[p]; known && owner != l.shard {
		found.Violated(30, c.since(one.Entry.At), "partition %d of %s has jobs in shards %d and %d", p.n, p.queue,
			owner, l.shard)
	}
	owners[p] = l.shard
	by := cmp.Or(put.Key, put.ID)
	if by == "" {
		return
	}
	if want := wire.PartitionOf(by, put.Partitions); want != put.Partition {
		found.Violated(30, c.since(one.Entry.At), "job %q of %s was put into partition %d, and belongs into %d of %d", put.ID,
			put.Queue, put.Partition, want, put.Partitions)
	}
}

// left judges one job at the end.
func (c *check) left(found *finding.Set, l *shardLog, a *ledger.Job) {
	if c.remembered(a) {
		return
	}
	found.Look(1)
	switch {
	case a.State == fsm.Dead:
		found.Count("jobs dead in the end", 1)
		return
	case a.State == fsm.Acked:
		return
	case !a.State.Held():
		found.Count("jobs ended otherwise", 1)
		return
	}
	found.Count("jobs left in the end", 1)
	drained := c.at(c.run.Drained - drainSlack)
	if c.run.Drained == 0 || a.Queue.Settings.PausedAt(drained) {
		return
	}
	available := a.AvailableSince()
	if a.State == fsm.Reserved {
		available = a.Until
	}
	if available < drained && (a.TTL == 0 || a.TTL > drained) {
		found.Violated(1, c.run.Drained, "job %d of %s in shard %d (put at entry %d, state %d) was available from %v on "+
			"and was not drained by %v",
			a.Serial, a.Queue.Name, l.shard, a.Index, a.State, c.since(available), c.run.Drained)
	}
}
