package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The books follow what the log gives when the checker's own machine carries it out. A server whose
// machine has a mistake tells its clients something else. So what clients were told is followed
// once more by itself, job by job in the order of the witnesses; from the log comes only what
// nobody was told.

// leadGrace is more than a new leader adds to a lease.
const leadGrace = 5 * time.Second

// callKind is what befell a job.
type callKind uint8

const (
	callPut callKind = iota
	callGrant
	callAck
	callNack
	callRelease
	callExtend
	callCancel
	callReschedule
)

// standing is where a job is by what clients were told.
type standing uint8

const (
	absent standing = iota
	waiting
	holding
	buried
	over
)

// event is something that befell a job.
type event struct {
	account *ledger.Job
	index   uint64
	number  uint32
	kind    callKind
	heard   bool
	ok      bool
	created bool
	dead    bool
	given   bool // of asked
	// attempt and fence are of a grant; due and until as told, time the shard's.
	attempt          uint32
	fence            uint64
	due, until, time fsm.Time
	// asked is what a nack or release asked for; given says that it named a delay.
	asked time.Duration
	op    *history.Op
}

// tell notes an event that a client was told of.
func (j *joiner) tell(shard uint32, e event) {
	if e.account == nil {
		return
	}
	e.heard, e.op = true, j.op
	if j.told == nil {
		j.told = map[uint32][]event{}
	}
	all := j.told[shard]
	if all == nil {
		all = make([]event, 0, joinChunk/len(j.c.order_))
	}
	j.told[shard] = append(all, e)
}

// tellAt is tell for what befell the job of a command, at its place.
func (j *joiner) tellAt(one *ledger.Command, w *belfryv1.Witness, e event) {
	if one.Result.Replayed {
		return // it happened at another place
	}
	e.index, e.number, e.time = w.GetIndex(), w.GetEntry(), wire.TimeOf(w.GetTime())
	if e.account == nil {
		e.account = one.Job
	}
	j.tell(w.GetShard(), e)
}

// tellRefused notes that a lease was called stale.
func (j *joiner) tellRefused(one *ledger.Command, w *belfryv1.Witness, reason belfryv1.Reason) {
	if reason != belfryv1.Reason_REASON_STALE_LEASE {
		return
	}
	if ref, ok := wire.RefOf(one.Command); ok {
		j.tellAt(one, w, event{kind: callAck, fence: ref.Fence})
	}
}

// happening is an event with what it is sorted by: the job and the place.
type happening struct {
	serial uint64
	place
	event *event
}

// follow follows all jobs of all shards by what clients were told.
func (c *check) follow(*finding.Set) {
	c.parallel(len(c.order_), func(i int, found *finding.Set) {
		l := c.shards[c.order_[i]]
		var all []happening
		for _, events := range append(c.told[l.shard], l.unheard()) {
			all = slices.Grow(all, len(events))
			for k := range events {
				e := &events[k]
				all = append(all, happening{e.account.Serial, place{e.index, e.number}, e})
			}
		}
		slices.SortFunc(all, func(a, b happening) int {
			switch {
			case a.serial != b.serial:
				return cmp.Compare(a.serial, b.serial)
			case a.index != b.index:
				return cmp.Compare(a.index, b.index)
			default:
				return cmp.Compare(a.number, b.number)
			}
		})
		f := follower{c: c, log: l, found: found, wide: l.wide()}
		for k := range all {
			f.event(all[k].event)
		}
		f.finish()
	})
}

// unheard are the events of a shard's log that no client was told of.
func (l *shardLog) unheard() (all []event) {
	for i := range l.commands {
		one := &l.commands[i]
		if !one.Effect || l.answered[i].Load() || one.Job == nil {
			continue
		}
		e := event{account: one.Job, index: one.Entry.Index, number: one.Number, time: one.Entry.Clock, ok: true,
			due: one.Result.Due, until: one.Result.Until}
		e.dead = one.Result.State == fsm.Dead
		switch one.Command.(type) {
		case *fsm.Put:
			e.kind, e.created = callPut, true
		case *fsm.Ack:
			e.kind = callAck
		case *fsm.Nack:
			e.kind = callNack
		case *fsm.Release:
			e.kind = callRelease
		case *fsm.Extend:
			e.kind = callExtend
		case *fsm.Cancel:
			e.kind = callCancel
		case *fsm.Reschedule:
			e.kind = callReschedule
		default:
			continue
		}
		if ref, ok := wire.RefOf(one.Command); ok {
			e.fence = ref.Fence
		}
		all = append(all, e)
	}
	for _, g := range l.books.Leases() {
		if l.told[g.Ordinal].Load() == nil {
			all = append(all, event{
				account: g.Job, index: g.Command.Entry.Index, number: g.Command.Number, kind: callGrant, ok: true,
				time:  g.Command.Entry.Clock,
				fence: g.Fence, attempt: g.Attempt, due: g.Due, until: g.Until,
			})
		}
	}
	return all
}

