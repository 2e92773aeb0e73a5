package checker

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/keys"
	"github.com/belfrydb/belfry/jepsen/checker/lifecycle"
	"github.com/belfrydb/belfry/jepsen/checker/schedules"
	"github.com/belfrydb/belfry/jepsen/checker/wire"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// addTold notes an event that a client was told of.
func (j *joiner) addTold(shard uint32, e lifecycle.Event) {
	if e.Account == nil {
		return
	}
	e.Heard, e.Op = true, j.op
	if j.told == nil {
		j.told = map[uint32][]lifecycle.Event{}
	}
	all := j.told[shard]
	if all == nil {
		all = make([]lifecycle.Event, 0, joinChunk/len(j.c.order_))
	}
	j.told[shard] = append(all, e)
}

// tellAt is tell for the job of a command, at the command's place.
func (j *joiner) tellAt(one *ledger.Command, w *belfryv1.Witness, e lifecycle.Event) {
	if one.Result.Replayed {
		return // it happened at another place
	}
	e.Index, e.Number, e.Time = w.GetIndex(), w.GetEntry(), wire.TimeOf(w.GetTime())
	if e.Account == nil {
		e.Account = one.Job
	}
	j.addTold(w.GetShard(), e)
}

// tellRefused notes that a lease was called stale.
func (j *joiner) tellRefused(one *ledger.Command, w *belfryv1.Witness, reason belfryv1.Reason) {
	if reason != belfryv1.Reason_REASON_STALE_LEASE {
		return
	}
	if ref, ok := wire.RefOf(one.Command); ok {
		j.tellAt(one, w, lifecycle.Event{Kind: lifecycle.Ack, Fence: ref.Fence})
	}
}

// follow follows all jobs of all shards by what clients were told.
func (c *check) follow(*finding.Set) {
	run := c.run
	c.parallel(len(c.order_), func(i int, found *finding.Set) {
		l := c.shards[c.order_[i]]
		lifecycle.Follow(lifecycle.Log{
			Shard: l.shard, Diverged: l.diverged, Changes: l.changes(), Since: c.since, IsMirrorRecord: c.remembered,
			Drained: run.Drained, DrainedAt: c.at(run.Drained - drainSlack),
		}, append(c.told[l.shard], l.unheard()), found)
	})
}

// replacing is the kind of a put that met a job of its id, which is reserved or not.
func replacing(reserved bool) lifecycle.Kind {
	if reserved {
		return lifecycle.Successor
	}
	return lifecycle.Replace
}

// keys follows the keys of all shards, and what is put under ids, by what clients were told.
func (c *check) keys(*finding.Set) {
	c.parallel(len(c.order_), func(i int, found *finding.Set) {
		l := c.shards[c.order_[i]]
		keys.Follow(keys.Log{
			Shard: l.shard, Changes: l.keyChanges(), Since: c.since, Drained: c.run.Drained,
			DrainedAt: c.at(c.run.Drained - drainSlack),
		}, append(c.told[l.shard], l.unheard()), found)
	})
}

// schedules holds the jobs of schedules that clients were handed against the nominal times.
func (c *check) schedules(found *finding.Set) {
	schedules.Check(&schedules.Run{Ops: c.ops, Drained: c.run.Drained > 0}, found)
}

// keyChanges returns the commands that concern all jobs of a queue or of a key.
func (l *shardLog) keyChanges() (changes []keys.Change) {
	for i := range l.commands {
		one := &l.commands[i]
		at := lifecycle.Place{Index: one.Entry.Index, Number: one.Number}
		change := keys.Change{Place: at, Queue: fsm.QueueOf(one.Command)}
		switch k := one.Command.(type) {
		case *fsm.Configure:
			change.Settings = &k.Settings.Keys
		case *fsm.PauseKey:
			change.Key, change.Paused = k.Key, !k.Resume
		case *fsm.Redrive, *fsm.Purge, *fsm.PurgeKey, *fsm.DeleteQueue, *fsm.DeleteSchedule:
			change.Removed = true
		default:
			continue
		}
		if one.Effect {
			changes = append(changes, change)
		}
	}
	return changes
}

// unheard are the events of a shard's log that no client was told of.
func (l *shardLog) unheard() (all []lifecycle.Event) {
	for i := range l.commands {
		one := &l.commands[i]
		if !one.Effect || l.answered[i].Load() || one.Job == nil {
			continue
		}
		e := lifecycle.Event{Account: one.Job, Index: one.Entry.Index, Number: one.Number, Time: one.Entry.Clock, OK: true,
			Due: one.Result.Due, Until: one.Result.Until}
		e.Dead = one.Result.State == fsm.Dead
		switch k := one.Command.(type) {
		case *fsm.Put:
			e.Kind, e.Created, e.Put, e.Version = lifecycle.Put, one.Result.Created, k, one.Result.Version
			if one.Result.Replaced {
				e.Kind = replacing(one.Result.State == fsm.Reserved)
			}
		case *fsm.Ack:
			e.Kind = lifecycle.Ack
		case *fsm.Nack:
			e.Kind = lifecycle.Nack
		case *fsm.Release:
			e.Kind = lifecycle.Release
		case *fsm.Extend:
			e.Kind = lifecycle.Extend
		case *fsm.Cancel:
			e.Kind = lifecycle.Cancel
		case *fsm.Reschedule:
			e.Kind = lifecycle.Reschedule
		default:
			continue
		}
		if ref, ok := wire.RefOf(one.Command); ok {
			e.Fence = ref.Fence
		}
		all = append(all, e)
	}
	for _, g := range l.books.Leases() {
		if l.told[g.Ordinal].Load() == nil {
			all = append(all, lifecycle.Event{
				Account: g.Job, Index: g.Command.Entry.Index, Number: g.Command.Number, Kind: lifecycle.Grant, OK: true,
				Time:  g.Command.Entry.Clock,
				Fence: g.Fence, Attempt: g.Attempt, Due: g.Due, Until: g.Until,
			})
		}
	}
	return all
}

// changes returns, by queue, the places at which jobs were made ready again, removed, or ended
// other than by a call of their own.
func (l *shardLog) changes() map[string][]lifecycle.Place {
	changes := map[string][]lifecycle.Place{}
	for i := range l.commands {
		one := &l.commands[i]
		switch one.Command.(type) {
		case *fsm.Redrive, *fsm.Purge, *fsm.PurgeKey, *fsm.DeleteQueue, *fsm.DeleteSchedule:
			if one.Effect {
				queue := fsm.QueueOf(one.Command)
				changes[queue] = append(changes[queue], lifecycle.Place{Index: one.Entry.Index, Number: one.Number})
			}
		}
	}
	return changes
}
