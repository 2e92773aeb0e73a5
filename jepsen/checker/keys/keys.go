// Package keys judges keys and replaced jobs by the answers of clients, in the order of the witnesses.
package keys

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/lifecycle"
	"github.com/belfrydb/belfry/jepsen/checker/wire"
)

// The invariants that Follow looks at.
const (
	Limit    finding.Invariant = 43
	Order    finding.Invariant = 44
	Contents finding.Invariant = 45
)

// Change is a command of the log that concerns all jobs of a queue, or of a key.
type Change struct {
	lifecycle.Place
	Queue string
	// Settings are new ones, nil if the command gives none.
	Settings *fsm.KeySettings
	// Key was paused, or resumed; empty if the command is about no key's pause.
	Key    string
	Paused bool
	// Removed says that jobs were removed, or made ready again, without a call of their own.
	Removed bool
}

// Log holds the facts about a shard's log beside the events of its jobs.
type Log struct {
	Shard   uint32
	Changes []Change // in the order of the log
	// Since turns shard time into time since the start of the run.
	Since func(fsm.Time) time.Duration
	// Drained is when consumers had drained all queues, 0 if they did not; DrainedAt is the shard time
	// from which on every job that was available must have been handed out.
	Drained   time.Duration
	DrainedAt fsm.Time
}

// step is one event or one change, in the order of the log.
type step struct {
	lifecycle.Place
	event  *lifecycle.Event
	change *Change
}

// Follow judges the keys and the contents of a shard's jobs by the events told, in any order.
func Follow(facts Log, told [][]lifecycle.Event, found *finding.Set) {
	f := &follower{facts: facts, found: found, queues: map[string]*queue{}, fences: map[*ledger.Job]uint64{}}
	var steps []step
	for i := range facts.Changes {
		steps = append(steps, step{facts.Changes[i].Place, nil, &facts.Changes[i]})
	}
	for _, events := range told {
		for i := range events {
			if e := &events[i]; e.OK && concerns(e) {
				steps = append(steps, step{lifecycle.Place{Index: e.Index, Number: e.Number}, e, nil})
			}
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Number, b.Number), a.fence(b))
	})
	for _, s := range steps {
		if s.change != nil {
			f.change(s.change)
		} else {
			f.event(s.event)
		}
	}
	f.finish()
}

// fence orders the grants of one command, as they were made.
func (s step) fence(other step) int {
	if s.event == nil || other.event == nil {
		return 0
	}
	return cmp.Compare(s.event.Fence, other.event.Fence)
}

// concerns reports whether an event is about a job with a key, or one whose content may be replaced.
func concerns(e *lifecycle.Event) bool { return e.Account.Put.Key != "" || e.Account.ID != "" }

// queue is what answers say of the keys of a queue.
type queue struct {
	settings fsm.KeySettings
	keys     map[string]*key
	names    map[name]*content
}

// key is what answers say of the jobs of a key.
type key struct {
	// live are the leases, by job; waiting the jobs that were put and have not ended.
	live    map[*ledger.Job]fsm.Time
	waiting map[*ledger.Job]bool
	rateAt  fsm.Time
	paused  bool
}

// name is a job as clients name it.
type name struct{ id, key string }

// content is what is put under a name.
type content struct {
	// job has it; nil if it is a successor that was not handed out yet.
	job     *ledger.Job
	put     *fsm.Put
	version uint64 // 0 if it is not known
	due     fsm.Time
	// next is to follow.
	next    *fsm.Put
	nextDue fsm.Time
	// first is the time of the first put of the job, nextFirst that of what is to follow.
	first, nextFirst fsm.Time
	nextVersion      uint64
	// worked: the job was handed out since its first put. One that failed is first put anew by what replaces
	// it.
	worked bool
}

// follower follows the log of one shard.
type follower struct {
	facts  Log
	found  *finding.Set
	queues map[string]*queue
	// fences are the last grants of jobs.
	fences map[*ledger.Job]uint64
}

func (f *follower) queue(name string) *queue {
	q := f.queues[name]
	if q == nil {
		q = &queue{}
		q.reset()
		f.queues[name] = q
	}
	return q
}

// reset forgets the jobs of a queue.
func (q *queue) reset() {
	before := q.keys
	q.keys, q.names = map[string]*key{}, map[name]*content{}
	for name, k := range before {
		q.key(name).rateAt, q.key(name).paused = k.rateAt, k.paused
	}
}

