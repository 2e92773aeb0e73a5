package node

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/storage"
)

// admission decides on the leader whether a request is proposed. It checks voters, disk, memory, the limits of queues, the
// lease budget and the quotas of namespaces, in this order. A node that does not lead leaves the decision to the leader: it
// admits the request, or refuses it with ErrNoLeader. Only the number of queues is checked later, by the proposer; see
// queueCountLimit.
type admission struct {
	name   string // of the shard
	leads  func() bool
	idle   func() bool // every earlier request is applied
	view   machineView
	voters func() *VotersError // the shortage of voters; nil if there are enough
	// handsOver reports whether this leader hands over because of its disk.
	handsOver func() bool
	space     *storage.Space
	memory    *memory
	// votersFull is the state of another voter whose memory is full; nil if there is none.
	votersFull atomic.Pointer[MemoryError]
	leases     leaseBudget
	fullQueues fullQueues
	quotas     *quotas
}

// newAdmission returns the admission of a shard, whose proposer exists.
func newAdmission(s *shard) *admission {
	n := s.node
	return &admission{
		name: s.name, leads: s.serves, idle: s.proposer.idle, view: s.view, voters: s.lacksVoters,
		handsOver: func() bool { return n.relieved() && !s.soleVoter() },
		space:     n.space, memory: n.memory,
		quotas: &quotas{
			name: s.name, view: s.view, nodeLimited: &n.namespacesLimited, askForMore: n.askForMoreQuota,
			noLeader: func() error { return s.refusal(outcome.ErrNoLeader) },
		},
	}
}

// admitted is a request that may be proposed.
type admitted struct {
	// request may reserve fewer jobs than the caller's.
	request *fsm.Request
	// reservation is its quota. It must be released.
	reservation *reservation
	// refused are the results of a request that the limits of its queues refuse; nil if it may be proposed.
	refused []fsm.Result
}

// admit decides on a request. It may wait up to quotaWait for quota.
func (a *admission) admit(ctx context.Context, req *fsm.Request) (admitted, error) {
	if err := a.check(req); err != nil {
		return admitted{}, err
	}
	if results := a.refusedByQueues(req); results != nil {
		return admitted{refused: results}, nil
	}
	bounded, err := a.boundLeases(req)
	if err != nil && !a.view.knows(req) { // a repeat takes no further lease
		return admitted{}, err
	}
	reservation, err := a.quotas.reserve(ctx, bounded)
	return admitted{request: bounded, reservation: reservation}, err
}

// check refuses requests that would fill a full disk or memory further: puts if either is low, and everything that frees
// no space if space is scarce. An entry that cannot be written ends the process, so if space is exhausted, no caller's
// request is logged. It also refuses what too few voters would store. A repeat adds nothing to memory, and passes. While
// the leader hands over, the refusal is ErrNoLeader: the next leader takes the call.
func (a *admission) check(req *fsm.Request) error {
	if !a.leads() {
		return nil
	}
	if err := a.checkVoters(req); err != nil {
		return err
	}
	low, full, voter := a.space.Low(), a.memory.full.Load(), a.votersFull.Load()
	if !low && !full && voter == nil {
		return nil
	}
	scarce, exhausted, anyAdds := a.space.Scarce(), a.space.Exhausted(), false
	for _, c := range req.Commands {
		k := c.Kind()
		adds := k == fsm.KindPut || k == fsm.KindOpen || k == fsm.KindImport
		if exhausted || adds && low || scarce && !frees(k) {
			return a.diskRefusal()
		}
		anyAdds = anyAdds || adds
	}
	switch {
	case !anyAdds || !full && voter == nil || a.view.knows(req):
		return nil
	case full:
		return fmt.Errorf("%s: %w", a.name, a.memory.refusal())
	default:
		return fmt.Errorf("%s: %w", a.name, voter)
	}
}

// checkVoters refuses requests that add to a shard with too few voters.
func (a *admission) checkVoters(req *fsm.Request) error {
	short := a.voters()
	if short == nil {
		return nil
	}
	for _, c := range req.Commands {
		if !frees(c.Kind()) {
			return fmt.Errorf("%s: %w", a.name, short)
		}
	}
	return nil
}

// scarce reports whether no reservation may be logged: the disk is nearly full, or there are too few voters.
func (a *admission) scarce() bool { return a.space.Scarce() || a.voters() != nil }

// memoryFull reports whether puts are refused because memory is full, here or at another voter.
func (a *admission) memoryFull() bool { return a.memory.full.Load() || a.votersFull.Load() != nil }

// diskRefusal returns the error for requests that the disk has no room for.
func (a *admission) diskRefusal() error {
	if a.handsOver() {
		return fmt.Errorf("%s: %w: its leader hands over: %w", a.name, outcome.ErrNoLeader, outcome.ErrDiskFull)
	}
	return fmt.Errorf("%s: %w", a.name, outcome.ErrDiskFull)
}

// frees reports whether a command ends jobs, or must be logged for the shard to be served at all.
func frees(k fsm.Kind) bool {
	switch k {
	case fsm.KindAck, fsm.KindCancel, fsm.KindPurge, fsm.KindDeleteQueue, fsm.KindExpire, fsm.KindLead, fsm.KindResetClock:
		return true
	default:
		return false
	}
}
