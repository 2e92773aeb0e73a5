// Package lifecycle follows each job through the answers of clients, in the order of the witnesses.
//
// The ledger follows the results of the checker's own machine, which applies the log. A server
// whose machine has a mistake gives its clients other answers, and the ledger would not see that.
// The log supplies only events that no answer reported.
package lifecycle

import (
	"cmp"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/wire"
	"github.com/belfrydb/belfry/jepsen/history"
)

// leadGrace is more than a new leader adds to a lease.
const leadGrace = 5 * time.Second

// Kind is the call that an event comes from.
type Kind uint8

// These are the kinds.
const (
	Put Kind = iota
	Grant
	Ack
	Nack
	Release
	Extend
	Cancel
	Reschedule
	// Replace is a Put that gave a job its content, Successor one that is to follow it.
	Replace
	Successor
)

// standing is the state of a job by what clients were told.
type standing uint8

const (
	absent standing = iota
	waiting
	holding
	dead
	over
)

// Event is one thing that happened to a job.
type Event struct {
	Account *ledger.Job
	// Index and Number are the place of the command in the shard's log.
	Index  uint64
	Number uint32
	Kind   Kind
	// Heard says that a client was told; otherwise the event is from the log alone.
	Heard bool
	// OK says that the call had its effect. Created is of a Put that was no repeat, Dead of a Nack
	// that used up the attempts.
	OK, Created, Dead bool
	// Attempt and Fence are those of the lease. Due and Until are as the client was told them; Time is
	// the shard's clock.
	Attempt          uint32
	Fence            uint64
	Due, Until, Time fsm.Time
	// Asked is the delay that a nack or release named; Given says whether it named one.
	Asked time.Duration
	Given bool
	// Put is what was put, and Version the version that was answered, of a Put, Replace or Successor.
	Put     *fsm.Put
	Version uint64
	// Body is that of a Grant, if it was heard.
	Body []byte
	// Op is the call, nil unless Heard.
	Op *history.Op
}

// Log holds the facts about a shard's log that its jobs are judged by, beside their events.
type Log struct {
	Shard uint32
	// Diverged says that the log cannot be carried out: what clients were not told is unknown.
	Diverged bool
	// Changes are, by queue, the places of redrives, purges and deletions.
	Changes map[string][]Place
	// Since turns shard time into time since the start of the run.
	Since func(fsm.Time) time.Duration
	// IsMirrorRecord reports whether a job is a record of the mirror, which never ends.
	IsMirrorRecord func(*ledger.Job) bool
	// Drained is when consumers had drained all queues, 0 if they did not; DrainedAt is the shard time
	// from which on every job that was available must have been handed out.
	Drained   time.Duration
	DrainedAt fsm.Time
}

// Place is the place of a command in a shard's log.
type Place struct {
	Index  uint64
	Number uint32
}

func (p Place) before(q Place) bool {
	return p.Index < q.Index || p.Index == q.Index && p.Number < q.Number
}

// placed is an event with its sort key: the job and the place.
type placed struct {
	serial uint64
	Place
	event *Event
}

// Follow judges every job of a shard by the events told, in any order, and adds what it finds to
// found.
func Follow(facts Log, told [][]Event, found *finding.Set) {
	var all []placed
	for _, events := range told {
		all = slices.Grow(all, len(events))
		for k := range events {
			e := &events[k]
			all = append(all, placed{e.Account.Serial, Place{e.Index, e.Number}, e})
		}
	}
	slices.SortFunc(all, func(a, b placed) int {
		switch {
		case a.serial != b.serial:
			return cmp.Compare(a.serial, b.serial)
		case a.Index != b.Index:
			return cmp.Compare(a.Index, b.Index)
		default:
			return cmp.Compare(a.Number, b.Number)
		}
	})
	f := follower{facts: facts, found: found}
	for k := range all {
		f.event(all[k].event)
	}
	f.finish()
}

// shown is where a job stands after what a client was told of it last.
type shown struct {
	where      standing
	due, until fsm.Time
}

// follower follows one job after the other.
type follower struct {
	facts Log
	found *finding.Set

	account *ledger.Job
	shown   shown
	where   standing
	last    Place
	granted Place
	// moved says that the queue was redriven, purged or deleted since the job was handed out last.
	moved   bool
	attempt uint32
	fence   uint64
	until   fsm.Time
	due     fsm.Time
}

func (f *follower) violated(i finding.Invariant, e *Event, format string, args ...any) {
	at, who := f.facts.Since(e.Time), "the log"
	if e.Op != nil {
		at, who = e.Op.Returned, wire.Describe(e.Op)
	}
	args = append([]any{f.facts.Shard, e.Index, e.Number, e.Account.Serial, e.Account.Queue.Name, who}, args...)
	f.found.Violated(i, at, "shard %d, entry %d.%d, job %d of %s, by %s: "+format, args...)
}

// touched reports whether the job's queue was redriven, purged or deleted since the event before.
func (f *follower) touched(e *Event) bool {
	for _, p := range f.facts.Changes[e.Account.Queue.Name] {
		if f.last.before(p) && p.before(Place{e.Index, e.Number}) {
			return true
		}
	}
	return false
}

// event follows one event.
func (f *follower) event(e *Event) {
	if e.Account != f.account {
		f.finish()
		*f = follower{facts: f.facts, found: f.found, account: e.Account}
	}
	f.moved = f.moved || f.touched(e)
	switch {
	case e.Kind == Put:
		f.put(e)
	case e.Kind == Grant:
		f.grant(e)
	case !e.OK:
		f.stale(e)
	case e.Kind == Cancel:
		f.where = over
	case e.Kind == Reschedule:
		f.due = e.Due
	case e.Kind == Replace:
		f.where, f.due, f.attempt, f.moved = waiting, e.Due, 0, false
	case e.Kind == Successor: // it is another job
	default:
		f.onLease(e)
	}
	if e.OK && (e.Kind != Put || e.Created) {
		f.last = Place{e.Index, e.Number}
	}
	if e.Heard {
		f.shown = shown{f.where, f.due, f.until}
	}
}

