package checker

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/belfrydb/belfry/fsm"
)

const (
	// snapshots is how many times a shard's replay is snapshotted and restored, tailEntries how many
	// entries both copies carry out after that.
	snapshots   = 1
	tailEntries = 64
	// countersEvery is after how many entries the counters of all queues are held against the books.
	countersEvery = 1024
)

// replay carries out the log of each shard again, on a machine of its own, and keeps the books beside it.
func (c *check) replay(*findings) {
	c.collectReads()
	c.parallel(len(c.order_), func(i int, found *findings) {
		l := c.shards[c.order_[i]]
		l.found = found
		c.replayShard(l)
		found.count("commands", int64(len(l.commands)))
	})
}

// decode reads the entries of a shard's log.
func (c *check) decode(l *shardLog) {
	n := 0
	decoded := make([][]fsm.Request, len(l.entries))
	for i := range l.entries {
		e := &l.entries[i]
		_, requests, err := fsm.DecodeEntry(e.data)
		if err != nil {
			l.found.violated(27, c.since(e.at), "entry %d of shard %d cannot be read: %v", e.index, l.shard, err)
			l.entries = l.entries[:i]
			break
		}
		decoded[i] = requests
		for j := range requests {
			e.n += len(requests[j].Commands)
		}
		e.first = n
		n += e.n
	}
	l.commands = make([]command, 0, n)
	for i := range l.entries {
		e := &l.entries[i]
		for j := range decoded[i] {
			r := &decoded[i][j]
			for _, one := range r.Commands {
				//nolint:gosec // few
				l.commands = append(l.commands, command{entry: e, number: uint32(len(l.commands) - e.first), request: r,
					command: one})
			}
		}
	}
}

// copies is a replay under way: the machine, and for a while another that was restored from a snapshot of it.
type copies struct {
	machine, twin *fsm.Machine
	left          int // how many entries the twin carries out still
	diverged      bool
}

func (c *check) replayShard(l *shardLog) {
	c.decode(l)
	l.books = newBooks(c, l)
	m := copies{machine: fsm.New(fsm.Config{Seed: 1})}
	reads := c.reads[l.shard]
	reads = c.readUpTo(l, m.machine, reads, 0)
	for i := range l.entries {
		e := &l.entries[i]
		before := m.machine.Clock()
		results, err := m.machine.Apply(e.index, e.data)
		if err != nil {
			l.found.violated(27, c.since(e.at), "entry %d of shard %d cannot be carried out: %v", e.index, l.shard, err)
			l.entries = l.entries[:i]
			return
		}
		e.clock = m.machine.Clock()
		reset := false
		for k := range results {
			one := &l.commands[e.first+k]
			one.result = results[k]
			kind := one.command.Kind()
			reset = reset || kind == fsm.KindResetClock || kind == fsm.KindImport
		}
		c.checkTime(l, e, before, reset)
		c.checkDigest(l, &m, e)
		l.books.enter(e)
		l.measure(c.limited, m.machine, e)
		if reset {
			l.books.adopt(m.machine)
		}
		if n := len(l.entries); i+1 == n || (i+1)%countersEvery == 0 {
			l.books.audit(m.machine)
		}
		if (i+1)%max(1, len(l.entries)/(snapshots+1)) == 0 && i+1 < len(l.entries) {
			c.checkSnapshot(l, &m, e)
		}
		reads = c.readUpTo(l, m.machine, reads, e.index)
	}
	for _, r := range reads {
		l.found.violated(34, r.op.Returned, "%s was answered from entry %d of shard %d, which the journals lack",
			describe(r.op), r.witness.GetIndex(), l.shard)
	}
}

