package sample

import (
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/checker/wire"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// callKind is what a call is about, as far as one job goes.
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
	callRedrive // may make the job ready again, if it is dead
	callRemove  // may remove the job
)

// jobCall is one call as one job sees it.
type jobCall struct {
	kind              callKind
	invoked, returned time.Duration
	ok, unknown       bool
	reason            belfryv1.Reason
	// time is the shard's, by the witness; 0 if it is not that of the effect.
	time           fsm.Time
	fence          uint64
	attempt        uint32
	due, until     fsm.Time
	created, force bool
	dead, again    bool
}

// standing is where a job is by the model.
type standing uint8

const (
	absent standing = iota
	waiting
	holding
	dead
	over
)

// jobState is all that the model knows of a job.
type jobState struct {
	where             standing
	first, due, until fsm.Time
	clock, ended      fsm.Time
	fence             uint64
	attempt           uint32
}

// jobModel is the life of one job as its clients may see it.
type jobModel struct {
	// most is how many attempts it has; 0 for any number.
	most uint32
	// unheard says that there may be grants that no client heard of.
	unheard bool
	// window is how long the queue remembers ids.
	window time.Duration
}

// porcupine returns the model as porcupine takes it.
func (m *jobModel) porcupine() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{jobState{}} },
		Step: func(state, input, _ any) []any {
			one := input.(*jobCall)
			var next []any
			for _, s := range m.lapses(state.(jobState), one) {
				for _, n := range m.step(s, one) {
					next = append(next, n)
				}
			}
			return next
		},
	}
	return model.ToModel()
}

// exhausted reports whether a job has no attempt left.
func (m *jobModel) exhausted(s jobState) bool { return m.most > 0 && s.attempt >= m.most }

// lapses returns the states that a job may be in when a call comes: its lease may have ended by
// itself.
func (m *jobModel) lapses(s jobState, one *jobCall) []jobState {
	if one.time != 0 {
		if one.time < s.clock {
			return nil
		}
		s.clock = one.time
	}
	if s.where != holding || one.time != 0 && one.time < s.until {
		return []jobState{s}
	}
	ended := s
	ended.where, ended.due = waiting, s.until
	if m.exhausted(s) {
		ended.where = dead
	}
	return []jobState{s, ended}
}

// step returns the states after a call, none if it cannot have been answered so.
func (m *jobModel) step(s jobState, one *jobCall) []jobState {
	switch {
	case one.kind == callRedrive || one.kind == callRemove:
		return m.wide(s, one)
	case one.unknown:
		if after, ok := m.effect(s, one); ok {
			return []jobState{s, after}
		}
		return []jobState{s}
	case !one.ok:
		if m.refused(s, one) {
			return []jobState{s}
		}
		return nil
	}
	if m.repeated(s, one) {
		return []jobState{s}
	}
	if after, ok := m.effect(s, one); ok {
		return []jobState{after}
	}
	return nil
}

// repeated reports whether a call that was answered ok is one that did nothing.
func (m *jobModel) repeated(s jobState, one *jobCall) bool {
	switch one.kind {
	case callPut:
		return !one.created && s.where != absent && (one.due == s.first || s.first == 0)
	case callGrant:
		return s.where == holding && s.fence == one.fence
	case callAck:
		return s.where == over && s.fence == one.fence
	default:
		return false
	}
}

// effect returns the state after a call that does something, false if it cannot.
func (m *jobModel) effect(s jobState, one *jobCall) (jobState, bool) {
	mine := s.where == holding && s.fence == one.fence
	switch one.kind {
	case callPut:
		ok := (s.where == absent || s.where == over && (one.again || one.time == 0 || one.time >= s.ended.Add(m.window))) &&
			(one.created || one.unknown)
		s.where, s.first, s.due, s.attempt = waiting, one.due, one.due, 0
		return s, ok
	case callGrant:
		ok := s.where == waiting && one.time >= s.due && one.fence > s.fence
		ok = ok && (one.attempt == s.attempt+1 || m.unheard && one.attempt > s.attempt)
		s.where, s.fence, s.attempt, s.until = holding, one.fence, one.attempt, one.until
		return s, ok
	case callAck:
		s.where, s.ended = over, s.clock
		return s, mine
	case callNack:
		s.where, s.due = waiting, one.due
		if one.dead || one.unknown && m.exhausted(s) {
			s.where = dead
		}
		return s, mine
	case callRelease:
		s.where, s.due = waiting, one.due
		s.attempt -= min(1, s.attempt)
		return s, mine
	case callExtend:
		s.until = max(s.until, one.until)
		return s, mine
	case callCancel:
		ok := s.where == waiting || s.where == dead || s.where == holding && one.force
		s.where, s.fence, s.ended = over, 0, s.clock
		return s, ok
	case callReschedule:
		ok := s.where == waiting
		s.due = one.due
		return s, ok
	default:
		return s, false
	}
}

