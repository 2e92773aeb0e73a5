package checker

import (
	"bytes"
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/schedules"
	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/history"
)

const (
	// snapshots is how many times a shard's replay is snapshotted and restored, tailEntries how many
	// entries both copies carry out after that.
	snapshots   = 1
	tailEntries = 64
	// countersEvery is after how many entries the counters of all queues are held against the books.
	countersEvery = 1024
)

// replay carries out the log of each shard again, on a machine of its own, and keeps the books
// beside it.
func (c *check) replay(*finding.Set) {
	c.collectReads()
	c.parallel(len(c.order_), func(i int, found *finding.Set) {
		l := c.shards[c.order_[i]]
		l.found = found
		c.replayShard(l)
		found.Count("commands", int64(len(l.commands)))
	})
}

// decode reads the entries of a shard's log.
func (c *check) decode(l *shardLog) {
	n := 0
	decoded := make([][]fsm.Request, len(l.entries))
	for i := range l.entries {
		e := &l.entries[i]
		_, requests, err := codec.DecodeEntry(e.data)
		if err != nil {
			l.found.Violated(27, c.since(e.At), "entry %d of shard %d cannot be read: %v", e.Index, l.shard, err)
			l.entries = l.entries[:i]
			break
		}
		decoded[i], e.Format, e.first = requests, fsm.FormatOf(e.data), n
		if e.Format >= holdersFormat && l.holdersFrom == 0 {
			l.holdersFrom = c.since(e.At)
		}
		for j := range requests {
			n += len(requests[j].Commands)
		}
	}
	l.commands = make([]ledger.Command, 0, n)
	for i := range l.entries {
		e := &l.entries[i]
		for j := range decoded[i] {
			r := &decoded[i][j]
			for _, one := range r.Commands {
				//nolint:gosec // few
				l.commands = append(l.commands, ledger.Command{Entry: &e.Entry, Number: uint32(len(l.commands) - e.first),
					Ordinal: len(l.commands), Request: r, Command: one})
			}
		}
		e.Commands = l.commands[e.first:]
	}
	l.answered = make([]atomic.Bool, n)
}

// copies is a replay under way: the machine, and for a while another that was restored from a
// snapshot of it.
type copies struct {
	machine, twin *machine.Machine
	left          int // how many entries the twin carries out still
	diverged      bool
}

func (c *check) replayShard(l *shardLog) {
	c.decode(l)
	l.books = ledger.New(ledger.Config{
		Shard: l.shard, Limited: c.limited, Commands: len(l.commands), Report: booksReport{c, l.found},
		Moved: c.follower(l), Nominal: schedules.Nominal,
	})
	defer func() { l.told = make([]atomic.Pointer[history.Op], len(l.books.Leases())) }()
	m := copies{machine: machine.New(fsm.Config{Seed: 1})}
	reads := c.reads[l.shard]
	reads = c.readUpTo(l, m.machine, reads, 0)
	for i := range l.entries {
		e := &l.entries[i]
		before := m.machine.Clock()
		results, err := m.machine.Apply(e.Index, e.data)
		if err != nil {
			l.found.Violated(27, c.since(e.At), "entry %d of shard %d cannot be carried out: %v", e.Index, l.shard, err)
			l.entries = l.entries[:i]
			return
		}
		e.Clock = m.machine.Clock()
		reset := false
		for k := range results {
			one := &e.Commands[k]
			one.Result = results[k]
			kind := one.Command.Kind()
			reset = reset || kind == fsm.KindResetClock || kind == fsm.KindImport
		}
		c.checkTime(l, e, before, reset)
		c.checkDigest(l, &m, e)
		l.books.Enter(&e.Entry)
		l.measure(c.limited, m.machine, e)
		if reset {
			l.books.Adopt(m.machine)
		}
		if n := len(l.entries); i+1 == n || (i+1)%countersEvery == 0 {
			l.books.Audit(m.machine)
		}
		if (i+1)%max(1, len(l.entries)/(snapshots+1)) == 0 && i+1 < len(l.entries) {
			c.checkSnapshot(l, &m, e)
		}
		reads = c.readUpTo(l, m.machine, reads, e.Index)
	}
	for _, r := range reads {
		l.found.Violated(34, r.op.Returned, "%s was answered from entry %d of shard %d, which the journals lack",
			wire.Describe(r.op), r.witness.GetIndex(), l.shard)
	}
}

// booksReport takes what the books of a shard find.
type booksReport struct {
	c     *check
	found *finding.Set
}

// Look implements the books' Report.
func (r booksReport) Look(rule ledger.Rule) { r.found.Look(finding.Invariant(rule)) }

// Violated implements the books' Report.
func (r booksReport) Violated(rule ledger.Rule, at fsm.Time, text string) {
	r.found.Violated(finding.Invariant(rule), r.c.since(at), "%s", text)
}

// Count implements the books' Report.
func (r booksReport) Count(what string, n int64) { r.found.Count(what, n) }

// checkDigest holds the state after an entry against what the nodes had, and the twin against the
// machine.
func (c *check) checkDigest(l *shardLog, m *copies, e *logEntry) {
	l.found.Look(27)
	if digest := m.machine.Digest(); digest != e.digest && !m.diverged {
		m.diverged, l.diverged = true, true
		l.found.Violated(27, c.since(e.At), "after entry %d of shard %d the digest is %016x, it was %016x on %s", e.Index,
			l.shard, digest, e.digest, e.node)
	}
	if m.twin == nil {
		return
	}
	l.found.Look(26)
	results, err := m.twin.Apply(e.Index, e.data)
	same := err == nil && m.twin.Digest() == m.machine.Digest() && len(results) == len(e.Commands)
	for k := 0; same && k < len(e.Commands); k++ {
		same = ledger.SameResult(&results[k], &e.Commands[k].Result)
	}
	if m.left--; m.left == 0 || !same {
		m.twin = nil
	}
	if !same {
		l.found.Violated(26, c.since(e.At), "entry %d of shard %d gives something else after a snapshot and its restore "+
			"(error %v)", e.Index, l.shard, err)
	}
}

// checkSnapshot restores a snapshot of the machine, which then goes on beside it for a while.
func (c *check) checkSnapshot(l *shardLog, m *copies, e *logEntry) {
	l.found.Look(26)
	var b bytes.Buffer
	s := m.machine.Snapshot()
	_, err := s.WriteTo(&b)
	m.machine.Release(s)
	if err == nil {
		m.twin, err = machine.Restore(fsm.Config{Seed: 2}, &b)
	}
	m.left = tailEntries
	if err != nil || m.twin.Digest() != m.machine.Digest() || m.twin.Clock() != m.machine.Clock() ||
		m.twin.Index() != m.machine.Index() {
		m.twin = nil
		l.found.Violated(26, c.since(e.At), "a snapshot at entry %d of shard %d is not restored to what it was (error %v)",
			e.Index, l.shard, err)
	}
}

// sortReads brings the reads of each shard into the order of their indexes.
func (c *check) sortReads() {
	for _, reads := range c.reads {
		slices.SortStableFunc(reads, func(a, b *read) int { return cmp.Compare(a.witness.GetIndex(), b.witness.GetIndex()) })
	}
}
