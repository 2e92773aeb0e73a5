package sim

import (
	"slices"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/sim/tally"
)

// candidates splits the held jobs of a book into those that a command certainly concerns and those
// that it may.
func (b *book) candidates(states fsm.StateSet, clock fsm.Time) (sure, open []*account) {
	for _, a := range b.held {
		if a.must(states, clock) {
			sure = append(sure, a)
			continue
		}
		for _, state := range []fsm.State{fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead} {
			if states.Has(state) && a.could(state, clock) {
				open = append(open, a)
				break
			}
		}
	}
	return sure, open
}

// concerned returns those jobs that a command has changed, by their number. Where that does not
// tell, the rest is returned as doubtful.
func (l *ledger) concerned(n *line, sure, open []*account, count uint64) (changed, doubtful []*account) {
	switch most := uint64(len(sure) + len(open)); {
	case count < uint64(len(sure)) || count > most:
		n.violated("as many as there are", "%v jobs were changed of %v to %v", count, len(sure), most)
		return nil, nil
	case count == uint64(len(sure)):
		return sure, nil
	case count == most:
		return slices.Concat(sure, open), nil
	default:
		l.w.tally[tally.Vague] += uint64(len(open))
		return sure, open
	}
}

// redrive books the dead that became ready again.
func (l *ledger) redrive(n *line, c *fsm.Redrive, r *fsm.Result) bool {
	b := l.named(n, c.Queue)
	if b == nil || r.Code != fsm.OK {
		l.unknownQueue(n, b, r.Code)
		return false
	}
	sure, open := b.candidates(fsm.Set(fsm.Dead), n.e.clock)
	if len(c.IDs) > 0 {
		asked := l.find(n.s, c.Queue, c.IDs[0])
		other := func(a *account) bool { return a != asked }
		sure, open = slices.DeleteFunc(sure, other), slices.DeleteFunc(open, other)
	}
	changed, doubtful := l.concerned(n, sure, open, r.Count)
	for _, a := range changed {
		a.state, a.attempt, a.expires, a.vague, a.maybe = waiting, 0, 0, false, false
		a.due, a.dueLast = dueAfter(n.e.clock, 0)
	}
	for _, a := range doubtful {
		a.vague = true
	}
	b.told.Redriven += r.Count
	return r.Count > 0
}

// purge books the jobs that were removed.
func (l *ledger) purge(n *line, c *fsm.Purge, r *fsm.Result) bool {
	b := l.named(n, c.Queue)
	if b == nil || r.Code != fsm.OK {
		l.unknownQueue(n, b, r.Code)
		return false
	}
	sure, open := b.candidates(c.States, n.e.clock)
	changed, doubtful := l.concerned(n, sure, open, r.Count)
	for _, a := range changed {
		a.closeAccount(fsm.Cancelled, n.e.clock)
	}
	for _, a := range doubtful {
		a.maybe, a.how, a.vague = true, fsm.Cancelled, true
	}
	if r.More {
		n.violated("a purge leaves nothing", "of %s it left something", c.Queue)
	}
	b.told.Purged += r.Count
	return r.Count > 0
}

// unknownQueue holds the answer that there is no such queue against the books.
func (l *ledger) unknownQueue(n *line, b *book, code fsm.Code) {
	if code != fsm.QueueNotFound || b != nil {
		n.violated("a queue is there once it was told of", "code %v: %+v", code, b)
	}
}

// configure books settings. Lower versions are ignored.
func (l *ledger) configure(n *line, c *fsm.Configure, r *fsm.Result) bool {
	b := l.named(n, c.Queue)
	right := b == nil && c.Partition == 0 && c.Partitions == 1 || b != nil && b.partition == c.Partition &&
		b.partitions == c.Partitions
	if right != (r.Code == fsm.OK) {
		n.violated("a configuration goes where its queue is", "%s, partition %v of %v, was answered %+v", c.Queue,
			c.Partition, c.Partitions, *r)
		return false
	}
	if !right {
		return false
	}
	created := b == nil
	if created {
		b = l.add(n.s, c.Queue, 0, 1)
	}
	if c.Version <= b.version {
		return created
	}
	b.version, b.settings = c.Version, c.Settings
	return true
}

// open books a partition.
func (l *ledger) open(n *line, c *fsm.Open, r *fsm.Result) bool {
	b := l.named(n, c.Queue)
	same := b != nil && b.partition == c.Partition && b.partitions == c.Partitions
	switch {
	case r.Code == fsm.OK && r.Created && b == nil:
		l.add(n.s, c.Queue, c.Partition, c.Partitions)
		return true
	case r.Code == fsm.OK && !r.Created && same, r.Code == fsm.QueueExists && b != nil && !same:
	default:
		n.violated("a queue is opened once", "%s, partition %v of %v, was answered %+v: %v", c.Queue, c.Partition,
			c.Partitions, *r, b)
	}
	return false
}