// place is a place in a shard's log.
type place struct {
	index  uint64
	number uint32
}

func (p place) before(q place) bool {
	return p.index < q.index || p.index == q.index && p.number < q.number
}

// wide are the places at which jobs of a queue were made ready again, removed, or ended otherwise
// than by a call of their own.
func (l *shardLog) wide() map[string][]place {
	wide := map[string][]place{}
	for i := range l.commands {
		one := &l.commands[i]
		switch one.Command.(type) {
		case *fsm.Redrive, *fsm.Purge, *fsm.DeleteQueue:
			if one.Effect {
				wide[fsm.QueueOf(one.Command)] = append(wide[fsm.QueueOf(one.Command)], place{one.Entry.Index, one.Number})
			}
		}
	}
	return wide
}

// shown is where a job stands after what a client was told of it last.
type shown struct {
	where      standing
	due, until fsm.Time
}

// follower follows one job after the other.
type follower struct {
	c     *check
	log   *shardLog
	found *finding.Set
	wide  map[string][]place

	account *ledger.Job
	shown   shown
	where   standing
	last    place
	granted place
	// moved says that the queue was redriven, purged or deleted since the job was handed out last.
	moved   bool
	attempt uint32
	fence   uint64
	until   fsm.Time
	due     fsm.Time
}

func (f *follower) violated(i finding.Invariant, e *event, format string, args ...any) {
	at, who := f.c.since(e.time), "the log"
	if e.op != nil {
		at, who = e.op.Returned, wire.Describe(e.op)
	}
	args = append([]any{f.log.shard, e.index, e.number, e.account.Serial, e.account.Queue.Name, who}, args...)
	f.found.Violated(i, at, "shard %d, entry %d.%d, job %d of %s, by %s: "+format, args...)
}

// touched reports whether the job's queue was redriven, purged or deleted since the event before.
func (f *follower) touched(e *event) bool {
	for _, p := range f.wide[e.account.Queue.Name] {
		if f.last.before(p) && p.before(place{e.index, e.number}) {
			return true
		}
	}
	return false
}

// event follows one event.
func (f *follower) event(e *event) {
	if e.account != f.account {
		f.finish()
		*f = follower{c: f.c, log: f.log, found: f.found, wide: f.wide, account: e.account}
	}
	f.moved = f.moved || f.touched(e)
	switch {
	case e.kind == callPut:
		f.put(e)
	case e.kind == callGrant:
		f.grant(e)
	case !e.ok:
		f.stale(e)
	case e.kind == callCancel:
		f.where = over
	case e.kind == callReschedule:
		f.due = e.due
	default:
		f.onLease(e)
	}
	if e.ok && (e.kind != callPut || e.created) {
		f.last = place{e.index, e.number}
	}
	if e.heard {
		f.shown = shown{f.where, f.due, f.until}
	}
}

// finish judges what became of a job by what clients were told: one that was there for anybody long
// before the end of the drain was lost.
func (f *follower) finish() {
	a, run := f.account, f.c.run
	if f.log.diverged {
		f.where, f.due, f.until = f.shown.where, f.shown.due, f.shown.until // what nobody was told of is not known then
	}
	if a == nil || f.where != waiting && f.where != holding || run.Drained == 0 || f.c.remembered(a) {
		return
	}
	f.found.Look(1)
	drained := f.c.at(run.Drained - drainSlack)
	available := f.due
	if f.where == holding {
		available = f.until.Add(leadGrace)
	}
	end := event{account: a, index: 1 << 62}
	exempt := a.Put.Given.Has(fsm.GivenTTL) || a.Queue.Settings.Overdue == fsm.DropOverdue || a.State == fsm.Dead ||
		a.Queue.Settings.PausedAt(drained)
	if exempt || max(available, a.Created) >= drained || f.moved || f.touched(&end) {
		return
	}
	f.found.Violated(1, run.Drained, "job %d of %s in shard %d (put at entry %d) was there for anybody from %v on, and "+
		"no client was handed it by %v",
		a.Serial, a.Queue.Name, f.log.shard, a.Index, f.c.since(max(available, a.Created)), run.Drained)
}

