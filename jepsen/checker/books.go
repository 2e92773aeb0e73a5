package checker

import (
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/history"
)

// account is what the books say of one job, held or ended.
type account struct {
	queue   *ledger
	put     *fsm.Put
	id      string // chosen by the client; empty for a generated one
	index   uint64 // of its put
	serial  uint64
	state   fsm.State
	gone    bool // its queue was deleted with it
	adopted bool // it came with a restore: what it was put with is not known in full
	created fsm.Time
	// due is when it is or was ready, first what its put answered, ttl when it expires (0 for never),
	// left when it was ended or last given back.
	due, first, ttl, left fsm.Time
	bytes                 uint64
	// Of its last lease:
	fence     uint64
	until     fsm.Time
	length    time.Duration
	attempt   uint32
	redrives  uint32
	lastError string
	// why is how its last lease ended; unended while it runs.
	why cause
	// at is the true time of its put, ended that of its end; 0 if it is held.
	at, ended fsm.Time
	// live is its lease while it is under one.
	live *lease
	// version goes up with each change of state or time, so that what the heaps have of before counts no more.
	version uint32
}

// cause is how a lease ended.
type cause uint8

const (
	unended cause = iota
	lapsed
	nacked
	released
	acked
	cancelled
	purged
)

// lease is one grant of a shard.
type lease struct {
	account *account
	command *command
	fence   uint64
	attempt uint32
	due     fsm.Time
	until   fsm.Time // as granted
	since   fsm.Time // when the job had become available
	ended   fsm.Time // in true time; 0 if it never did
	// lastError is the job's as of the grant; ttl likewise.
	lastError string
	ttl       fsm.Time
	// told is the call whose client was told of it first; nil if none was.
	told atomic.Pointer[history.Op]
}

// ledger is what the books say of one queue's part in a shard.
type ledger struct {
	name                  string
	partition, partitions uint32
	creation              uint64
	version               uint64
	settings              fsm.Settings
	format                fsm.Format // that the shard spoke when it was created
	counts                fsm.Counts
	counters              fsm.Counters
	rateAt                fsm.Time
	overdueFrom           fsm.Time
	overdueTo             fsm.Time
	settled               uint64 // index of the entry that settled it last
	// withheld says that its settings have held jobs back that were due.
	withheld bool

	delayed, ready, leases, ttls, dead agenda
	byID                               map[string]*account
}

// books follow every job of one shard by the rules as the design states them. They share nothing
// with the machine but the words of its commands. What the log says goes: where a result is another
// than the books expect, that is a violation, and they go on from the result.
type books struct {
	c     *check
	log   *shardLog
	found *findings

	queues    map[string]*ledger
	creations uint64
	format    fsm.Format // the highest of the entries so far
	jobs      map[uint64]*account
	leases    map[uint64]*lease
	// remembered are the results of requests with an id that took effect, the last of each.
	remembered map[string]*command

	clock, before fsm.Time
	serial        uint64
	floor         uint64 // of fences from before a restore
	restoring     bool

	entry *logEntry
	now   *command // the command under way
}

func newBooks(c *check, l *shardLog) *books {
	n := len(l.commands) / 3 // puts, reserves and acks: maps that grow are copied
	return &books{
		c: c, log: l, found: l.found, queues: map[string]*ledger{}, jobs: make(map[uint64]*account, n),
		leases:     make(map[uint64]*lease, n),
		remembered: map[string]*command{},
	}
}

// violated notes that the command under way gave what it must not.
func (b *books) violated(i invariant, format string, args ...any) {
	args = append([]any{b.log.shard, b.entry.index, b.now.number}, args...)
	b.found.violated(i, b.c.since(b.entry.at), "shard %d, entry %d.%d: "+format, args...)
}

// enter books one entry, whose commands have their results.
func (b *books) enter(e *logEntry) {
	b.entry, b.before, b.format = e, b.clock, max(b.format, fsm.FormatOf(e.data))
	b.clock = e.clock // resets are seen to by adopt
	for i := range e.n {
		b.now = &b.log.commands[e.first+i]
		b.command(b.now)
	}
}

// command books one command.
func (b *books) command(c *command) {
	r := &c.result
	switch {
	case r.Replayed:
		b.replayed(c)
		return
	case b.restoring && !whileRestoring(c.command):
		b.expect(37, r.Code, fsm.Restoring)
		return
	case r.Code == fsm.RequestExpired && c.request.ID != "", r.Code == fsm.Invalid && c.request.ID != "" &&
		c.command.Kind() != fsm.KindImport:
		b.found.count("requests refused for their id", 1)
		return
	}
	switch k := c.command.(type) {
	case *fsm.Put:
		b.put(k, r)
	case *fsm.Reserve:
		b.reserve(k, r)
	case *fsm.Ack:
		b.ack(k, r)
	case *fsm.Nack:
		b.nack(k, r)
	case *fsm.Release:
		b.release(k, r)
	case *fsm.Extend:
		b.extend(k, r)
	case *fsm.Cancel:
		b.cancel(k, r)
	case *fsm.Reschedule:
		b.reschedule(k, r)
	case *fsm.Redrive:
		b.redrive(k, r)
	case *fsm.Purge:
		b.purge(k, r)
	case *fsm.Configure:
		b.configure(k, r)
	case *fsm.Open:
		b.open(k, r)
	case *fsm.DeleteQueue:
		b.deleteQueue(k, r)
	case *fsm.Expire:
		b.expire(r)
	case *fsm.Lead:
		b.lead(k)
	default: // Import and ResetClock: see adopt
	}
	if c.request.ID != "" && c.effect {
		b.remembered[c.request.ID] = c
	}
}

