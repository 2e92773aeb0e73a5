package checker

import (
	"bytes"
	"cmp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/availability"
	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/lifecycle"
	"github.com/belfrydb/belfry/jepsen/checker/tasks"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/history"
)

// check is a check under way.
type check struct {
	run   *Run
	ops   []*history.Op
	start fsm.Time // of the run
	bound time.Duration
	ahead *ahead
	// mirrored says that the mirror was part of the run.
	mirrored bool
	// limited are the namespaces with a quota.
	limited map[string]bool
	// tasked are the queues on which clients started tasks.
	tasked map[string]bool

	shards map[uint32]*shardLog
	order_ []uint32 // the numbers of the shards
	reads  map[uint32][]*read
	// partial are the reads with what their shards gave.
	partial []partial
	// mu guards told, what clients were told of the jobs of each shard, found and seconds while
	// goroutines add to them.
	mu   sync.Mutex
	told map[uint32][][]lifecycle.Event

	// available is what was found of the availability during each strike.
	available []availability.Result

	found   *finding.Set
	seconds map[string]float64
}

// logEntry is one entry of a shard's log.
type logEntry struct {
	ledger.Entry
	term   uint64
	digest uint64
	data   []byte
	node   string // that applied it first
	first  int    // the number of its first command in the log
}

// shardLog is the log of one shard, and what became of it.
type shardLog struct {
	shard    uint32
	entries  []logEntry
	commands []ledger.Command
	books    *ledger.Shard
	found    *finding.Set
	// answered says of each command, by its ordinal, whether a client was told of it; told has the
	// call whose client was told first of a lease, by the ordinal of the lease.
	answered []atomic.Bool
	told     []atomic.Pointer[history.Op]
	// diverged says that the replay gave another state than the nodes had: from then on the log tells
	// nothing of what they did.
	diverged bool
	meter    meter
	// holdersFrom is when the first entry in holdersFormat was applied, since the start of the run.
	holdersFrom time.Duration
	// moves are the changes of jobs in the queues on which tasks act.
	moves []tasks.Move
}

func newCheck(run *Run) *check {
	c := &check{
		run: run, ops: run.History.Ops(), start: fsm.Time(run.History.Start.UnixNano()), bound: run.ClockBound,
		shards: map[uint32]*shardLog{},
		reads:  map[uint32][]*read{}, told: map[uint32][][]lifecycle.Event{}, found: finding.New(),
		seconds:  map[string]float64{},
		mirrored: len(run.History.Passages()) > 0,
	}
	if c.bound == 0 {
		c.bound = clockBoundDefault
	}
	c.ahead = newAhead(run, c.bound)
	c.limited = c.limitedSpaces()
	c.tasked = tasks.Queues(c.ops)
	return c
}

// timed runs one pass and notes how long it took.
func (c *check) timed(name string, pass func()) {
	began := time.Now()
	pass()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seconds[name] = time.Since(began).Seconds()
}

// pass is one that looks at what others have worked out, and changes nothing that another looks at.
type pass struct {
	name string
	run  func(*finding.Set)
}

// together runs passes side by side.
func (c *check) together(passes ...pass) {
	var group sync.WaitGroup
	for _, p := range passes {
		group.Go(func() {
			found := finding.New()
			c.timed(p.name, func() { p.run(found) })
			c.mu.Lock()
			defer c.mu.Unlock()
			c.found.Add(found)
		})
	}
	group.Wait()
}

// at returns a time since the start of the run as a true time.
func (c *check) at(d time.Duration) fsm.Time { return c.start + fsm.Time(d) }

// since returns a true time as one since the start of the run.
func (c *check) since(t fsm.Time) time.Duration { return t.Sub(c.start) }