func (f *follower) put(e *event) {
	if !e.created {
		return // a repeat
	}
	if f.where != absent {
		f.violated(5, e, "it was told to be put, and had been put before")
	}
	f.where, f.due = waiting, e.due
}

// grant follows a job that was handed out.
func (f *follower) grant(e *event) {
	f.found.Look(8)
	if e.time < e.due-fsm.Time(time.Millisecond) { // due times are rounded up on the wire
		f.violated(8, e, "it was handed out at %d and is due at %d", e.time, e.due)
	}
	moved := f.moved
	f.found.Look(17)
	switch {
	case f.where != absent && e.fence == f.fence && f.granted == (place{e.index, e.number}):
		return // told again
	case f.where == holding && e.time < f.until && !moved:
		f.violated(17, e, "it was handed out with fence %d at %d, it is leased with fence %d until %d", e.fence, e.time,
			f.fence, f.until)
		f.violated(20, e, "it was handed out again, and nothing had ended its lease with fence %d", f.fence)
	case f.where == over && e.account.WasCancelled():
		f.violated(23, e, "it was handed out, and had been cancelled")
	case f.where == over:
		f.violated(19, e, "it was handed out with fence %d, and had been acked with fence %d", e.fence, f.fence)
	case f.where == buried && !moved:
		f.violated(22, e, "it was handed out as attempt %d, and is dead", e.attempt)
	case f.where == waiting && e.time < f.due-fsm.Time(time.Millisecond) && !moved:
		f.violated(8, e, "it was handed out at %d, it was told to be due at %d", e.time, f.due)
	}
	f.found.Look(15)
	if f.fence != 0 && e.fence <= f.fence {
		f.violated(15, e, "it was handed out with fence %d after fence %d", e.fence, f.fence)
	}
	f.found.Look(21)
	if e.attempt != f.attempt+1 && (!moved || e.attempt != 1) {
		f.violated(21, e, "it was handed out as attempt %d after attempt %d", e.attempt, f.attempt)
	}
	if put := e.account.Put; put.Given.Has(fsm.GivenMaxAttempts) && put.MaxAttempts > 0 && e.attempt > put.MaxAttempts {
		f.violated(22, e, "it was handed out as attempt %d of %d", e.attempt, put.MaxAttempts)
	}
	f.where, f.fence, f.attempt, f.until, f.moved = holding, e.fence, e.attempt, e.until, false
	f.granted = place{e.index, e.number}
}

// stale follows a lease that was called stale.
func (f *follower) stale(e *event) {
	f.found.Look(18)
	if f.where == holding && e.fence == f.fence && e.time < f.until && !f.moved {
		f.violated(18, e, "its lease with fence %d was called stale at %d, it lasts until %d", e.fence, e.time, f.until)
	}
}

// onLease follows what was done with a lease.
func (f *follower) onLease(e *event) {
	f.found.Look(16)
	switch {
	case e.kind == callAck && f.where == over && e.fence == f.fence:
		return // again
	case f.fence != 0 && e.fence != f.fence:
		f.violated(16, e, "the lease with fence %d was taken, the last one given has fence %d", e.fence, f.fence)
		return
	case f.where != holding && !f.moved:
		f.violated(16, e, "the lease with fence %d was taken, which had been ended", e.fence)
		return
	}
	f.found.Look(24)
	switch e.kind {
	case callAck:
		f.where = over
	case callExtend:
		f.until = max(f.until, e.until)
	case callNack, callRelease:
		if e.kind == callRelease && f.attempt > 0 {
			f.attempt--
		}
		if f.where, f.due = waiting, e.due; e.dead {
			f.where = buried
		}
		if want := wire.CeilTime(e.time.After(e.asked)); e.heard && e.given && !e.dead && e.due != 0 && e.due != want {
			f.violated(24, e, "it was given back with a delay of %v at %d and is due at %d", e.asked, e.time, e.due)
		}
	default:
	}
}
