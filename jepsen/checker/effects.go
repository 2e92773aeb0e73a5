package checker

import (
	"encoding/binary"
	"hash/maphash"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/tasks"
	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// tried is how often clients sent one and the same thing, by what they were told, and how often it
// took effect by the log.
type tried struct {
	applied, unknown, refused, overloaded int32
	effects                               int32
	// named tells that a request id makes it one thing, however often it is sent: copies is how often
	// one call sends it, as a batch of equal puts does.
	named          bool
	copies, inLast int32
	first, last    *history.Op
	// since is when it was sent first by a call that was not refused.
	since time.Duration
}

// attempts are all things that clients sent, found by what they are: kind, queue, job, lease,
// request id and body.
type attempts struct {
	found  *finding.Set
	seed   maphash.Seed
	buffer []byte // of key
	byWhat map[uint64]*tried
	room   []tried
}

func newAttempts(found *finding.Set, n int) *attempts {
	return &attempts{found: found, seed: maphash.MakeSeed(), byWhat: make(map[uint64]*tried, n), room: make([]tried, 0, n)}
}

// what is one thing that was sent.
type what struct {
	kind          fsm.Kind
	queue, id     string
	serial, fence uint64
	requestID     string
	body          []byte
}

// key is the number under which a thing is found.
func (a *attempts) key(w *what) uint64 {
	b := append(a.buffer[:0], byte(w.kind))
	b = binary.LittleEndian.AppendUint64(b, w.serial)
	b = binary.LittleEndian.AppendUint64(b, w.fence)
	for _, s := range [...]string{w.queue, w.id, wire.BaseOf(w.requestID)} {
		b = append(append(b, s...), 0)
	}
	a.buffer = append(b, w.body...)
	return maphash.Bytes(a.seed, a.buffer)
}

// add notes that a thing was sent, and what its sender was told.
func (a *attempts) add(o *history.Op, w *what, outcome belfryv1.Outcome, reason belfryv1.Reason) {
	k := a.key(w)
	t := a.byWhat[k]
	if t == nil {
		if len(a.room) == cap(a.room) {
			a.room = make([]tried, 0, 4096)
		}
		a.room = append(a.room, tried{first: o, named: w.requestID != ""})
		t = &a.room[len(a.room)-1]
		a.byWhat[k] = t
	}
	if t.last != o {
		t.last, t.inLast = o, 0
	}
	t.inLast++
	t.copies = max(t.copies, t.inLast)
	switch {
	case outcome == belfryv1.Outcome_OUTCOME_APPLIED:
		t.sent(o)
		t.applied++
	case outcome == belfryv1.Outcome_OUTCOME_NOT_APPLIED && overload(reason):
		t.overloaded++
		a.found.Look(38)
		a.found.Look(3)
	case outcome == belfryv1.Outcome_OUTCOME_NOT_APPLIED:
		t.refused++
		a.found.Look(3)
	default:
		t.sent(o)
		t.unknown++
	}
}

// sent notes that a call sent it that was not refused. Calls come in the order in which they were
// sent.
func (t *tried) sent(o *history.Op) {
	if t.applied+t.unknown == 0 {
		t.since = o.Invoked
	}
}

// overload reports whether a reason is one of those that a server refuses with before it logs
// anything.
func overload(r belfryv1.Reason) bool {
	switch r {
	case belfryv1.Reason_REASON_OVERLOADED, belfryv1.Reason_REASON_DISK_FULL, belfryv1.Reason_REASON_MEMORY_FULL,
		belfryv1.Reason_REASON_TOO_LARGE, belfryv1.Reason_REASON_QUEUE_FULL,
		belfryv1.Reason_REASON_RATE_LIMITED, belfryv1.Reason_REASON_QUOTA:
		return true
	default:
		return false
	}
}

// effects holds what took effect by the log against what clients sent: nothing from nowhere,
// nothing that was refused, and nothing twice.
func (c *check) effects(found *finding.Set) {
	a := newAttempts(found, len(c.ops))
	for _, o := range c.ops {
		a.call(o)
	}
	for _, shard := range c.order_ {
		l := c.shards[shard]
		for i := range l.commands {
			if one := &l.commands[i]; one.Effect && !one.Result.Replayed {
				c.effect(a, l, one)
			}
		}
	}
}

// call notes what one call sent.
func (a *attempts) call(o *history.Op) {
	outcome := wire.OutcomeOf(o)
	if w, ok := whatOf(o); ok {
		a.add(o, &w, outcome, o.Reason)
		return
	}
	switch req := o.Request.(type) {
	case *belfryv1.PutBatchRequest:
		resp, _ := o.Response.(*belfryv1.PutBatchResponse)
		for i, job := range req.GetJobs() {
			told, reason := outcome, o.Reason
			if resp != nil && i < len(resp.GetResults()) {
				told, reason = entryOutcome(resp.GetResults()[i].GetError())
			}
			w := putWhat(job, req.GetRequestId())
			a.add(o, &w, told, reason)
		}
	case *belfryv1.AckBatchRequest:
		resp, _ := o.Response.(*belfryv1.AckBatchResponse)
		for i, token := range req.GetLeases() {
			told, reason := outcome, o.Reason
			if resp != nil && i < len(resp.GetResults()) {
				told, reason = entryOutcome(resp.GetResults()[i].GetError())
			}
			w := leaseWhat(fsm.KindAck, token, req.GetRequestId())
			a.add(o, &w, told, reason)
		}
	}
}

// entryOutcome is what the caller of a batch was told of one entry.
func entryOutcome(e *belfryv1.EntryError) (belfryv1.Outcome, belfryv1.Reason) {
	if e == nil {
		return belfryv1.Outcome_OUTCOME_APPLIED, belfryv1.Reason_REASON_UNSPECIFIED
	}
	return e.GetOutcome(), e.GetReason()
}

// whatOf is what a call sent that sends one thing; false if it sends several, or changes nothing
// that is accounted for.
func whatOf(o *history.Op) (what, bool) {
	switch req := o.Request.(type) {
	case *belfryv1.ReserveRequest:
		if req.GetRequestId() != "" {
			return what{kind: fsm.KindReserve, requestID: req.GetRequestId()}, true
		}
		return what{}, false
	case *belfryv1.PutRequest:
		return putWhat(req, req.GetRequestId()), true
	case *belfryv1.AckRequest:
		return leaseWhat(fsm.KindAck, req.GetLease(), req.GetRequestId()), true
	case *belfryv1.NackRequest:
		return leaseWhat(fsm.KindNack, req.GetLease(), req.GetRequestId()), true
	case *belfryv1.ReleaseRequest:
		return leaseWhat(fsm.KindRelease, req.GetLease(), req.GetRequestId()), true
	case *belfryv1.ExtendRequest:
		return leaseWhat(fsm.KindExtend, req.GetLease(), req.GetRequestId()), true
	case *belfryv1.CancelRequest:
		return what{kind: fsm.KindCancel, queue: req.GetQueue(), id: req.GetId(), requestID: req.GetRequestId()}, true
	case *belfryv1.RescheduleRequest:
		return what{kind: fsm.KindReschedule, queue: req.GetQueue(), id: req.GetId(), requestID: req.GetRequestId()}, true
	case *belfryv1.RedriveRequest:
		return what{kind: fsm.KindRedrive, queue: req.GetQueue(), requestID: req.GetRequestId()}, true
	case *belfryv1.PurgeQueueRequest:
		return what{kind: fsm.KindPurge, queue: req.GetQueue(), requestID: req.GetRequestId()}, true
	case *belfryv1.DeleteQueueRequest:
		return what{kind: fsm.KindDeleteQueue, queue: req.GetQueue(), requestID: req.GetRequestId()}, true
	default:
		return newerWhat(o)
	}
}

// newerWhat is whatOf for calls about keys and schedules. A schedule is what its name says.
func newerWhat(o *history.Op) (what, bool) {
	switch req := o.Request.(type) {
	case *belfryv1.PauseKeyRequest:
		return what{kind: fsm.KindPauseKey, queue: req.GetQueue(), id: req.GetKey(), requestID: req.GetRequestId()}, true
	case *belfryv1.ResumeKeyRequest:
		return what{kind: fsm.KindPauseKey, queue: req.GetQueue(), id: req.GetKey(), requestID: req.GetRequestId()}, true
	case *belfryv1.PurgeKeyRequest:
		return what{kind: fsm.KindPurgeKey, queue: req.GetQueue(), id: req.GetKey(), requestID: req.GetRequestId()}, true
	case *belfryv1.PutScheduleRequest:
		return what{kind: fsm.KindPutSchedule, queue: req.GetQueue(), id: req.GetName(), requestID: req.GetRequestId()}, true
	case *belfryv1.DeleteScheduleRequest:
		return what{kind: fsm.KindDeleteSchedule, queue: req.GetQueue(), id: req.GetName(), requestID: req.GetRequestId()},
			true
	case *belfryv1.PauseSchedulesRequest:
		return what{kind: fsm.KindPauseSchedules, queue: req.GetQueue(), requestID: req.GetRequestId()}, true
	case *belfryv1.ResumeSchedulesRequest:
		return what{kind: fsm.KindPauseSchedules, queue: req.GetQueue(), requestID: req.GetRequestId()}, true
	case *belfryv1.TriggerScheduleRequest:
		return what{kind: fsm.KindRunSchedule, queue: req.GetQueue(), id: req.GetName(), requestID: req.GetRequestId()}, true
	case *belfryv1.BackfillScheduleRequest:
		return what{kind: fsm.KindRunSchedule, queue: req.GetQueue(), id: req.GetName(), requestID: req.GetRequestId()}, true
	default:
		return what{}, false
	}
}

func putWhat(req *belfryv1.PutRequest, requestID string) what {
	return what{kind: fsm.KindPut, queue: req.GetQueue(), id: req.GetId(), requestID: requestID,
		body: wire.BodyOf(req.GetText(), req.GetData())}
}

func leaseWhat(kind fsm.Kind, token, requestID string) what {
	ref, _ := wire.ParseLease(token)
	return what{kind: kind, queue: ref.Queue, serial: ref.Serial, fence: ref.Fence, requestID: requestID}
}

// loggedWhat is the effect of a command of the log. It is false if no client need have sent the
// command, or if it goes in steps, which cannot be distinguished.
func loggedWhat(one *ledger.Command) (what, bool) {
	id := one.Request.ID
	lease := func(ref fsm.Ref) (what, bool) {
		return what{kind: one.Command.Kind(), queue: ref.Queue, serial: ref.Serial, fence: ref.Fence, requestID: id}, true
	}
	switch k := one.Command.(type) {
	case *fsm.Put:
		return what{kind: fsm.KindPut, queue: k.Queue, id: k.ID, requestID: id, body: k.Body}, true
	case *fsm.Reserve:
		if id != "" {
			return what{kind: fsm.KindReserve, requestID: id}, true
		}
		return what{}, false
	case *fsm.Ack:
		return lease(k.Ref)
	case *fsm.Nack:
		return lease(k.Ref)
	case *fsm.Extend:
		return lease(k.Ref)
	case *fsm.Release:
		return lease(k.Ref)
	case *fsm.Cancel:
		return what{kind: fsm.KindCancel, queue: k.Queue, id: k.ID, requestID: id}, true
	case *fsm.Reschedule:
		return what{kind: fsm.KindReschedule, queue: k.Queue, id: k.ID, requestID: id}, true
	case *fsm.Redrive:
		return what{kind: fsm.KindRedrive, queue: k.Queue, requestID: id}, true
	case *fsm.Purge:
		return what{kind: fsm.KindPurge, queue: k.Queue, requestID: id}, true
	case *fsm.PauseKey:
		return what{kind: fsm.KindPauseKey, queue: k.Queue, id: k.Key, requestID: id}, true
	case *fsm.PurgeKey:
		return what{kind: fsm.KindPurgeKey, queue: k.Queue, id: k.Key, requestID: id}, true
	case *fsm.PutSchedule:
		return what{kind: fsm.KindPutSchedule, queue: k.Queue, id: k.Name, requestID: id}, true
	case *fsm.DeleteSchedule:
		return what{kind: fsm.KindDeleteSchedule, queue: k.Queue, id: k.Name, requestID: id}, true
	case *fsm.PauseSchedules:
		return what{kind: fsm.KindPauseSchedules, queue: k.Queue, requestID: id}, true
	case *fsm.RunSchedule:
		return what{kind: fsm.KindRunSchedule, queue: k.Queue, id: k.Name, requestID: id}, true
	default: // a Fire is the leader's own
		return what{}, false
	}
}

// inSteps reports whether one call may log several commands of a kind: in steps, in several shards,
// or again when the first leases are over.
func inSteps(k fsm.Kind) bool {
	switch k {
	case fsm.KindRedrive, fsm.KindPurge, fsm.KindPurgeKey, fsm.KindDeleteQueue, fsm.KindReserve, fsm.KindPauseSchedules,
		fsm.KindRunSchedule:
		return true
	default:
		return false
	}
}

// effect holds one command that took effect against what was sent.
func (c *check) effect(a *attempts, l *shardLog, one *ledger.Command) {
	w, ok := loggedWhat(one)
	if !ok {
		return
	}
	if tasks.IsStep(one.Request) && len(c.tasked) > 0 {
		return // the pass of tasks judges it
	}
	a.found.Look(2)
	a.found.Look(4)
	at := c.since(one.Entry.At)
	t := a.byWhat[a.key(&w)]
	if t == nil {
		c.fromNowhere(a.found, l, one)
		return
	}
	t.effects++
	told := t.applied + t.unknown
	switch {
	case told == 0 && t.overloaded > 0 && t.refused == 0:
		a.found.Violated(38, at, "shard %d, entry %d.%d: %s was refused for overload, and took effect", l.shard,
			one.Entry.Index, one.Number, wire.Describe(t.first))
		a.found.Violated(3, at, "shard %d, entry %d.%d: %s was refused, and took effect", l.shard, one.Entry.Index,
			one.Number, wire.Describe(t.first))
	case told == 0:
		a.found.Violated(3, at, "shard %d, entry %d.%d: %s was refused, and took effect", l.shard, one.Entry.Index,
			one.Number, wire.Describe(t.first))
	case at+stampSlack < t.since && t.refused+t.overloaded > 0:
		a.found.Violated(3, at, "shard %d, entry %d.%d: %s was refused, and took effect before it was sent again", l.shard,
			one.Entry.Index, one.Number, wire.Describe(t.first))
	case at+stampSlack < t.since:
		a.found.Violated(2, at, "shard %d, entry %d.%d: it took effect before %s", l.shard, one.Entry.Index, one.Number,
			wire.Describe(t.first))
	case inSteps(w.kind):
	case t.effects > told, t.effects > t.copies && t.named:
		a.found.Violated(4, at, "shard %d, entry %d.%d: %s took effect %d times; it was sent %d times", l.shard,
			one.Entry.Index, one.Number, wire.Describe(t.first), t.effects, told)
	}
}

// fromNowhere judges a command that took effect and that no client sent. A node releases by itself
// what it granted to a caller that had left.
func (c *check) fromNowhere(found *finding.Set, l *shardLog, one *ledger.Command) {
	at := c.since(one.Entry.At)
	if release, ok := one.Command.(*fsm.Release); ok && one.Request.ID == "" {
		var holder *history.Op
		if held := l.books.Lease(release.Fence); held != nil {
			holder = l.told[held.Ordinal].Load()
		}
		if holder == nil {
			found.Count("grants given back by nodes", 1)
			return
		}
		found.Violated(17, at, "shard %d, entry %d.%d: a node released job %d, which %s holds with fence %d", l.shard,
			one.Entry.Index, one.Number,
			release.Serial, wire.Describe(holder), release.Fence)
		return
	}
	if c.ofMirror(one.Command) {
		found.Count("commands of the mirror", 1)
		return
	}
	found.Violated(2, at, "shard %d, entry %d.%d: a %T of request %q took effect, which no client sent: %+v", l.shard,
		one.Entry.Index, one.Number, one.Command, one.Request.ID, one.Command)
}