// checkDigest holds the state after an entry against what the nodes had, and the twin against the machine.
func (c *check) checkDigest(l *shardLog, m *copies, e *logEntry) {
	l.found.look(27)
	if digest := m.machine.Digest(); digest != e.digest && !m.diverged {
		m.diverged, l.diverged = true, true
		l.found.violated(27, c.since(e.at), "after entry %d of shard %d the digest is %016x, it was %016x on %s", e.index,
			l.shard, digest, e.digest, e.node)
	}
	if m.twin == nil {
		return
	}
	l.found.look(26)
	results, err := m.twin.Apply(e.index, e.data)
	same := err == nil && m.twin.Digest() == m.machine.Digest() && len(results) == e.n
	for k := 0; same && k < e.n; k++ {
		same = sameResult(&results[k], &l.commands[e.first+k].result)
	}
	if m.left--; m.left == 0 || !same {
		m.twin = nil
	}
	if !same {
		l.found.violated(26, c.since(e.at), "entry %d of shard %d gives something else after a snapshot and its restore "+
			"(error %v)", e.index, l.shard, err)
	}
}

// checkSnapshot restores a snapshot of the machine, which then goes on beside it for a while.
func (c *check) checkSnapshot(l *shardLog, m *copies, e *logEntry) {
	l.found.look(26)
	var b bytes.Buffer
	s := m.machine.Snapshot()
	_, err := s.WriteTo(&b)
	m.machine.Release(s)
	if err == nil {
		m.twin, err = fsm.Restore(fsm.Config{Seed: 2}, &b)
	}
	m.left = tailEntries
	if err != nil || m.twin.Digest() != m.machine.Digest() || m.twin.Clock() != m.machine.Clock() ||
		m.twin.Index() != m.machine.Index() {
		m.twin = nil
		l.found.violated(26, c.since(e.at), "a snapshot at entry %d of shard %d is not restored to what it was (error %v)",
			e.index, l.shard, err)
	}
}

// audit holds the counters of all queues against the books.
func (b *books) audit(m *fsm.Machine) {
	b.auditSpaces(m)
	b.found.look(33)
	queues := m.Queues("", 1<<30)
	if len(queues) != len(b.queues) {
		b.found.violated(33, b.c.since(b.entry.at), "shard %d, entry %d: it has %d queues, by the books %d", b.log.shard,
			b.entry.index, len(queues), len(b.queues))
	}
	for i := range queues {
		v := &queues[i]
		q := b.queues[v.Name]
		if q == nil {
			b.found.violated(33, b.c.since(b.entry.at), "shard %d, entry %d: it has a queue %s, the books have none",
				b.log.shard, b.entry.index, v.Name)
			continue
		}
		b.found.look(33)
		if v.Counts != q.counts || v.Counters != q.counters {
			b.found.violated(33, b.c.since(b.entry.at), "shard %d, entry %d: queue %s has %+v %+v, by the books %+v %+v",
				b.log.shard, b.entry.index, v.Name, v.Counts, v.Counters, q.counts, q.counters)
		}
		if k := &q.counters; k.Put != q.counts.Jobs()+k.Acked+k.Cancelled+k.Expired+k.Purged {
			b.found.violated(33, b.c.since(b.entry.at), "shard %d, entry %d: queue %s had %d jobs put, of which not all are "+
				"accounted for: %+v %+v",
				b.log.shard, b.entry.index, v.Name, k.Put, q.counts, *k)
		}
	}
}

// auditSpaces holds what the machine has namespaces with a quota use against the books.
func (b *books) auditSpaces(m *fsm.Machine) {
	for space := range b.c.limited {
		b.found.look(33)
		var sum fsm.Usage
		for name, q := range b.queues {
			if fsm.NamespaceOf(name) == space {
				sum.Jobs, sum.Bytes, sum.InFlight = sum.Jobs+q.counts.Jobs(), sum.Bytes+q.counts.Bytes,
					sum.InFlight+q.counts.Reserved
			}
		}
		if u := m.UsageOf(space); u != sum {
			b.found.violated(33, b.c.since(b.entry.at), "shard %d, entry %d: namespace %s uses %+v, by the books %+v",
				b.log.shard, b.entry.index, space, u, sum)
		}
	}
}

// sortReads brings the reads of each shard into the order of their indexes.
func (c *check) sortReads() {
	for _, reads := range c.reads {
		slices.SortStableFunc(reads, func(a, b *read) int { return cmp.Compare(a.witness.GetIndex(), b.witness.GetIndex()) })
	}
}
