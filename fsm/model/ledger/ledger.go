// Package ledger is the reference judge of a shard's log. It follows every job by the rules of
// fsm/DESIGN.md, and compares each result with what the rules give. It shares with package fsm the
// words of commands and results, and no code of the machine.
package ledger

import (
	"fmt"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// Job is what the ledger says of one job, held or ended. Only the ledger changes it.
type Job struct {
	Queue   *Queue
	Put     *fsm.Put
	ID      string // chosen by the client; empty for a generated one
	Index   uint64 // of its put
	Serial  uint64
	State   fsm.State
	gone    bool // its queue was deleted with it
	Adopted bool // a restore brought it: what it was put with is not fully known
	Created fsm.Time
	// Due is the time from which it may be granted, FirstDue the one that its put answered. TTL is
	// when it expires, 0 for never. left is when it ended or was last given back.
	Due, FirstDue, TTL, left fsm.Time
	bytes                    uint64
	// Version counts the contents of its id; 0 and 1 are the first. place orders the jobs of a key, 0 for
	// the serial. next is what follows it.
	Version, place uint64
	next           *successor
	// Of its last lease:
	fence     uint64
	Until     fsm.Time
	length    time.Duration
	attempt   uint32
	redrives  uint32
	lastError string
	// priority replaces that of the put once reprioritized.
	reprioritized bool
	priority      int64
	// died is when it was last DEAD, 0 if it never was.
	died fsm.Time
	// why is how its last lease ended; unended while it runs.
	why cause
	// PutAt is the true time of its put, EndedAt that of its end; 0 while it is held.
	PutAt, EndedAt fsm.Time
	// live is its lease while it is under one.
	live *Lease
	// version grows with each change of state or time. Older entries of the heaps are void.
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
	followed
)

// Lease is one grant of a shard. Only the ledger changes it.
type Lease struct {
	Job     *Job
	Command *Command // the Reserve that granted it
	Ordinal int      // position among the leases of the shard, in the order of grants
	Fence   uint64
	Attempt uint32
	Due     fsm.Time
	Until   fsm.Time // as granted
	Since   fsm.Time // when the job had become available
	EndedAt fsm.Time // in true time; 0 while it runs
	// Put, LastError, TTL, Created and FirstDue are the job's at the grant.
	Put       *fsm.Put
	LastError string

	TTL, Created, FirstDue fsm.Time
}

// Queue is what the ledger says of the part of a queue that is in the shard.
type Queue struct {
	Name                  string
	Partition, Partitions uint32
	creation              uint64
	version               uint64
	Settings              fsm.Settings
	format                fsm.Format // that the shard spoke when it was created
	counts                fsm.Counts
	counters              fsm.Counters
	rateAt                fsm.Time
	overdueFrom           fsm.Time
	overdueTo             fsm.Time
	settled, configured   uint64 // index of the entry that did so last
	woken                 uint64 // as settled: its keys
	// Withheld is true once its settings, or a pause of a key, may have held due jobs back.
	Withheld bool

	delayed, ready, leases, ttls, dead agenda
	byID                               map[string][]*Job // held or remembered, first put first
	keys                               map[string]*key   // nil until a key matters
	unsure                             bool              // which key is next
	schedules                          map[string]*schedule
}

// Shard is the ledger of one shard. Where a result differs from what the rules give, it reports a
// violation and continues from the result: the log is what happened. One goroutine at a time may
// use it.
type Shard struct {
	cfg Config

	queues    map[string]*Queue
	creations uint64
	format    fsm.Format // the highest of the entries so far
	jobs      map[uint64]*Job
	leases    map[uint64]*Lease
	allJobs   []*Job   // in the order of their puts
	allLeases []*Lease // in the order of their grants
	// remembered are the results of requests with an id that took effect, the last of each.
	remembered map[requestName]*Command

	clock, before fsm.Time
	serial        uint64
	rated         int    // keys that have a bucket
	floor         uint64 // of fences from before a restore
	restoring     bool

	entry *Entry
	now   *Command // the command under way
}

// requestName is what a repeat of a request has in common with it.
type requestName struct{ caller, id string }

// New returns the ledger of a shard without jobs.
func New(cfg Config) *Shard {
	n := cfg.Commands / 3 // puts, reserves and acks: maps that grow are copied
	return &Shard{
		cfg: cfg, queues: map[string]*Queue{}, jobs: make(map[uint64]*Job, n), leases: make(map[uint64]*Lease, n),
		remembered: map[requestName]*Command{},
	}
}

// Job returns the job with a serial, nil if there never was one.
func (b *Shard) Job(serial uint64) *Job { return b.jobs[serial] }

// Lease returns the lease with a fence, nil if there never was one.
func (b *Shard) Lease(fence uint64) *Lease { return b.leases[fence] }

// Jobs returns all jobs that ever were, in the order of their puts.
func (b *Shard) Jobs() []*Job { return b.allJobs }

// Leases returns all leases that ever were, in the order of their grants.
func (b *Shard) Leases() []*Lease { return b.allLeases }

// keep adds a job.
func (b *Shard) keep(a *Job) {
	b.jobs[a.Serial] = a
	b.allJobs = append(b.allJobs, a)
}

// look counts one thing that a rule was held against.
func (b *Shard) look(rule Rule) { b.cfg.Report.Look(rule) }

// count adds to a figure.
func (b *Shard) count(what string, n int64) { b.cfg.Report.Count(what, n) }

// violated reports that the result of the current command breaks a rule.
func (b *Shard) violated(rule Rule, format string, args ...any) {
	args = append([]any{b.cfg.Shard, b.entry.Index, b.now.Number}, args...)
	b.cfg.Report.Violated(rule, b.entry.At, fmt.Sprintf("shard %d, entry %d.%d: "+format, args...))
}

// Enter takes one entry, whose commands have their results. Entries must come in the order of the
// log.
func (b *Shard) Enter(e *Entry) {
	b.entry, b.before, b.format = e, b.clock, max(b.format, e.Format)
	b.clock = e.Clock // after a reset the caller calls Adopt
	for i := range e.Commands {
		b.now = &e.Commands[i]
		b.command(b.now)
	}
	b.sweepKeys()
}

// command takes one command.
func (b *Shard) command(c *Command) {
	r := &c.Result
	switch {
	case r.Replayed:
		b.replayed(c)
		return
	case b.restoring && !whileRestoring(c.Command):
		b.expect(37, r.Code, fsm.Restoring)
		return
	case r.Code == fsm.RequestExpired && c.Request.ID != "", r.Code == fsm.Invalid && c.Request.ID != "" &&
		c.Command.Kind() != fsm.KindImport:
		b.count("requests refused for their id", 1)
		return
	}
	switch k := c.Command.(type) {
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
	case *fsm.PauseKey:
		b.pauseKey(k, r)
	case *fsm.PurgeKey:
		b.purgeKey(k, r)
	case *fsm.Kick:
		b.kick(k, r)
	case *fsm.ReserveJob:
		b.reserveJob(k, r)
	case *fsm.PutSchedule, *fsm.DeleteSchedule, *fsm.PauseSchedules, *fsm.Fire, *fsm.RunSchedule:
		b.onSchedule(k, r)
	default: // Import and ResetClock: see Adopt
	}
	if c.Request.ID != "" && c.Effect {
		b.remembered[requestName{c.Request.Caller, c.Request.ID}] = c
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

// expect compares the code of the current command with the one that the rules give.
func (b *Shard) expect(i Rule, got, want fsm.Code) bool {
	if got != want {
		b.violated(i, "%T was answered with code %d, should be %d: %+v", b.now.Command, got, want, b.now.Command)
	}
	return got == want
}

// effect notes that the current command changed something.
func (b *Shard) effect(a *Job) {
	b.now.Effect = true
	if a != nil {
		b.now.Job = a
	}
}

// createQueue creates a queue.
func (b *Shard) createQueue(name string, partition, partitions uint32) *Queue {
	b.creations++
	q := &Queue{Name: name, Partition: partition, Partitions: partitions, creation: b.creations, settled: b.entry.Index,
		byID: map[string][]*Job{}, schedules: map[string]*schedule{}, format: b.format}
	q.Withheld = b.cfg.Limited[fsm.NamespaceOf(name)] // whose jobs wait for leases that the quota allows
	b.queues[name] = q
	return q
}

// held finds a held job by the id that a client names it by: the first one that has the key, or any if
// the client names none.
func (b *Shard) held(q *Queue, id, key string) *Job {
	if partition, serial, ok := fsm.ParseID(id); ok {
		if a := b.jobs[serial]; a != nil && a.Queue == q && a.ID == "" && q.Partition == partition && a.State.Held() &&
			(key == "" || a.Put.Key == key) {
			return a
		}
		return nil
	}
	return q.find(id, func(a *Job) bool { return a.State.Held() && (key == "" || a.Put.Key == key) })
}

// ended finds the first ended job with an id, while the id is remembered, that has the key, or any if the
// client names none.
func (b *Shard) ended(q *Queue, id, key string) *Job {
	a := q.find(id, func(a *Job) bool { return !a.State.Held() && (key == "" || a.Put.Key == key) })
	if a == nil || b.forgotten(a) {
		return nil
	}
	return a
}

// forgotten reports whether the id of an ended job is remembered no more.
func (b *Shard) forgotten(a *Job) bool {
	window, forever := dedupWindow(&a.Queue.Settings)
	return !forever && a.left.Add(window) <= b.clock
}

// find returns the job with an id that matches and was put first, nil if there is none.
func (q *Queue) find(id string, match func(*Job) bool) (first *Job) {
	for _, a := range q.byID[id] {
		if match(a) && (first == nil || a.Serial < first.Serial) {
			first = a
		}
	}
	return first
}

// ofPut reports whether a job has the id of a put, which is alone in a queue of one partition, and with
// its key in others.
func (q *Queue) ofPut(c *fsm.Put) func(*Job) bool {
	return func(a *Job) bool { return q.Partitions == 1 || a.Put.Key == c.Key }
}

// name has a job be found by its id, instead of an ended one that a put of it meets.
func (q *Queue) name(a *Job) {
	if a.ID == "" {
		return
	}
	if before := q.find(a.ID, q.ofPut(a.Put)); before != nil {
		q.forget(before)
	}
	q.byID[a.ID] = append(q.byID[a.ID], a)
}

// forget has a job not be found by its id any more.
func (q *Queue) forget(a *Job) {
	left := slices.DeleteFunc(q.byID[a.ID], func(other *Job) bool { return other == a })
	if q.byID[a.ID] = left; len(left) == 0 {
		delete(q.byID, a.ID)
	}
}

func dedupWindow(s *fsm.Settings) (window time.Duration, forever bool) {
	if s.DedupWindowSet {
		return s.DedupWindow, s.DedupForever
	}
	return fsm.DefaultDedupWindow, s.DedupForever
}

// lift takes a job out of the count of its state.
func (a *Job) lift() {
	a.version++
	if n := a.Queue.countOf(a.State); n != nil {
		*n--
	}
	if a.Queue.keys != nil {
		a.Queue.keyOf(a.Put.Key).leave(a.State)
	}
}

// set puts a lifted job into a held state.
func (b *Shard) set(a *Job, state fsm.State, due fsm.Time) {
	a.version++
	if state != fsm.Reserved {
		b.over(a)
	}
	a.State, a.Due = state, due
	b.moved(a)
	*a.Queue.countOf(state)++
	a.Queue.enlist(a)
	if a.Put.Key != "" {
		b.startKeys(a.Queue)
	}
	if a.Queue.keys != nil {
		b.changed(a.Queue, a.Queue.keyOf(a.Put.Key))
	}
}

// enlist puts a held job into the orders of its state.
func (q *Queue) enlist(a *Job) {
	t := agendaEntry{account: a, version: a.version}
	t.at, t.serial = a.position()
	switch a.State {
	case fsm.Delayed:
		q.delayed.push(t)
	case fsm.Ready:
		t.priority = a.Priority()
		q.ready.push(t)
	case fsm.Reserved:
		t.at = a.Until
		q.leases.push(t)
	case fsm.Dead:
		q.dead.push(t)
	default:
	}
	if a.TTL != 0 && (a.State == fsm.Delayed || a.State == fsm.Ready) {
		q.ttls.push(agendaEntry{at: a.TTL, serial: a.Serial, account: a, version: a.version})
	}
	if q.keys != nil {
		q.keyOf(a.Put.Key).join(a)
	}
}

// moved tells the caller of a change of a job.
func (b *Shard) moved(a *Job) {
	if b.cfg.Moved != nil && b.now != nil {
		b.cfg.Moved(a, b.now)
	}
}

// LastError returns the error of the last nack, as far as jobs keep it.
func (a *Job) LastError() string { return a.lastError }

// AvailableSince is when a waiting job became available: when it fell due, or later if it was put
// or given back later.
func (a *Job) AvailableSince() fsm.Time { return max(a.Due, a.left, a.Created) }

// Name returns the id that clients name the job by.
func (a *Job) Name() string {
	if a.ID != "" {
		return a.ID
	}
	return fsm.FormatID(a.Queue.Partition, a.Serial)
}

// WasCancelled reports whether a client's Cancel ended the job.
func (a *Job) WasCancelled() bool { return a.why == cancelled }

// WasFollowed reports whether a job that had no attempt left ended because another one follows it.
func (a *Job) WasFollowed() bool { return a.why == followed }

// over notes that a job is under no lease any more.
func (b *Shard) over(a *Job) {
	if a.live != nil {
		a.live.EndedAt, a.live = b.entry.At, nil
	}
}

// endJob ends a lifted job. Its successor follows it, unless it was purged.
func (b *Shard) endJob(a *Job, state fsm.State) {
	b.over(a)
	a.State, a.left, a.EndedAt = state, b.clock, b.entry.At
	b.moved(a)
	a.Queue.counts.Bytes -= a.whole()
	if a.Queue.keys != nil {
		b.changed(a.Queue, a.Queue.keyOf(a.Put.Key))
	}
	if a.next != nil && a.why != purged {
		b.succeed(a)
	}
	a.next = nil
}

func (q *Queue) countOf(state fsm.State) *uint64 {
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
