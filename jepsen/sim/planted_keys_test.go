package sim

import (
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// plantedKeys are mistakes about keys.
func plantedKeys() []planted {
	settings := func(change func(k *fsm.KeySettings)) func() *mistakes {
		return rewritten(func(_ *shard, c *fsm.Configure) { change(&c.Settings.Keys) })
	}
	return []planted{
		{"a key has one lease more than it may", []string{"I43"}, settings(func(k *fsm.KeySettings) {
			if k.Concurrency > 0 && !k.Ordered {
				k.Concurrency++
			}
		})},
		{"a limit of keys does not hold", []string{"I43"}, settings(func(k *fsm.KeySettings) { k.Concurrency = 0 })},
		{"a lease does not count for its key", []string{"I43"}, before(uncountedLease)},
		{"a rate of keys does not hold", []string{"I43"}, settings(func(k *fsm.KeySettings) { k.Rate = fsm.KeyRate{} })},
		{"a dead job does not hold its key", []string{"I43"},
			settings(func(k *fsm.KeySettings) { k.HoldOnDead = false })},
		{"a pause of a key does not stop", []string{"I43"},
			rewritten(func(_ *shard, c *fsm.PauseKey) { c.Resume = true })},
		{"a resumed key stays paused", []string{"I14", "I13"},
			rewritten(func(_ *shard, c *fsm.PauseKey) { c.Resume = false })},
		{"the order of a key is broken", []string{"I44"},
			settings(func(k *fsm.KeySettings) {
				if k.Ordered {
					k.Ordered, k.Concurrency = false, 1
				}
			})},
		{"keys do not take turns", []string{"I13"}, settings(func(k *fsm.KeySettings) { k.Fair = false })},
		{"a queue takes keys that it refuses", []string{"I37"}, settings(func(k *fsm.KeySettings) { k.Refused = false })},
		{"a purge of a key takes one more state", []string{"I24"},
			rewritten(func(_ *shard, c *fsm.PurgeKey) { c.States |= fsm.Set(fsm.Ready) })},
		{"a key is another one", []string{"I43", "I13", "I14"}, rewritten(func(_ *shard, c *fsm.Put) {
			if c.Key == "k1" {
				c.Key = "k2"
			}
		})},
	}
}

// uncountedLease ends a lease for its key and for no client: another job of the key is handed out
// beside it.
func uncountedLease(s *shard, _ *fsm.Reserve) fsm.Command {
	if s.reference == nil {
		return nil
	}
	for _, l := range s.reference.Ledger().Leases() {
		if a := l.Job; l.EndedAt == 0 && a.Put.Key != "" && a.Queue.Settings.Keys.Limit() == 1 {
			return &fsm.Nack{Ref: fsm.Ref{Queue: a.Queue.Name, Partition: a.Queue.Partition, Serial: a.Serial, Fence: l.Fence},
				DelayGiven: true, Delay: time.Hour}
		}
	}
	return nil
}

// plantedContents are mistakes about puts that meet a job of their id.
func plantedContents() []planted {
	return []planted{
		{"REPLACE keeps the job", []string{"I45"}, rewritten(func(_ *shard, c *fsm.Put) {
			if c.OnExisting == fsm.ReplaceExisting {
				c.OnExisting = fsm.KeepExisting
			}
		})},
		{"KEEP replaces the job", []string{"I5"}, rewritten(func(_ *shard, c *fsm.Put) {
			if c.OnExisting == fsm.KeepExisting {
				c.OnExisting = fsm.ReplaceExisting
			}
		})},
		{"NEXT refuses as REPLACE does", []string{"I45"}, rewritten(func(_ *shard, c *fsm.Put) {
			if c.OnExisting == fsm.NextExisting {
				c.OnExisting = fsm.ReplaceExisting
			}
		})},
		{"a debounce has no end", []string{"I45"}, rewritten(func(_ *shard, c *fsm.Put) { c.MaxWait = 0 })},
		{"another version is replaced", []string{"I45"}, rewritten(func(_ *shard, c *fsm.Put) { c.IfVersion = 0 })},
		{"a version is told twice", []string{"I45"}, told[fsm.Put](func(r *fsm.Result) {
			if r.Replaced {
				r.Version--
			}
		})},
		{"what replaced a job is handed out as it was", []string{"what is handed out is what was put"},
			rewritten(func(_ *shard, c *fsm.Put) {
				if c.OnExisting >= fsm.ReplaceExisting {
					c.Body = make([]byte, len(c.Body))
				}
			})},
		{"a successor does not come", []string{"I6", "I33", "I2", "I13", "I14"}, lostSuccessor},
	}
}

// lostSuccessor ends jobs without what follows them: a purge takes the successor along.
func lostSuccessor() *mistakes {
	lost := map[uint64]bool{} // fences
	m := before(func(s *shard, c *fsm.Ack) fsm.Command {
		job, ok := s.machine().Held(c.Ref)
		if !ok || job.Next == nil || job.Key == "" {
			return nil
		}
		lost[c.Fence] = true
		return &fsm.PurgeKey{Queue: c.Queue, Key: job.Key, States: fsm.Set(fsm.Reserved)}
	})()
	m.result = toldOf(func(_ *shard, c *fsm.Ack, r *fsm.Result) {
		if lost[c.Fence] {
			*r = fsm.Result{State: fsm.Acked}
		}
	})().result
	return m
}

// plantedSchedules are mistakes about schedules.
func plantedSchedules() []planted {
	return []planted{
		{"a firing puts no job", []string{"I47"}, rewritten(func(_ *shard, c *fsm.Fire) { c.Put, c.Due = 0, 0 })},
		{"a leader passes over a nominal time", []string{"I47"}, func() *mistakes {
			return &mistakes{fire: func(c *fsm.Fire) {
				if c.Put != 0 && c.Next != 0 {
					c.Next += c.Next - c.Put
				}
			}}
		}},
		{"a leader puts the job of a time between", []string{"I47"}, func() *mistakes {
			return &mistakes{fire: func(c *fsm.Fire) {
				if c.Put != 0 {
					c.Put++
				}
			}}
		}},
		{"what is missed is not counted", []string{"I47"}, func() *mistakes {
			return &mistakes{fire: func(c *fsm.Fire) { c.Missed = min(c.Missed, 1) }}
		}},
		{"a leader catches up with nothing", []string{"I47"}, func() *mistakes {
			return &mistakes{fire: func(c *fsm.Fire) {
				if c.Put != 0 {
					c.Missed, c.LastMissed = c.Missed+1, c.Put
					c.Put, c.Due = 0, 0
				}
			}}
		}},
		{"a firing of an old plan is carried out", []string{"I46"}, rewritten(func(s *shard, c *fsm.Fire) {
			found := s.machine().Answer(&fsm.ScheduleQuery{Queue: c.Queue, Name: c.Name}, s.machine().Clock())
			if len(found.Schedules) == 1 && found.Schedules[0].Next != 0 {
				v := &found.Schedules[0]
				c.Serial, c.Version, c.Nominal = v.Serial, v.Version, v.Next
			}
		})},
		{"nobody fires schedules", []string{"schedules fire when their time has come"}, func() *mistakes {
			return &mistakes{firing: func(fsm.Time) fsm.Time { return 0 }}
		}},
		{"a pause of schedules does not stop", []string{"I46"},
			rewritten(func(_ *shard, c *fsm.PauseSchedules) { c.Names = nil })},
		{"jobs of a schedule overlap", []string{"I47"},
			rewritten(func(_ *shard, c *fsm.PutSchedule) { c.Policy.Overlap = fsm.OverlapAllow })},
		{"a schedule never ends", []string{"I46", "schedules fire when their time has come"},
			rewritten(func(_ *shard, c *fsm.PutSchedule) { c.Policy.MaxFires = 0 })},
		{"another version of a schedule is replaced", []string{"I46"},
			rewritten(func(_ *shard, c *fsm.PutSchedule) { c.IfVersion = 0 })},
		{"a deleted schedule leaves its jobs", []string{"I23"},
			rewritten(func(_ *shard, c *fsm.DeleteSchedule) { c.CancelWaiting = false })},
		{"a backfill puts one less", []string{"I46"},
			rewritten(func(_ *shard, c *fsm.RunSchedule) { c.Times = c.Times[min(1, len(c.Times)):] })},
		{"a job of a schedule is early", []string{"I8", "I13", "I47"}, rewritten(func(_ *shard, c *fsm.Fire) {
			c.Due = min(c.Due, c.Put)
		})},
	}
}