func whileRestoring(c fsm.Command) bool {
	switch c.(type) {
	case *fsm.Import, *fsm.Open, *fsm.Configure, *fsm.Lead:
		return true
	default:
		return false
	}
}

// expect holds the code of the command under way against the one that the books expect.
func (b *books) expect(i invariant, got, want fsm.Code) bool {
	if got != want {
		b.violated(i, "%T was answered with code %d, should be %d: %+v", b.now.command, got, want, b.now.command)
	}
	return got == want
}

// effect notes that the command under way changed something.
func (b *books) effect(a *account) {
	b.now.effect = true
	if a != nil {
		b.now.job = a
	}
}

// createQueue creates a queue.
func (b *books) createQueue(name string, partition, partitions uint32) *ledger {
	b.creations++
	q := &ledger{name: name, partition: partition, partitions: partitions, creation: b.creations, settled: b.entry.index,
		byID: map[string]*account{}, format: b.format}
	q.withheld = b.c.limited[fsm.NamespaceOf(name)] // whose jobs wait for leases that the quota allows
	b.queues[name] = q
	return q
}

// held finds a held job by the id that a client names it by.
func (b *books) held(q *ledger, id string) *account {
	if partition, serial, ok := fsm.ParseID(id); ok {
		if a := b.jobs[serial]; a != nil && a.queue == q && a.id == "" && q.partition == partition && a.state.Held() {
			return a
		}
		return nil
	}
	if a := q.byID[id]; a != nil && a.state.Held() {
		return a
	}
	return nil
}

// ended finds the last ended job of an id that is remembered still.
func (b *books) ended(q *ledger, id string) *account {
	a := q.byID[id]
	if a == nil || a.state.Held() {
		return nil
	}
	if window, forever := dedupWindow(&q.settings); !forever && a.left.Add(window) <= b.clock {
		return nil
	}
	return a
}

func dedupWindow(s *fsm.Settings) (window time.Duration, forever bool) {
	if s.DedupWindowSet {
		return s.DedupWindow, s.DedupForever
	}
	return fsm.DefaultDedupWindow, s.DedupForever
}

// lift takes a job out of the count of its state.
func (a *account) lift() {
	a.version++
	if n := a.queue.countOf(a.state); n != nil {
		*n--
	}
}

// set puts a lifted job into a held state.
func (b *books) set(a *account, state fsm.State, due fsm.Time) {
	a.version++
	if state != fsm.Reserved {
		b.over(a)
	}
	a.state, a.due = state, due
	q := a.queue
	*q.countOf(state)++
	switch state {
	case fsm.Delayed:
		q.delayed.push(turn{at: due, serial: a.serial, account: a, version: a.version})
	case fsm.Ready:
		q.ready.push(turn{priority: a.priority(), at: due, serial: a.serial, account: a, version: a.version})
	case fsm.Reserved:
		q.leases.push(turn{at: a.until, serial: a.serial, account: a, version: a.version})
		return
	case fsm.Dead:
		q.dead.push(turn{at: due, serial: a.serial, account: a, version: a.version})
		return
	default:
	}
	if a.ttl != 0 {
		q.ttls.push(turn{at: a.ttl, serial: a.serial, account: a, version: a.version})
	}
}

func (a *account) priority() int8 {
	return a.put.Priority // 0 if it was not given
}

// over notes that a job is under no lease any more.
func (b *books) over(a *account) {
	if a.live != nil {
		a.live.ended, a.live = b.entry.at, nil
	}
}

// end ends a lifted job.
func (b *books) end(a *account, state fsm.State) {
	b.over(a)
	a.state, a.left, a.ended = state, b.clock, b.entry.at
	a.queue.counts.Bytes -= a.bytes
}

func (q *ledger) countOf(state fsm.State) *uint64 {
	switch state {
	case fsm.Delayed:
		return &q.counts.Delayed
	case fsm.Ready:
		return &q.counts.Ready
	case fsm.Reserved:
		return &q.counts.Reserved
	case fsm.Dead:
		return &q.counts.Dead
	default:
		return nil
	}
}

// turn is a job's place in an order; it counts as long as the job has its version.
type turn struct {
	at       fsm.Time
	serial   uint64
	account  *account
	version  uint32
	priority int8
}

func (t *turn) less(u *turn) bool {
	if t.priority != u.priority {
		return t.priority < u.priority
	}
	if t.at != u.at {
		return t.at < u.at
	}
	return t.serial < u.serial
}

// agenda is a heap of turns, some of which count no more.
type agenda struct{ turns []turn }

func (h *agenda) push(t turn) {
	h.turns = append(h.turns, t)
	i := len(h.turns) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !h.turns[i].less(&h.turns[up]) {
			break
		}
		h.turns[i], h.turns[up] = h.turns[up], h.turns[i]
		i = up
	}
}

// first returns the first turn that counts, nil if there is none. It stays.
func (h *agenda) first() *turn {
	for len(h.turns) > 0 {
		if t := &h.turns[0]; t.version == t.account.version {
			return t
		}
		h.pop()
	}
	return nil
}

// due returns the first job whose time has come, nil if there is none. It stays until its version changes.
func (h *agenda) due(now fsm.Time) *account {
	if t := h.first(); t != nil && t.at <= now {
		return t.account
	}
	return nil
}

func (h *agenda) pop() {
	last := len(h.turns) - 1
	h.turns[0] = h.turns[last]
	h.turns[last] = turn{}
	h.turns = h.turns[:last]
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < last && h.turns[child].less(&h.turns[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.turns[i], h.turns[least] = h.turns[least], h.turns[i]
		i = least
	}
}
