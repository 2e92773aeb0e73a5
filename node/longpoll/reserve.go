package longpoll

import (
	"context"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/propose"
)

// Wait says how long a call of Reserve stays parked.
type Wait struct {
	// For is the longest wait; a call that does not wait has 0.
	For time.Duration
	// Stop, if it is not nil, ends the wait when it is closed, as if For had passed. A call whose
	// reservation is in flight returns with the jobs that it grants. A call that begins after Stop
	// is closed reserves nothing. It only returns live grants that an earlier attempt at its
	// request got.
	Stop <-chan struct{}
}

// stopped reports whether the wait was ended by Stop.
func (w Wait) stopped() bool {
	select {
	case <-w.Stop:
		return true
	default:
		return false
	}
}

// Reserve carries out a request that consists of one fsm.Reserve. It parks the call if there is no
// job and wait allows it. It returns one Result without grants if no job was granted; if nothing
// was logged, the Witness is zero.
func (cs *Calls) Reserve(ctx context.Context, req *fsm.Request, wait Wait) (propose.Reply, error) {
	if err := cs.cfg.Leads(); err != nil {
		return propose.Reply{}, err
	}
	if req.ID != "" && cs.cfg.View.Remembers(req) { // the answer to an earlier attempt is known
		return cs.Do(ctx, req)
	}
	if err := cs.cfg.Admission.Check(req); err != nil {
		cs.cfg.Failed(err, 1)
		return propose.Reply{}, err
	}
	switch {
	case req.ID != "" && (wait.For <= 0 || wait.stopped()) && cs.grants.isInProgress(req): // or soon
		return cs.Do(ctx, req)
	case wait.stopped():
		return propose.Reply{Results: make([]fsm.Result, 1)}, nil
	case wait.For > 0:
		return cs.park(ctx, req, wait)
	case cs.HasFreeJobs(req.Commands[0].(*fsm.Reserve).Queues):
		return cs.reserveNow(ctx, req)
	default:
		return propose.Reply{Results: make([]fsm.Result, 1)}, nil
	}
}

// park parks a Reserve.
func (cs *Calls) park(ctx context.Context, req *fsm.Request, wait Wait) (propose.Reply, error) {
	reply, err := cs.waiters.wait(ctx, req, wait)
	if err != nil {
		err = cs.cfg.Refusal(err)
	}
	return reply, err
}

// emptyEntryWait is how long a call without a wait is parked if other calls of its entry took all
// jobs that the entry made ready.
const emptyEntryWait = 250 * time.Millisecond

// reserveNow reserves without waiting. One entry makes at most fsm.StepMax due jobs of a queue
// ready. If many callers meet a large backlog, the last ones of an entry would get nothing although
// thousands of jobs are due. They are parked briefly, for the next entries.
func (cs *Calls) reserveNow(ctx context.Context, req *fsm.Request) (propose.Reply, error) {
	reply, err := cs.Do(ctx, req)
	if err != nil || reply.Results[0].Code != fsm.OK || reply.Granted() ||
		!cs.hasJobs(req.Commands[0].(*fsm.Reserve).Queues) {
		return reply, err
	}
	return cs.parkBriefly(ctx, req, reply)
}

// parkBriefly parks a call for a moment after an entry that granted nothing, of which first is the
// answer. It returns first if no reservation of the call is logged meanwhile.
func (cs *Calls) parkBriefly(ctx context.Context, req *fsm.Request, first propose.Reply) (propose.Reply, error) {
	wait := emptyEntryWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2) // the rest is for the answer
	}
	reply, err := cs.park(ctx, req, Wait{For: wait})
	if err == nil && reply.Witness == (propose.Witness{}) {
		return first, nil
	}
	return reply, err
}

// hasJobs reports whether one of the queues has a reservable job, even one that a waiter is about
// to get.
func (cs *Calls) hasJobs(queues []string) bool {
	return slices.ContainsFunc(cs.cfg.View.Available(queues), func(jobs uint64) bool { return jobs > 0 })
}

// HasFreeJobs reports whether one of the queues has a reservable job that no parked call is about
// to get.
func (cs *Calls) HasFreeJobs(queues []string) bool {
	// read first: a job that is granted meanwhile counts twice, never zero times
	reserving := cs.waiters.reservingJobs(queues)
	for i, jobs := range cs.cfg.View.Available(queues) {
		if jobs > reserving[i] {
			return true
		}
	}
	return false
}

// releaseAbandoned releases the grants of a request whose caller has left, without counting an
// attempt: at once if the request has no id, else if no repeat collects them.
func (cs *Calls) releaseAbandoned(ctx context.Context, c *pendingGrant, a answer) {
	if c != nil {
		cs.grants.noteAbandoned(c, a)
		return
	}
	if a.err != nil || !a.reply.Granted() {
		return
	}
	req := releaseOf(a.reply.Results[0].Grants)
	cs.cfg.Spawn(func() { // if the shard is being stopped, the leases expire
		ctx, cancel := context.WithTimeout(ctx, cs.cfg.ProposeTimeout)
		defer cancel()
		if _, err := cs.Do(ctx, req); err != nil {
			cs.cfg.Note("releasing jobs whose caller had left; their leases will expire", err)
		}
	})
}
