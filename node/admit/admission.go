// Package admit decides on the leader of a shard whether a request is proposed. It checks voters,
// disk, memory, the limits of queues, the lease budget and the quotas of namespaces. See DESIGN.md
// beside this file.
package admit

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// Admission decides on the leader whether a request is proposed. It checks voters, disk, memory,
// the limits of queues, the lease budget and the quotas of namespaces, in this order. A node that
// does not lead leaves the decision to the leader: it admits the request, or refuses it with
// ErrNoLeader. Only the number of queues is checked later, by the proposer; see QueueLimit.
type Admission struct {
	cfg Config
	// votersFull is the state of another voter whose memory is full; nil if there is none.
	votersFull atomic.Pointer[MemoryError]
	leases     leaseBudget
	fullQueues fullQueues
	// Quotas are the shard's parts of the quotas of namespaces.
	Quotas *Quotas
}

// Config is what the admission of a shard gets from its surroundings. All functions may be called
// from any goroutine.
type Config struct {
	Name  string      // of the shard, for errors
	Leads func() bool // this node leads the shard and serves
	Idle  func() bool // every earlier request is applied
	View  View
	// Voters returns the shortage of voters; nil if there are enough.
	Voters func() *VotersError
	// HandsOver reports whether this leader hands over because of its disk.
	HandsOver func() bool
	Space     *disk.Space
	Memory    *Memory
	// NodeLimited is set while some namespace of the cluster has a quota. AskForMore asks for larger
	// shard quotas. NoLeader returns ErrNoLeader with the known leader.
	NodeLimited *atomic.Bool
	AskForMore  func()
	NoLeader    func() error
}

// New returns the admission of a shard.
func New(cfg Config) *Admission {
	return &Admission{cfg: cfg, Quotas: &Quotas{
		name: cfg.Name, view: cfg.View, nodeLimited: cfg.NodeLimited, askForMore: cfg.AskForMore, noLeader: cfg.NoLeader,
	}}
}

// Admitted is a request that may be proposed.
type Admitted struct {
	// Request may reserve fewer jobs than the caller's.
	Request *fsm.Request
	// Reservation is its quota. It must be released.
	Reservation *Reservation
	// Refused are the results of a request that the limits of its queues refuse; nil if it may be
	// proposed.
	Refused []fsm.Result
}

// Admit decides on a request. It may wait up to QuotaWait for quota, and calls beforeWait, if it is not
// nil, before.
func (a *Admission) Admit(ctx context.Context, req *fsm.Request, beforeWait func()) (Admitted, error) {
	if err := a.Check(req); err != nil {
		return Admitted{}, err
	}
	if results := a.refusedByQueues(req); results != nil {
		return Admitted{Refused: results}, nil
	}
	bounded, err := a.boundLeases(req)
	if err != nil && !a.cfg.View.knows(req) { // a repeat takes no further lease
		return Admitted{}, err
	}
	reservation, err := a.Quotas.reserve(ctx, bounded, beforeWait)
	return Admitted{Request: bounded, Reservation: reservation}, err
}

// Check refuses requests that would fill a full disk or memory further: puts if either is low, and
// everything that frees no space if space is scarce. An entry that cannot be written ends the
// process, so if space is exhausted, no caller's request is logged. It also refuses what too few
// voters would store. A repeat adds nothing to memory, and passes. While the leader hands over, the
// refusal is ErrNoLeader: the next leader takes the call.
func (a *Admission) Check(req *fsm.Request) error {
	if !a.cfg.Leads() {
		return nil
	}
	if err := a.checkVoters(req); err != nil {
		return err
	}
	low, full, voter := a.cfg.Space.Low(), a.cfg.Memory.full.Load(), a.votersFull.Load()
	if !low && !full && voter == nil {
		return nil
	}
	scarce, exhausted, anyAdds := a.cfg.Space.Scarce(), a.cfg.Space.Exhausted(), false
	for _, c := range req.Commands {
		k := c.Kind()
		adds := k == fsm.KindPut || k == fsm.KindOpen || k == fsm.KindImport || k == fsm.KindPutSchedule ||
			k == fsm.KindFire || k == fsm.KindRunSchedule
		if exhausted || adds && low || scarce && !frees(k) {
			return a.diskRefusal()
		}
		anyAdds = anyAdds || adds
	}
	switch {
	case !anyAdds || !full && voter == nil || a.cfg.View.knows(req):
		return nil
	case full:
		return fmt.Errorf("%s: %w", a.cfg.Name, a.cfg.Memory.refusal())
	default:
		return fmt.Errorf("%s: %w", a.cfg.Name, voter)
	}
}

