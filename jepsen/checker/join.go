package checker

import (
	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/lifecycle"
	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// joinChunk is how many calls are joined at a time.
const joinChunk = 4096

// join holds what clients were told against the log: each answer against the command that its
// witness names, and that against what was sent.
func (c *check) join() {
	c.count()
	c.parallel((len(c.ops)+joinChunk-1)/joinChunk, func(i int, found *finding.Set) {
		j := joiner{c: c, found: found}
		for _, o := range c.ops[i*joinChunk : min(len(c.ops), (i+1)*joinChunk)] {
			j.op = o
			j.call()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for shard, events := range j.told {
			c.told[shard] = append(c.told[shard], events)
		}
	})
	c.judgeReads()
}

// count counts calls by their outcome.
func (c *check) count() {
	c.found.Count("calls", int64(len(c.ops)))
	for _, o := range c.ops {
		switch {
		case o.OK():
			c.found.Count("calls answered", 1)
		case o.Outcome == belfryv1.Outcome_OUTCOME_NOT_APPLIED:
			c.found.Count("calls refused", 1)
		default:
			c.found.Count("calls of unknown outcome", 1)
		}
	}
}

// joiner joins calls, one after the other.
type joiner struct {
	c     *check
	found *finding.Set
	op    *history.Op
	// batch says that an entry of a batch is joined, replayed that the answer comes from memory by the
	// log.
	batch, replayed bool
	// told is what clients were told of jobs, by shard.
	told map[uint32][]lifecycle.Event
}

// violated notes a violation at the moment when the call was answered.
func (j *joiner) violated(i finding.Invariant, format string, args ...any) {
	j.found.Violated(i, j.op.Returned, "%s: "+format, append([]any{wire.Describe(j.op)}, args...)...)
}

// call joins one call.
func (j *joiner) call() {
	o := j.op
	if o.Witness != nil && !o.OK() {
		j.refusal(o.Reason, o.Witness)
	}
	if !o.OK() {
		return
	}
	switch req := o.Request.(type) {
	case *belfryv1.PutRequest:
		if resp, ok := answerAs[*belfryv1.PutResponse](j); ok {
			j.put(req, req.GetRequestId(), resp)
		}
	case *belfryv1.PutBatchRequest:
		if resp, ok := answerAs[*belfryv1.PutBatchResponse](j); ok {
			j.putBatch(req, resp)
		}
	case *belfryv1.ReserveRequest:
		if resp, ok := answerAs[*belfryv1.ReserveResponse](j); ok {
			j.reserve(req, resp)
		}
	case *belfryv1.AckRequest:
		if resp, ok := answerAs[*belfryv1.AckResponse](j); ok {
			j.ack(req.GetLease(), req.GetRequestId(), resp)
		}
	case *belfryv1.AckBatchRequest:
		if resp, ok := answerAs[*belfryv1.AckBatchResponse](j); ok {
			j.ackBatch(req, resp)
		}
	case *belfryv1.NackRequest:
		if resp, ok := answerAs[*belfryv1.NackResponse](j); ok {
			j.nack(req, resp)
		}
	case *belfryv1.ReleaseRequest:
		if resp, ok := answerAs[*belfryv1.ReleaseResponse](j); ok {
			j.release(req, resp)
		}
	case *belfryv1.ExtendRequest:
		if resp, ok := answerAs[*belfryv1.ExtendResponse](j); ok {
			j.extend(req, resp)
		}
	default:
		j.callOnQueue()
	}
}

// callOnQueue joins a call that names a job by its id, or a queue.
func (j *joiner) callOnQueue() {
	switch req := j.op.Request.(type) {
	case *belfryv1.CancelRequest:
		if resp, ok := answerAs[*belfryv1.CancelResponse](j); ok {
			j.cancel(req, resp)
		}
	case *belfryv1.RescheduleRequest:
		if resp, ok := answerAs[*belfryv1.RescheduleResponse](j); ok {
			j.reschedule(req, resp)
		}
	case *belfryv1.RedriveRequest:
		if resp, ok := answerAs[*belfryv1.RedriveResponse](j); ok {
			j.steps(&steps{kind: fsm.KindRedrive, queue: req.GetQueue(), requestID: req.GetRequestId(),
				witnesses: resp.GetWitnesses(), count: uint64(resp.GetMoved())})
		}
	case *belfryv1.PurgeQueueRequest:
		if resp, ok := answerAs[*belfryv1.PurgeQueueResponse](j); ok {
			j.steps(&steps{kind: fsm.KindPurge, queue: req.GetQueue(), requestID: req.GetRequestId(),
				witnesses: resp.GetWitnesses(), count: uint64(resp.GetPurged())})
		}
	case *belfryv1.DeleteQueueRequest:
		if resp, ok := answerAs[*belfryv1.DeleteQueueResponse](j); ok {
			j.steps(&steps{kind: fsm.KindDeleteQueue, queue: req.GetQueue(), requestID: req.GetRequestId(),
				witnesses: resp.GetWitnesses(), count: uint64(resp.GetPurged())})
		}
	case *belfryv1.PurgeKeyRequest:
		if resp, ok := answerAs[*belfryv1.PurgeKeyResponse](j); ok {
			j.steps(&steps{kind: fsm.KindPurgeKey, queue: req.GetQueue(), requestID: req.GetRequestId(),
				witnesses: []*belfryv1.Witness{resp.GetWitness()}, count: uint64(resp.GetPurged())})
		}
	case *belfryv1.CreateQueueRequest, *belfryv1.UpdateQueueRequest, *belfryv1.PauseKeyRequest, *belfryv1.ResumeKeyRequest:
		wire.EachWitness(j.op.Response, j.witness)
	default:
		j.callOnSchedule()
	}
}

// answerAs returns the answer as what the request's is to be.
func answerAs[T proto.Message](j *joiner) (T, bool) {
	resp, ok := j.op.Response.(T)
	if !ok {
		j.violated(36, "it was answered with a %T", j.op.Response)
	}
	return resp, ok
}

// entry returns the entry that a witness names.
func (j *joiner) entry(w *belfryv1.Witness) *logEntry {
	if w == nil {
		j.violated(36, "the answer has no witness")
		return nil
	}
	j.found.Look(28)
	l := j.c.shards[w.GetShard()]
	var e *logEntry
	if l != nil {
		e = l.find(w.GetIndex())
	}
	switch {
	case e == nil:
		j.violated(28, "it was answered with %s, which the journals lack", wire.TextOf(w))
		return nil
	case e.term != w.GetTerm():
		j.violated(28, "it was answered with %s of term %d, which has term %d", wire.TextOf(w), w.GetTerm(), e.term)
	case e.Clock != wire.TimeOf(w.GetTime()):
		j.violated(36, "it was answered with %s at shard time %d, which was at %d", wire.TextOf(w), wire.TimeOf(w.GetTime()),
			e.Clock)
	}
	return e
}

// logged returns the command that a witness names.
func (j *joiner) logged(w *belfryv1.Witness) *ledger.Command {
	e := j.entry(w)
	if e == nil {
		return nil
	}
	j.found.Look(36)
	if int(w.GetEntry()) >= len(e.Commands) {
		j.violated(28, "it was answered with %s, where there are %d commands", wire.TextOf(w), len(e.Commands))
		return nil
	}
	one := &e.Commands[w.GetEntry()]
	j.c.shards[w.GetShard()].answered[one.Ordinal].Store(true)
	j.replayed = one.Result.Replayed
	return one
}

// loggedAs is logged for a command of one kind and request.
func loggedAs[T fsm.Command](j *joiner, w *belfryv1.Witness, requestID string) (T, *ledger.Command) {
	var none T
	one := j.logged(w)
	if one == nil {
		return none, nil
	}
	typed, ok := one.Command.(T)
	if !ok || !wire.IsPartOf(one.Request.ID, requestID) {
		j.violated(36, "it was answered with %s, which is a %T of request %q", wire.TextOf(w), one.Command, one.Request.ID)
		return none, nil
	}
	return typed, one
}

// refusal joins the refusal of a call or of an entry of a batch that was decided in a shard's log.
func (j *joiner) refusal(reason belfryv1.Reason, w *belfryv1.Witness) {
	one := j.logged(w)
	if one == nil {
		return
	}
	// What a call over several steps did before one failed is of unknown outcome.
	if got := wire.ReasonOf(one.Result.Code); got != reason && reason != belfryv1.Reason_REASON_UNKNOWN_OUTCOME {
		j.violated(36, "it was refused with %v by %s, which gave %v", reason, wire.TextOf(w), got)
	}
	j.tellRefused(one, w, reason)
}

// differ notes that an answer is not what the log gives, or that the log has not what was sent.
func (j *joiner) differ(i finding.Invariant, same bool, what string, is, want any) {
	if !same {
		j.twice()
		j.violated(i, "%s is %v, should be %v", what, is, want)
	}
}

// point is what two values are of: whose they are, if it is a job's, and the invariant that has
// them be the same.
type point struct {
	invariant finding.Invariant
	what, of  string
}

// same notes that a value of an answer is not the one that the log gives. Nothing is allocated if
// it is.
func same[T comparable](j *joiner, p point, got, want T) {
	if got != want {
		j.twice()
		j.violated(p.invariant, "%s of %s is %v, should be %v", p.what, p.of, got, want)
	}
}

// twice notes that a repeat was answered otherwise than its first: it was carried out again.
func (j *joiner) twice() {
	if j.replayed {
		j.violated(4, "it repeats a request, and was not answered as the first")
	}
}

// ok reports whether a command succeeded, as its answer says.
func (j *joiner) ok(one *ledger.Command, w *belfryv1.Witness) bool {
	if one.Result.Code != fsm.OK {
		j.violated(guardOf(one.Result.Code), "it was answered as done by %s, which gave %v", wire.TextOf(w),
			wire.ReasonOf(one.Result.Code))
	}
	return one.Result.Code == fsm.OK
}

// guardOf is the invariant that a code guards.
func guardOf(c fsm.Code) finding.Invariant {
	switch c {
	case fsm.StaleLease:
		return 16
	case fsm.JobExists:
		return 5
	case fsm.JobNotFound, fsm.JobReserved:
		return 23
	case fsm.QueueFull, fsm.RateLimited, fsm.Quota:
		return 37
	default:
		return 36
	}
}

// callOnSchedule joins a call that changes schedules.
func (j *joiner) callOnSchedule() {
	switch j.op.Request.(type) {
	case *belfryv1.PutScheduleRequest, *belfryv1.DeleteScheduleRequest, *belfryv1.PauseSchedulesRequest,
		*belfryv1.ResumeSchedulesRequest, *belfryv1.TriggerScheduleRequest, *belfryv1.BackfillScheduleRequest:
		wire.EachWitness(j.op.Response, j.witness)
	}
}

// witness joins a witness of which only the place is known.
func (j *joiner) witness(w *belfryv1.Witness) {
	if w != nil {
		j.logged(w)
	}
}

// steps are what a call over shards and steps was answered.
type steps struct {
	kind             fsm.Kind
	queue, requestID string
	witnesses        []*belfryv1.Witness
	count            uint64
}

// steps joins a call that went in steps. Its answer has the witness of each shard's last; those
// before were full.
func (j *joiner) steps(s *steps) {
	var sum uint64
	for _, w := range s.witnesses {
		one := j.logged(w)
		if one == nil {
			return
		}
		if one.Command.Kind() != s.kind || fsm.QueueOf(one.Command) != s.queue ||
			!wire.IsPartOf(one.Request.ID, s.requestID) {
			j.violated(36, "it was answered with %s, which is a %T of queue %s and request %q", wire.TextOf(w), one.Command,
				fsm.QueueOf(one.Command), one.Request.ID)
			return
		}
		sum += one.Result.Count
	}
	full := s.kind == fsm.KindDeleteQueue || (s.count-min(s.count, sum))%fsm.StepMax == 0
	j.differ(24, s.count >= sum && full, "the number of jobs", s.count, sum)
}