func (q *queue) key(name string) *key {
	k := q.keys[name]
	if k == nil {
		k = &key{live: map[*ledger.Job]fsm.Time{}, waiting: map[*ledger.Job]bool{}}
		q.keys[name] = k
	}
	return k
}

func (f *follower) violated(i finding.Invariant, e *lifecycle.Event, format string, args ...any) {
	at, who := f.facts.Since(e.Time), "the log"
	if e.Op != nil {
		at, who = e.Op.Returned, wire.Describe(e.Op)
	}
	args = append([]any{f.facts.Shard, e.Index, e.Number, e.Account.Serial, e.Account.Queue.Name, who}, args...)
	f.found.Violated(i, at, "shard %d, entry %d.%d, job %d of %s, by %s: "+format, args...)
}

// change follows a command about a queue or a key.
func (f *follower) change(c *Change) {
	q := f.queue(c.Queue)
	switch {
	case c.Removed:
		q.reset()
	case c.Settings != nil:
		q.settings = *c.Settings
	default:
		q.key(c.Key).paused = c.Paused
	}
}

// event follows one event.
func (f *follower) event(e *lifecycle.Event) {
	if e.Kind == lifecycle.Grant {
		if f.fences[e.Account] == e.Fence {
			return // it was told again
		}
		f.fences[e.Account] = e.Fence
	}
	q := f.queue(e.Account.Queue.Name)
	f.contents(q, e)
	if e.Account.Put.Key == "" {
		return
	}
	k := q.key(e.Account.Put.Key)
	switch e.Kind {
	case lifecycle.Put:
		if e.Created && !e.Account.Put.Given.Has(fsm.GivenTTL) {
			k.waiting[e.Account] = true
		}
	case lifecycle.Grant:
		f.granted(q, k, e)
	case lifecycle.Ack, lifecycle.Cancel:
		delete(k.live, e.Account)
		delete(k.waiting, e.Account)
	case lifecycle.Nack, lifecycle.Release:
		delete(k.live, e.Account)
		if e.Dead {
			delete(k.waiting, e.Account)
		}
	case lifecycle.Extend:
		k.live[e.Account] = max(k.live[e.Account], e.Until)
	default:
	}
}

// granted judges a job of a key that was handed out.
func (f *follower) granted(q *queue, k *key, e *lifecycle.Event) {
	s := &q.settings
	f.found.Look(Limit)
	alive := 0
	for a, until := range k.live {
		if a != e.Account && until > e.Time {
			alive++
		}
	}
	if limit := int(s.Limit()); limit > 0 && alive >= limit {
		f.violated(Limit, e, "it was handed out at %d, and its key %q has %d leases of %d", e.Time, e.Account.Put.Key, alive,
			limit)
	}
	if k.paused {
		f.violated(Limit, e, "it was handed out, and its key %q is paused", e.Account.Put.Key)
	}
	f.token(s, k, e)
	if s.Ordered {
		f.ordered(k, e)
	}
	k.live[e.Account] = e.Until
}

// token judges a grant by the rate of its key.
func (f *follower) token(s *fsm.KeySettings, k *key, e *lifecycle.Event) {
	rate := &s.Rate
	if rate.Count == 0 {
		return
	}
	period := max(1, rate.Per/time.Duration(rate.Count))
	has := k.rateAt - fsm.Time(period)*(fsm.Time(cmp.Or(rate.Burst, rate.Count))-1)
	if has > e.Time {
		f.violated(Limit, e, "it was handed out at %d, and its key %q has a token at %d", e.Time, e.Account.Put.Key, has)
	}
	k.rateAt = max(k.rateAt, e.Time).Add(period)
}

// ordered judges a grant by the order in which the jobs of its key were put. A job that used up its
// attempts may be dead without a call of its own.
func (f *follower) ordered(k *key, e *lifecycle.Event) {
	f.found.Look(Order)
	for a := range k.waiting {
		if a.Serial < e.Account.Serial && a.State != fsm.Dead && !a.Put.Given.Has(fsm.GivenMaxAttempts) {
			f.violated(Order, e, "it was handed out, and job %d of its key %q was put before it", a.Serial, e.Account.Put.Key)
			return
		}
	}
}

