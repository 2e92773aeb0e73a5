package checker

import (
	"strings"

	"github.com/belfrydb/belfry/jepsen/checker/lifecycle"
	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// ref reads a lease that a client sent and that was taken.
func (j *joiner) ref(token string, logged fsm.Ref) {
	ref, ok := wire.ParseLease(token)
	if !ok || ref != logged {
		j.violated(36, "the lease of job %d of %s with fence %d was acted on, %+v was named", logged.Serial, logged.Queue,
			logged.Fence, ref)
	}
}

// ack joins an answered ack.
func (j *joiner) ack(token, requestID string, resp *belfryv1.AckResponse) {
	ack, one := loggedAs[*fsm.Ack](j, resp.GetWitness(), requestID)
	if one == nil {
		return
	}
	j.tellAt(one, resp.GetWitness(), lifecycle.Event{Kind: lifecycle.Ack, OK: true, Fence: ack.Fence})
	if j.ok(one, resp.GetWitness()) {
		j.ref(token, ack.Ref)
	}
}

// ackBatch joins an answered batch of acks.
func (j *joiner) ackBatch(req *belfryv1.AckBatchRequest, resp *belfryv1.AckBatchResponse) {
	if len(resp.GetResults()) != len(req.GetLeases()) {
		j.violated(7, "a batch of %d acks has %d results", len(req.GetLeases()), len(resp.GetResults()))
		return
	}
	for i, one := range resp.GetResults() {
		j.found.Look(7)
		switch {
		case one.GetAck() != nil:
			j.ack(req.GetLeases()[i], req.GetRequestId(), one.GetAck())
		case one.GetError() == nil:
			j.violated(7, "entry %d of a batch has no result", i)
		case one.GetError().GetWitness() != nil:
			j.refusal(one.GetError().GetReason(), one.GetError().GetWitness())
		}
	}
}

// became joins what an answer says that became of a job.
func (j *joiner) became(state belfryv1.JobState, due fsm.Time, r *fsm.Result) {
	j.differ(36, state == wire.StateOf(r.State), "the state", state, r.State)
	want := fsm.Time(0)
	if r.State == fsm.Delayed || r.State == fsm.Ready {
		want = wire.CeilTime(r.Due)
	}
	j.differ(24, due == want, "the due time", due, want)
}

// nack joins an answered nack.
func (j *joiner) nack(req *belfryv1.NackRequest, resp *belfryv1.NackResponse) {
	nack, one := loggedAs[*fsm.Nack](j, resp.GetWitness(), req.GetRequestId())
	if one == nil {
		return
	}
	j.tellAt(one, resp.GetWitness(),
		lifecycle.Event{Kind: lifecycle.Nack, OK: true, Fence: nack.Fence, Due: wire.TimeOf(resp.GetDueAt()),
			Dead: resp.GetState() == belfryv1.JobState_JOB_STATE_DEAD, Asked: nack.Delay, Given: nack.DelayGiven})
	if !j.ok(one, resp.GetWitness()) {
		return
	}
	j.ref(req.GetLease(), nack.Ref)
	j.differ(24, nack.DelayGiven == (req.GetDelay() != nil) && nack.Delay == wire.CeilDelay(req.GetDelay()), "the delay",
		nack.Delay, req.GetDelay().AsDuration())
	j.differ(24, nack.Dead == req.GetDead(), "dead", nack.Dead, req.GetDead())
	j.differ(36, strings.HasPrefix(req.GetError(), nack.Error) && (nack.Error == "") == (req.GetError() == ""),
		"the error", nack.Error, req.GetError())
	j.became(resp.GetState(), wire.TimeOf(resp.GetDueAt()), &one.Result)
}

// release joins an answered release.
func (j *joiner) release(req *belfryv1.ReleaseRequest, resp *belfryv1.ReleaseResponse) {
	release, one := loggedAs[*fsm.Release](j, resp.GetWitness(), req.GetRequestId())
	if one == nil {
		return
	}
	j.tellAt(one, resp.GetWitness(),
		lifecycle.Event{Kind: lifecycle.Release, OK: true, Fence: release.Fence, Due: wire.TimeOf(resp.GetDueAt()),
			Asked: release.Delay, Given: release.Delay > 0})
	if !j.ok(one, resp.GetWitness()) {
		return
	}
	j.ref(req.GetLease(), release.Ref)
	j.differ(24, release.Delay == wire.CeilDelay(req.GetDelay()), "the delay", release.Delay, req.GetDelay().AsDuration())
	j.became(resp.GetState(), wire.TimeOf(resp.GetDueAt()), &one.Result)
}

// extend joins an answered extend.
func (j *joiner) extend(req *belfryv1.ExtendRequest, resp *belfryv1.ExtendResponse) {
	extend, one := loggedAs[*fsm.Extend](j, resp.GetWitness(), req.GetRequestId())
	if one == nil {
		return
	}
	j.tellAt(one, resp.GetWitness(), lifecycle.Event{Kind: lifecycle.Extend, OK: true, Fence: extend.Fence,
		Until: wire.TimeOf(resp.GetLeaseUntil())})
	if !j.ok(one, resp.GetWitness()) {
		return
	}
	j.ref(req.GetLease(), extend.Ref)
	j.differ(18, extend.TTR == req.GetTtr().AsDuration(), "the length of the lease", extend.TTR, req.GetTtr().AsDuration())
	j.differ(18, wire.TimeOf(resp.GetLeaseUntil()) == wire.FloorTime(one.Result.Until), "the end of the lease",
		wire.TimeOf(resp.GetLeaseUntil()), one.Result.Until)
}

// cancel joins an answered cancellation.
func (j *joiner) cancel(req *belfryv1.CancelRequest, resp *belfryv1.CancelResponse) {
	cancel, one := loggedAs[*fsm.Cancel](j, resp.GetWitness(), req.GetRequestId())
	if one == nil || !j.ok(one, resp.GetWitness()) {
		return
	}
	j.tellAt(one, resp.GetWitness(), lifecycle.Event{Kind: lifecycle.Cancel, OK: true})
	j.differ(23, cancel.Queue == req.GetQueue() && cancel.ID == req.GetId() && cancel.Force == req.GetForce(),
		"what was cancelled", *cancel, req.GetId())
	j.differ(36, resp.GetState() == wire.StateOf(one.Result.State), "the state", resp.GetState(), one.Result.State)
}

// reschedule joins an answered new due time.
func (j *joiner) reschedule(req *belfryv1.RescheduleRequest, resp *belfryv1.RescheduleResponse) {
	reschedule, one := loggedAs[*fsm.Reschedule](j, resp.GetWitness(), req.GetRequestId())
	if one == nil || !j.ok(one, resp.GetWitness()) {
		return
	}
	j.tellAt(one, resp.GetWitness(), lifecycle.Event{
		Kind: lifecycle.Reschedule, OK: true, Due: wire.TimeOf(resp.GetDueAt()),
	})
	want := fsm.Reschedule{Queue: req.GetQueue(), ID: req.GetId()}
	if req.GetDelay() != nil {
		want.Given, want.Delay = fsm.GivenDelay, wire.CeilDelay(req.GetDelay())
	} else {
		want.Given, want.DueAt = fsm.GivenDueAt, wire.DueOf(req.GetDueAt())
	}
	j.differ(24, *reschedule == want, "what was rescheduled", *reschedule, want)
	j.differ(36, resp.GetState() == wire.StateOf(one.Result.State), "the state", resp.GetState(), one.Result.State)
	j.differ(36, wire.TimeOf(resp.GetDueAt()) == wire.CeilTime(one.Result.Due), "the due time",
		wire.TimeOf(resp.GetDueAt()),
		one.Result.Due)
}