// finish judges what became of a job by what clients were told: one that was available long before
// the end of the drain was lost.
func (f *follower) finish() {
	a := f.account
	if f.facts.Diverged {
		f.where, f.due, f.until = f.shown.where, f.shown.due, f.shown.until // only what clients were told is known
	}
	if a == nil || f.where != waiting && f.where != holding || f.facts.Drained == 0 || f.facts.IsMirrorRecord(a) {
		return
	}
	f.found.Look(1)
	drained := f.facts.DrainedAt
	available := f.due
	if f.where == holding {
		available = f.until.Add(leadGrace)
	}
	end := Event{Account: a, Index: 1 << 62}
	exempt := a.Put.Given.Has(fsm.GivenTTL) || a.Queue.Settings.Overdue == fsm.DropOverdue || a.State == fsm.Dead ||
		a.WasFollowed() || a.Queue.Settings.PausedAt(drained)
	if exempt || max(available, a.Created) >= drained || f.moved || f.touched(&end) {
		return
	}
	f.found.Violated(1, f.facts.Drained,
		"job %d of %s in shard %d (put at entry %d) was there for anybody from %v on, and "+
			"no client was handed it by %v",
		a.Serial, a.Queue.Name, f.facts.Shard, a.Index, f.facts.Since(max(available, a.Created)), f.facts.Drained)
}

func (f *follower) put(e *Event) {
	if !e.Created {
		return // a repeat
	}
	if f.where != absent {
		f.violated(5, e, "it was told to be put, and had been put before")
	}
	f.where, f.due = waiting, e.Due
}

// grant follows a job that was handed out.
func (f *follower) grant(e *Event) {
	f.found.Look(8)
	if e.Time < e.Due-fsm.Time(time.Millisecond) { // due times are rounded up on the wire
		f.violated(8, e, "it was handed out at %d and is due at %d", e.Time, e.Due)
	}
	moved := f.moved
	f.found.Look(17)
	switch {
	case f.where != absent && e.Fence == f.fence && f.granted == (Place{e.Index, e.Number}):
		return // told again
	case f.where == holding && e.Time < f.until && !moved:
		f.violated(17, e, "it was handed out with fence %d at %d, it is leased with fence %d until %d", e.Fence, e.Time,
			f.fence, f.until)
		f.violated(20, e, "it was handed out again, and nothing had ended its lease with fence %d", f.fence)
	case f.where == over && e.Account.WasCancelled():
		f.violated(23, e, "it was handed out, and had been cancelled")
	case f.where == over:
		f.violated(19, e, "it was handed out with fence %d, and had been acked with fence %d", e.Fence, f.fence)
	case f.where == dead && !moved:
		f.violated(22, e, "it was handed out as attempt %d, and is dead", e.Attempt)
	case f.where == waiting && e.Time < f.due-fsm.Time(time.Millisecond) && !moved:
		f.violated(8, e, "it was handed out at %d, it was told to be due at %d", e.Time, f.due)
	}
	f.found.Look(15)
	if f.fence != 0 && e.Fence <= f.fence {
		f.violated(15, e, "it was handed out with fence %d after fence %d", e.Fence, f.fence)
	}
	f.found.Look(21)
	if e.Attempt != f.attempt+1 && (!moved || e.Attempt != 1) {
		f.violated(21, e, "it was handed out as attempt %d after attempt %d", e.Attempt, f.attempt)
	}
	if put := e.Account.Put; put.Given.Has(fsm.GivenMaxAttempts) && put.MaxAttempts > 0 && e.Attempt > put.MaxAttempts {
		f.violated(22, e, "it was handed out as attempt %d of %d", e.Attempt, put.MaxAttempts)
	}
	f.where, f.fence, f.attempt, f.until, f.moved = holding, e.Fence, e.Attempt, e.Until, false
	f.granted = Place{e.Index, e.Number}
}

// stale follows a lease that was called stale.
func (f *follower) stale(e *Event) {
	f.found.Look(18)
	if f.where == holding && e.Fence == f.fence && e.Time < f.until && !f.moved {
		f.violated(18, e, "its lease with fence %d was called stale at %d, it lasts until %d", e.Fence, e.Time, f.until)
	}
}

// onLease follows what was done with a lease.
func (f *follower) onLease(e *Event) {
	f.found.Look(16)
	switch {
	case e.Kind == Ack && f.where == over && e.Fence == f.fence:
		return // again
	case f.fence != 0 && e.Fence != f.fence:
		f.violated(16, e, "the lease with fence %d was taken, the last one given has fence %d", e.Fence, f.fence)
		return
	case f.where != holding && !f.moved:
		f.violated(16, e, "the lease with fence %d was taken, which had been ended", e.Fence)
		return
	}
	f.found.Look(24)
	switch e.Kind {
	case Ack:
		f.where = over
	case Extend:
		f.until = max(f.until, e.Until)
	case Nack, Release:
		if e.Kind == Release && f.attempt > 0 {
			f.attempt--
		}
		if f.where, f.due = waiting, e.Due; e.Dead {
			f.where = dead
		}
		if want := wire.CeilTime(e.Time.After(e.Asked)); e.Heard && e.Given && !e.Dead && e.Due != 0 && e.Due != want {
			f.violated(24, e, "it was given back with a delay of %v at %d and is due at %d", e.Asked, e.Time, e.Due)
		}
	default:
	}
}