// parallel calls f for each number below n, on as many goroutines as there are processors, and adds
// up what they found.
func (c *check) parallel(n int, f func(i int, found *finding.Set)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	next := make(chan int)
	found := make([]*finding.Set, workers)
	var group sync.WaitGroup
	for w := range workers {
		found[w] = finding.New()
		group.Go(func() {
			for i := range next {
				f(i, found[w])
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range found {
		c.found.Add(other)
	}
}

// placed is an entry of a journal on its way into the log.
type placed struct {
	index uint64
	life  int
	entry int
}

// merge makes one log a shard of what all lives applied: one entry and one digest an index.
func (c *check) merge() {
	byShard := map[uint32][]placed{}
	for life := range c.run.Journals {
		j := &c.run.Journals[life]
		type opened struct{ shard, opening uint32 }
		last := map[opened]uint64{}
		for i := range j.Entries {
			e := &j.Entries[i]
			c.found.Look(28)
			replica := opened{e.Shard, e.Opening}
			if e.Index <= last[replica] {
				c.found.Violated(28, c.since(e.At), "a replica of shard %d on %s applied entry %d after entry %d", e.Shard, j.Node,
					e.Index, last[replica])
			}
			last[replica] = e.Index
			byShard[e.Shard] = append(byShard[e.Shard], placed{e.Index, life, i})
		}
	}
	for shard := range byShard {
		c.order_ = append(c.order_, shard)
		c.shards[shard] = &shardLog{shard: shard}
	}
	slices.Sort(c.order_)
	c.parallel(len(c.order_), func(i int, found *finding.Set) {
		l := c.shards[c.order_[i]]
		c.mergeShard(l, byShard[l.shard], found)
		found.Count("log entries", int64(len(l.entries)))
	})
}

// mergeShard merges what lives applied of one shard.
func (c *check) mergeShard(l *shardLog, all []placed, found *finding.Set) {
	slices.SortFunc(all, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.life, b.life), cmp.Compare(a.entry, b.entry))
	})
	l.entries = make([]logEntry, 0, len(all))
	for _, p := range all {
		j := &c.run.Journals[p.life]
		e := &j.Entries[p.entry]
		n := len(l.entries)
		if n == 0 || l.entries[n-1].Index != e.Index {
			if n > 0 && e.Term < l.entries[n-1].term {
				found.Violated(28, c.since(e.At), "entry %d of shard %d has term %d, after term %d", e.Index, l.shard, e.Term,
					l.entries[n-1].term)
			}
			l.entries = append(l.entries, logEntry{term: e.Term, digest: e.Digest, data: e.Entry, node: j.Node})
			l.entries[n].Index, l.entries[n].At = e.Index, e.At
			continue
		}
		first := &l.entries[n-1]
		found.Look(25)
		if e.Term != first.term || !bytes.Equal(e.Entry, first.data) {
			found.Violated(28, c.since(e.At), "%s applied another entry %d of shard %d (term %d, %d bytes) than %s (term %d, "+
				"%d bytes)",
				j.Node, e.Index, l.shard, e.Term, len(e.Entry), first.node, first.term, len(first.data))
			continue
		}
		if e.Digest != first.digest {
			found.Violated(25, c.since(e.At), "after entry %d of shard %d the digest is %016x on %s, %016x on %s", e.Index,
				l.shard, e.Digest, j.Node, first.digest, first.node)
		}
		if e.At < first.At {
			first.At, first.node = e.At, j.Node
		}
	}
}

// find returns the entry of an index, nil if the journals lack it.
func (l *shardLog) find(index uint64) *logEntry {
	i, ok := slices.BinarySearchFunc(l.entries, index, func(e logEntry, index uint64) int {
		return cmp.Compare(e.Index, index)
	})
	if !ok {
		return nil
	}
	return &l.entries[i]
}

// at returns the command at a place of the log, nil if there is none.
func (l *shardLog) at(index uint64, number uint32) *ledger.Command {
	e := l.find(index)
	if e == nil || int(number) >= len(e.Commands) {
		return nil
	}
	return &e.Commands[number]
}

// verdict is what all passes found.
func (c *check) verdict() Verdict {
	v := Verdict{Counts: c.found.Counts(), Availability: c.available}
	last := finding.SecondOpinion
	if c.mirrored {
		last = finding.Last
	}
	v.Checks, v.Violations = c.found.Checks(c.seconds, last)
	return v
}