// contents follows what is put under the name of a job.
func (f *follower) contents(q *queue, e *lifecycle.Event) {
	if e.Account.ID == "" {
		return
	}
	n := name{e.Account.ID, e.Account.Put.Key}
	c := q.names[n]
	switch e.Kind {
	case lifecycle.Put:
		if e.Created {
			q.names[n] = &content{job: e.Account, put: e.Put, version: 1, due: e.Due, first: e.Time}
		}
		return
	case lifecycle.Replace, lifecycle.Successor:
		if c != nil {
			f.replaced(c, e)
		}
		return
	case lifecycle.Grant:
		if c != nil {
			f.delivered(c, e)
			c.worked = true
		}
		return
	case lifecycle.Reschedule:
		if c != nil && c.job == e.Account {
			c.due = e.Due
		}
		return
	case lifecycle.Ack, lifecycle.Cancel:
	case lifecycle.Nack, lifecycle.Release:
		if !e.Dead {
			if c != nil && c.job == e.Account {
				c.due = e.Due
			}
			return
		}
	default:
		return
	}
	if c != nil && e.Kind == lifecycle.Cancel {
		c.becomes(e.Account) // a successor may be cancelled before anybody had it
	}
	if c == nil || c.job != e.Account {
		return
	}
	if c.next == nil {
		if e.Kind != lifecycle.Nack { // a dead job may be replaced
			delete(q.names, n)
		}
		return
	}
	c.follow()
}

// follow has what is to follow be the content.
func (c *content) follow() {
	*c = content{put: c.next, version: c.nextVersion, due: c.nextDue, first: c.nextFirst}
}

// becomes has the content be that of a job of its name, if it may be: of a successor whose serial was
// not known yet, also if the job before it ended without a call of its own.
func (c *content) becomes(job *ledger.Job) {
	switch {
	case c.job == nil:
		c.job = job
	case c.job != job && c.next != nil:
		c.follow()
		c.job = job
	}
}

// replaced judges a put that met a job of its id.
func (f *follower) replaced(c *content, e *lifecycle.Event) {
	c.becomes(e.Account)
	if c.job != e.Account {
		c.follow() // its job ended without a call of its own
		c.job = e.Account
	}
	f.found.Look(Contents)
	newest := c.version
	if c.next != nil {
		newest = c.nextVersion
	}
	if e.Version != newest+1 && newest != 0 {
		f.violated(Contents, e, "it was replaced and answered with version %d after version %d", e.Version, newest)
	}
	if e.Kind == lifecycle.Replace && c.worked {
		c.first, c.worked = e.Time, false // at the latest: a job that was given back keeps its first put
	}
	first := c.first
	if e.Kind == lifecycle.Successor {
		if c.next == nil {
			c.nextFirst = e.Time
		}
		c.next, c.nextVersion, c.nextDue, first = e.Put, e.Version, e.Due, c.nextFirst
	} else {
		c.put, c.version, c.due, c.next = e.Put, e.Version, e.Due, nil
	}
	if most := wire.CeilTime(first.After(e.Put.MaxWait)); e.Put.MaxWait > 0 && first != 0 && e.Due > most {
		f.violated(Contents, e, "it was replaced and is due at %d, which may be %d at most", e.Due, most)
	}
}

// delivered judges the content of a job that was handed out.
func (f *follower) delivered(c *content, e *lifecycle.Event) {
	if c.becomes(e.Account); c.job != e.Account {
		*c = content{job: e.Account} // it was put by a call that nobody knows of
	}
	if c.put == nil || !e.Heard {
		return
	}
	f.found.Look(Contents)
	if !bytes.Equal(e.Body, c.put.Body) {
		f.violated(Contents, e, "it was handed out with the body %q, its last content is %q", e.Body, c.put.Body)
	}
}

// finish looks for successors that never came.
func (f *follower) finish() {
	if f.facts.Drained == 0 {
		return
	}
	for queue, q := range f.queues {
		for n, c := range q.names {
			if c.job != nil || c.put == nil || c.put.Given.Has(fsm.GivenTTL) || c.due >= f.facts.DrainedAt {
				continue
			}
			f.found.Violated(Contents, f.facts.Drained, "shard %d: what was to follow job %q of %s (version %d, due at %v) "+
				"was handed to nobody by %v", f.facts.Shard, n.id, queue, c.version, f.facts.Since(c.due), f.facts.Drained)
		}
	}
}