// refused reports whether a call can have been refused by the job's state.
func (m *jobModel) refused(s jobState, one *jobCall) bool {
	switch one.reason {
	case belfryv1.Reason_REASON_STALE_LEASE:
		return s.where != holding || s.fence != one.fence || one.time >= s.until
	case belfryv1.Reason_REASON_JOB_EXISTS:
		return s.where != absent
	case belfryv1.Reason_REASON_JOB_NOT_FOUND:
		return s.where == absent || s.where == over || one.kind == callReschedule && (s.where == dead || m.unheard)
	case belfryv1.Reason_REASON_JOB_RESERVED:
		return s.where == holding || m.unheard
	default:
		return true // by the queue's limits, or by the request's id
	}
}

// wide returns the states after a call that may have touched the job.
func (m *jobModel) wide(s jobState, one *jobCall) []jobState {
	after := s
	switch {
	case one.kind == callRemove && s.where != absent:
		after.where, after.fence, after.ended = over, 0, s.clock
	case one.kind == callRedrive && (s.where == dead || m.unheard && s.where != absent && s.where != over):
		after.where, after.due, after.attempt = waiting, 0, 0
	default:
		return []jobState{s}
	}
	return []jobState{s, after}
}

// leaseOf is the lease that a call names, and the request id of the call; empty if it names none.
func leaseOf(o *history.Op) (token, requestID string) {
	switch req := o.Request.(type) {
	case *belfryv1.AckRequest:
		return req.GetLease(), req.GetRequestId()
	case *belfryv1.NackRequest:
		return req.GetLease(), req.GetRequestId()
	case *belfryv1.ReleaseRequest:
		return req.GetLease(), req.GetRequestId()
	case *belfryv1.ExtendRequest:
		return req.GetLease(), req.GetRequestId()
	default:
		return "", ""
	}
}

// callOnLease takes note of a call that names a lease of a job of the sample.
func (s *survey) callOnLease(o *history.Op) {
	if req, ok := o.Request.(*belfryv1.AckBatchRequest); ok {
		s.ackBatch(o, req)
		return
	}
	token, requestID := leaseOf(o)
	j := s.leases[token]
	if j == nil {
		return
	}
	one := &jobCall{invoked: o.Invoked, returned: o.Returned}
	switch req := o.Request.(type) {
	case *belfryv1.AckRequest:
		one.kind = callAck
	case *belfryv1.NackRequest:
		one.kind, one.dead = callNack, req.GetDead()
	case *belfryv1.ReleaseRequest:
		one.kind = callRelease
	case *belfryv1.ExtendRequest:
		one.kind = callExtend
	}
	switch resp := o.Response.(type) {
	case *belfryv1.AckResponse:
		one.ok, one.time = true, wire.TimeOf(resp.GetWitness().GetTime())
	case *belfryv1.NackResponse:
		one.ok, one.time, one.due = true, wire.TimeOf(resp.GetWitness().GetTime()), wire.TimeOf(resp.GetDueAt())
		one.dead = resp.GetState() == belfryv1.JobState_JOB_STATE_DEAD
	case *belfryv1.ReleaseResponse:
		one.ok, one.time, one.due = true, wire.TimeOf(resp.GetWitness().GetTime()), wire.TimeOf(resp.GetDueAt())
	case *belfryv1.ExtendResponse:
		one.ok, one.time, one.until = true, wire.TimeOf(resp.GetWitness().GetTime()), wire.TimeOf(resp.GetLeaseUntil())
	}
	if !o.OK() {
		one.told(o.Outcome, o.Reason, o.Witness)
	}
	ref, _ := wire.ParseLease(token)
	one.fence = ref.Fence
	j.add(one, requestID)
}

// ackBatch takes note of the leases of a batch.
func (s *survey) ackBatch(o *history.Op, req *belfryv1.AckBatchRequest) {
	resp, _ := o.Response.(*belfryv1.AckBatchResponse)
	for i, token := range req.GetLeases() {
		j := s.leases[token]
		if j == nil {
			continue
		}
		ref, _ := wire.ParseLease(token)
		one := &jobCall{kind: callAck, fence: ref.Fence, invoked: o.Invoked, returned: o.Returned}
		switch {
		case resp == nil || i >= len(resp.GetResults()):
			one.told(o.Outcome, o.Reason, o.Witness)
		case resp.GetResults()[i].GetAck() != nil:
			one.ok, one.time = true, wire.TimeOf(resp.GetResults()[i].GetAck().GetWitness().GetTime())
		default:
			e := resp.GetResults()[i].GetError()
			one.told(e.GetOutcome(), e.GetReason(), e.GetWitness())
		}
		j.add(one, req.GetRequestId())
	}
}