// checkVoters refuses requests of a shard with too few voters, except those that end jobs. An
// extension of a lease is refused too: it would be on too few disks.
func (a *Admission) checkVoters(req *fsm.Request) error {
	short := a.cfg.Voters()
	if short == nil {
		return nil
	}
	for _, c := range req.Commands {
		if !frees(c.Kind()) {
			return fmt.Errorf("%s: %w", a.cfg.Name, short)
		}
	}
	return nil
}

// ParkedPause returns how long all parked calls wait because no reservation may be logged: the disk
// is nearly full, or there are too few voters. It is 0 if reservations may be logged.
func (a *Admission) ParkedPause() time.Duration {
	if a.cfg.Space.Scarce() || a.cfg.Voters() != nil {
		return ScarcePause
	}
	return 0
}

// MemoryFull reports whether puts are refused because memory is full, here or at another voter.
func (a *Admission) MemoryFull() bool { return a.cfg.Memory.full.Load() || a.votersFull.Load() != nil }

// diskRefusal returns the error for requests that the disk has no room for.
func (a *Admission) diskRefusal() error {
	if a.cfg.HandsOver() {
		return fmt.Errorf("%s: %w: its leader hands over: %w", a.cfg.Name, outcome.ErrNoLeader, outcome.ErrDiskFull)
	}
	return fmt.Errorf("%s: %w", a.cfg.Name, outcome.ErrDiskFull)
}

// frees reports whether a command ends jobs or keeps new ones away, or must be logged for the shard to
// be served at all.
func frees(k fsm.Kind) bool {
	switch k {
	case fsm.KindAck, fsm.KindCancel, fsm.KindPurge, fsm.KindPurgeKey, fsm.KindDeleteQueue, fsm.KindDeleteSchedule,
		fsm.KindPauseSchedules, fsm.KindExpire, fsm.KindLead, fsm.KindResetClock:
		return true
	default:
		return false
	}
}

// SetFullVoter records the state of the voter with the least memory left, among those whose memory
// is full; nil if there is none.
func (a *Admission) SetFullVoter(full *MemoryError) { a.votersFull.Store(full) }

// NoteResults remembers the queues of puts that a limit of the machine refused.
func (a *Admission) NoteResults(commands []fsm.Command, results []fsm.Result) {
	a.fullQueues.noteRefused(commands, results)
}

// AdmitParked decides whether the reservation of a parked call may be proposed, to take jobs of
// queue. It does not wait. The refusal is the zero value if it may.
func (a *Admission) AdmitParked(req *fsm.Request, queue string) (_ Admitted, r ParkedRefusal) {
	request, err := a.boundLeases(req)
	if err != nil { // until an ack makes room
		return Admitted{}, ParkedRefusal{Pause: ScarcePause, Ends: true}
	}
	if !a.Quotas.LimitsAny() {
		return Admitted{Request: request}, ParkedRefusal{}
	}
	reserved, ok, full := a.Quotas.reserveLeases(req, queue)
	if !ok { // without full it lacks quota for another queue that it names; the next calls may not
		return Admitted{}, ParkedRefusal{Pause: QuotaPause, Ends: full, LeasesFull: full}
	}
	return Admitted{Request: request, Reservation: reserved}, ParkedRefusal{}
}

// ParkedRefusal says what a parked call that may not reserve waits for. The zero value is no
// refusal.
type ParkedRefusal struct {
	// Pause is when to look again.
	Pause time.Duration
	// Ends says that the calls behind it in the queue would be refused too. LeasesFull says that the
	// reason is the quota of the queue's namespace.
	Ends, LeasesFull bool
}

const (
	// ScarcePause is how long a queue pauses if the disk is nearly full, or memory is full and enough
	// jobs are reserved.
	ScarcePause = time.Second
	// QuotaPause is how long a queue pauses if its namespace has used up its quota of jobs in flight.
	QuotaPause = 50 * time.Millisecond
)

// Freed returns the queue in which a command may have made a job reservable; empty if there is
// none. Time is not considered.
func Freed(c fsm.Command) string {
	switch c.Kind() {
	case fsm.KindReserve, fsm.KindReserveJob, fsm.KindExtend, fsm.KindOpen, fsm.KindDeleteQueue:
		return ""
	default: // an Ack, for example, frees room below maxInFlight
		return fsm.QueueOf(c)
	}
}
