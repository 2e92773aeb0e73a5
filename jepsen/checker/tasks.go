package checker

import (
	"slices"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/tasks"

	"github.com/belfrydb/belfry/fsm/model/ledger"
)

// catalogGroup is the group whose leader carries out tasks.
const catalogGroup = "catalog"

// follower returns what takes note of the changes of jobs in the queues on which tasks act.
func (c *check) follower(l *shardLog) func(*ledger.Job, *ledger.Command) {
	if len(c.tasked) == 0 {
		return nil
	}
	return func(a *ledger.Job, by *ledger.Command) {
		if c.tasked[a.Queue.Name] {
			m := tasks.Move{Job: a, By: by, State: a.State, Due: a.Due, Until: a.Until, Error: a.LastError()}
			l.moves = append(l.moves, m)
		}
	}
}

// tasks holds acts on all jobs that match against what clients asked for and were told.
func (c *check) tasks(found *finding.Set) {
	run := &tasks.Run{Ops: c.ops, Since: c.since, At: c.at, Bound: c.bound}
	for _, e := range c.run.Elections {
		if e.Group == catalogGroup {
			run.Leaders = append(run.Leaders, e.At.Sub(c.run.History.Start))
		}
	}
	slices.SortFunc(run.Leaders, func(a, b time.Duration) int { return int(a - b) })
	for _, shard := range c.order_ {
		l := c.shards[shard]
		s := tasks.Shard{Number: shard, Moves: l.moves}
		for i := range l.commands {
			if one := &l.commands[i]; tasks.IsStep(one.Request) {
				s.Commands = append(s.Commands, one)
			}
		}
		run.Shards = append(run.Shards, s)
	}
	tasks.Check(run, found)
}
